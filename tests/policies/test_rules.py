"""Rules that allow or forbid a move, by example and whatever they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.rules import Forbidden, Rules
from policies.shedding.view import NOBODY
from tests.policies.ruled import FREE, MORE_OF_A, MORE_OF_B, A, B, C, X, row_of, rules_of

OTHER_OF_B = "t/b/0x2_0x3"
EAST_WEST = {"east": ["b1", "b2"], "west": ["b3", "b4"]}


def bars(rules: Rules, row: int, destination: int) -> str | None:
    """Why an anti-affinity group keeps a bundle from a broker."""
    found = rules.bars(row, destination)
    assert found is None or found.rule == "anti-affinity"
    return None if found is None else found.detail


@pytest.mark.parametrize(
    ("owned", "counts"),
    [
        pytest.param(([A], []), None, id="the destination is empty"),
        pytest.param(([A], [B]), (1, 0), id="the destination has another namespace of the group"),
        pytest.param(([A], [B, C]), (2, 0), id="it has two others"),
        pytest.param(([A], [B, MORE_OF_B]), (1, 0), id="two bundles of a namespace count once"),
        pytest.param(([A, B], [C]), None, id="both brokers have one other"),
        pytest.param(([A, B], [C, MORE_OF_B]), (2, 1), id="the destination has one more than the source"),
        pytest.param(([A, B, C], [MORE_OF_B]), None, id="the source has one more than the destination"),
        pytest.param(([A], [MORE_OF_A]), None, id="the namespace itself is no other"),
        pytest.param(([A, MORE_OF_A], [B]), (1, 0), id="nor is it at the source"),
        pytest.param(([A], [X, FREE]), None, id="other groups and free namespaces do not count"),
        pytest.param(([FREE], [A, B, C]), None, id="a namespace without a group may go anywhere"),
        pytest.param(([X], [A, B, C]), None, id="a group does not mind another one"),
    ],
)
def test_a_bundle_stays_where_its_destination_has_more_of_its_group(
    owned: tuple[list[str], list[str]], counts: tuple[int, int] | None
) -> None:
    """The first bundle of b1 would go to b2."""
    expected = counts and (
        f"b2 owns bundles of {counts[0]} other namespaces of anti-affinity group spread, b1 of {counts[1]}"
    )
    assert bars(rules_of(*owned), 0, 1) == expected


def test_a_bundle_goes_to_a_broker_that_has_its_own_namespace_and_not_to_those_with_others() -> None:
    """b1 is hot with bundles of t/c; b2 has t/a and b3 t/b, which are to be kept apart from it, and b4 has t/c already."""
    hot = [f"t/c/0x{at}_0x{at + 1}" for at in range(7)]
    rules = rules_of(hot, [A], [B], ["t/c/0x8_0x9", FREE])
    assert rules.allowed(np.arange(7), np.array([1, 2, 3])).tolist() == [[False, False, True]] * 7


@pytest.mark.parametrize("domains", [{}, {"east": ["b1"], "west": ["b2"]}])
def test_where_pulsar_chooses_the_destination_nothing_is_barred(domains: Mapping[str, list[str]]) -> None:
    rules = rules_of([A], [B], domains=domains)
    assert rules.bars(0, 1) is not None
    assert rules.bars(0, NOBODY) is None
    rules.take(0, NOBODY)
    assert rules.bars(1, 0) is not None, "it may still be at b1"


def test_a_bundle_that_moves_counts_at_its_destination_for_those_after_it() -> None:
    rules = rules_of([A, B], [], [], [MORE_OF_B])
    assert bars(rules, 1, 1) is None
    rules.take(0, 1)
    assert bars(rules, 1, 1) is None, "the namespace also stays at b1, which may have more of it"
    assert bars(rules, 2, 1) == "b2 owns bundles of 1 other namespaces of anti-affinity group spread, b4 of 0"


def test_a_draft_knows_what_was_taken_and_keeps_its_own_moves_to_itself() -> None:
    rules = rules_of([A], [], [B, C], [], limits={"round": 9})
    rules.take(1, 1)
    draft = rules.draft()
    draft.take(2, 1)
    two, one = (
        f"b2 owns bundles of {count} other namespaces of anti-affinity group spread, b1 of 0"
        for count in (2, 1)
    )
    assert (bars(draft, 0, 1), bars(draft, 0, 3), bars(rules, 0, 1)) == (two, None, one)
    assert [float(each.limits[0].spent[0]) for each in (draft, rules)] == [2, 1]
    assert [each.staying_counts.tolist() for each in (draft, rules)] == [[1, 0, 0, 0], [1, 0, 1, 0]]
    rules.take(0, 3)
    assert bars(draft, 2, 3) is None


@pytest.mark.parametrize(
    ("owned", "destination", "domains", "is_held"),
    [
        pytest.param(([A], [B], [C], []), 3, EAST_WEST, False, id="as many in both domains, none at b4"),
        pytest.param(([A], [B], [], [C]), 3, EAST_WEST, True, id="as many in both domains, one at b4"),
        pytest.param(([A], [B], [], []), 1, {}, True, id="no domain is declared"),
        pytest.param(([A], [B], [], []), 1, EAST_WEST, True, id="within a domain"),
    ],
)
def test_if_one_domain_is_as_good_as_the_other_the_brokers_are_compared(
    owned: tuple[list[str], ...], destination: int, domains: Mapping[str, list[str]], *, is_held: bool
) -> None:
    why = f"b{destination + 1} owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0"
    assert bars(rules_of(*owned, domains=domains), 0, destination) == (why if is_held else None)


@pytest.mark.parametrize(
    ("domains", "east", "west"),
    [
        (EAST_WEST, "failure domain east", "failure domain west"),
        ({"east": ["b1", "b2"]}, "failure domain east", "no failure domain"),
    ],
)
def test_two_brokers_of_a_domain_that_have_the_same_namespace_both_count(
    domains: Mapping[str, list[str]], east: str, west: str
) -> None:
    assert bars(rules_of([A], [B], [OTHER_OF_B], [MORE_OF_B], domains=domains), 0, 3) == (
        f"brokers of {west} own bundles of 2 other namespaces of anti-affinity group spread, those of {east} of 1"
    )


@pytest.mark.parametrize(
    ("at_destination", "here", "counts"),
    [
        ([], [A], None),
        ([B], [A], (1, 0)),
        ([B], [A, C], None),
        ([B], [A, FREE, X], (1, 0)),
        ([B, C], [A, MORE_OF_B], (2, 1)),
        ([MORE_OF_A], [A], None),
    ],
    ids=["empty", "one", "one at both", "no others of the group here", "two against one", "itself"],
)
def test_a_drained_broker_counts_with_the_namespaces_it_has(
    at_destination: list[str], here: list[str], counts: tuple[int, int] | None
) -> None:
    rules = rules_of(at_destination, drained=here)
    assert bars(rules, row_of(rules, "gone"), 0) == (
        counts
        and f"b1 owns bundles of {counts[0]} other namespaces of anti-affinity group spread, gone of {counts[1]}"
    )


@pytest.mark.parametrize(
    ("here", "in_east"),
    [([A], 1), ([A, C], None), ([A, C, "t/b/0x4_0x5"], None)],
    ids=["fewer", "as many, and b3 has no more than the broker", "more"],
)
def test_the_domain_of_a_drained_broker_counts_with_what_its_brokers_have(
    here: list[str], in_east: int | None
) -> None:
    """Domain west has two others, one at each of its brokers; domain east has one at b2, and those of the drained broker."""
    domains = {"east": ["b1", "b2", "gone"], "west": ["b3", "b4"]}
    rules = rules_of([], [B], [OTHER_OF_B], [MORE_OF_B], drained=here, domains=domains)
    assert bars(rules, row_of(rules, "gone"), 2) == (
        in_east
        and "brokers of failure domain west own bundles of 2 other namespaces of anti-affinity group spread, those of "
        f"failure domain east of {in_east}"
    )


def test_what_a_drained_broker_has_counts_for_nobody_else() -> None:
    domains = {"east": ["b1"], "west": ["b2", "gone"]}
    rules = rules_of([A], [], drained=[B, C], domains=domains)
    assert rules.bars(0, 1) is None


NAMES = [f"t/n/0x{at}_0x{at + 1}" for at in range(4)]


def taken(rules: Rules, *rows: int) -> list[str]:
    """The rule that keeps each bundle, one after the other; empty for one that goes to b2."""
    found = []
    for row in rows or range(len(NAMES)):
        kept = rules.keeps(row)
        found.append(kept.rule if kept else "")
        if kept is None:
            rules.take(row, 1)
    return found


@pytest.mark.parametrize("limit", ["round", "hour", "broker", "namespace"])
def test_a_limit_lets_as_many_through_as_it_says(limit: str) -> None:
    rules = rules_of(NAMES, [], limits={limit: 2})
    assert taken(rules) == ["", "", "budget", "budget"]
    assert rules.keeps(0) == Forbidden("budget", f"{limit} 2 is spent", limit)
    assert not rules.allowed(np.arange(4), np.array([1])).any()


def test_a_limit_counts_what_earlier_rounds_spent() -> None:
    assert taken(rules_of(NAMES, [], limits={"hour": 4}, spent={"hour": 3})) == [
        "",
        "budget",
        "budget",
        "budget",
    ]


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("broker", [[False, False], [False, False], [True, True]]),
        ("namespace", [[False, False], [True, True], [False, False]]),
    ],
)
def test_a_limit_of_a_broker_or_a_namespace_leaves_the_others_alone(
    limit: str, found: list[list[bool]]
) -> None:
    """A of b1 has moved; then more of its namespace, B beside it, and more of its namespace at b2 are asked for."""
    rows = {"broker": [1, 2, 3], "namespace": [1, 2, 3]}[limit]
    rules = rules_of([A, MORE_OF_A, B], ["t/a/0x2_0x3"], [], limits={limit: 1})
    rules.take(0, 2)
    assert rules.allowed(np.array(rows), np.array([1, 2])).tolist() == found


def test_a_limit_may_count_what_each_bundle_costs() -> None:
    """Bundles cost 0.25, 0.5, 0.125 and 0.125 of 0.5: after the first the second is too much, and the others fit exactly."""
    costs = np.array([0.25, 0.5, 0.125, 0.125])
    rules = rules_of(NAMES, [], limits={"traffic": 0.5}, costs={"traffic": costs})
    assert taken(rules) == ["", "budget", "", ""]
    assert float(rules.limits[0].spent[0]) == 0.5


def test_drains_have_an_hour_of_their_own_and_share_the_round() -> None:
    limits = {"round": 3, "hour": 1, "drain": 1}
    rules = rules_of(NAMES, [], drained=[A, B, C], limits=limits)
    gone = row_of(rules, "gone")
    assert taken(rules, 0, 1, gone, gone + 1) == ["", "budget", "", "budget"]
    assert [float(each.spent[0]) for each in rules.limits] == [2, 1, 1]
    assert rules.keeps(gone + 1) == Forbidden("budget", "drain 1 is spent", "drain")


def test_a_drained_broker_gives_its_last_bundle_to_a_silent_broker_of_any_group() -> None:
    rules = rules_of([], [], drained=[A], keeps_sole=True, silent=["b2"], isolation=[0, 1])
    assert (rules.keeps(0), rules.bars(0, 1)) == (None, None)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ((), ["", "", "", "sole-bundle"]),
        ((NAMES[3],), ["", "", "sole-bundle", ""]),
        ((NAMES[0],), ["", "", "", "sole-bundle"]),
    ],
    ids=[
        "none was told to leave",
        "the last was told, and goes again",
        "one that goes was told already and does not count twice",
    ],
)
def test_the_last_bundle_of_a_broker_stays(told: tuple[str, ...], found: list[str]) -> None:
    assert taken(rules_of(NAMES, [], told=told, keeps_sole=True)) == found
    assert set(taken(rules_of(NAMES, [], told=told))) == {""}


def test_the_reason_of_a_last_bundle_says_how_many_were_told_to_leave() -> None:
    rules = rules_of(NAMES[:2], [], told=NAMES[:1], keeps_sole=True)
    assert rules.keeps(1) == Forbidden(
        "sole-bundle", "b1 owns no other bundle that stays: 1 was told to leave"
    )
    alone = rules_of(NAMES[:1], [], keeps_sole=True)
    assert alone.keeps(0) == Forbidden("sole-bundle", "b1 owns no other bundle")


@pytest.mark.parametrize(
    ("options", "found", "barred"),
    [
        ({}, [[True, True], [True, True]], None),
        ({"masked": [FREE]}, [[False, False], [True, True]], None),
        (
            {"silent": ["b2"]},
            [[False, True], [False, True]],
            Forbidden("no-destination", "b2 may not receive bundles now"),
        ),
        (
            {"isolation": [0, 1, 0]},
            [[False, True], [False, True]],
            Forbidden("other-group", "b2 is of another isolation group now"),
        ),
    ],
    ids=["nothing", "a masked bundle", "a broker that takes nothing", "another isolation group"],
)
def test_masks_brokers_that_take_nothing_and_isolation_are_rules(
    options: dict[str, Any], found: list[list[bool]], barred: Forbidden | None
) -> None:
    """FREE and X are at b1, and b2 and b3 are empty."""
    rules = rules_of([FREE, X], [], [], **options)
    assert rules.allowed(np.array([0, 1]), np.array([1, 2])).tolist() == found
    assert rules.bars(0, 1) == barred


CHECKED = settings(max_examples=150, deadline=None, derandomize=True)
NAMESPACES = [f"t/{name}" for name in "abcdefg"]
seeds = st.integers(min_value=0, max_value=2**32)


@dataclass(frozen=True)
class Case:
    """Brokers with bundles, and the rules between them."""

    owned: list[list[str]]
    options: dict[str, Any]
    moves: list[tuple[int, int]]
    """Bundle and broker rows of what was taken already."""

    @property
    def rules(self) -> Rules:
        found = rules_of(*self.owned, **self.options)
        for row, destination in self.moves:
            found.take(row, destination)
        return found

    @property
    def bundles_count(self) -> int:
        return sum(map(len, self.owned))

    def allowed(self) -> list[list[bool]]:
        found: list[list[bool]] = all_allowed(self.rules, self.bundles_count, len(self.owned))
        return found


def all_allowed(rules: Rules, bundles_count: int, brokers_count: int) -> list[list[bool]]:
    found: list[list[bool]] = rules.allowed(np.arange(bundles_count), np.arange(brokers_count)).tolist()
    return found


def case_of(seed: int) -> Case:
    """Up to six brokers with up to seven bundles each; every kind of rule is on in about half of the cases."""
    random = Random(seed)  # noqa: S311
    owned = [
        sorted(
            f"{random.choice(NAMESPACES)}/0x{broker}{at}_0x{broker}{at + 1}"
            for at in range(random.randint(0, 7))
        )
        for broker in range(random.randint(1, 6))
    ]
    bundles = [name for names in owned for name in names]
    brokers = [f"b{at}" for at in range(1, len(owned) + 1)]
    shuffled = random.sample(NAMESPACES, len(NAMESPACES))
    cuts = sorted(random.sample(range(len(NAMESPACES) + 1), 2))
    options = {
        "groups": {"one": shuffled[: cuts[0]], "two": shuffled[cuts[0] : cuts[1]]},
        "domains": {"east": [], "west": []},
        "isolation": [random.randint(0, 1) for _ in brokers],
        "silent": [name for name in brokers if random.random() < 0.3],
        "masked": [name for name in bundles if random.random() < 0.3],
        "told": [name for name in bundles if random.random() < 0.2],
        "keeps_sole": True,
        "limits": {name: random.randint(1, 4) for name in ("round", "hour", "broker", "namespace")},
    }
    for name in brokers:
        options["domains"].get(random.choice(["east", "west", "none"]), []).append(name)  # type: ignore[attr-defined]
    kept = {name: value for name, value in options.items() if random.random() < 0.6}
    moves = [
        (random.randrange(len(bundles)), random.randrange(len(owned)))
        for _ in range(random.randint(0, 3) if bundles else 0)
    ]
    return Case(owned, {"groups": {}} | kept, moves)


@CHECKED
@given(seeds)
def test_asking_for_many_bundles_at_once_is_asking_for_each(seed: int) -> None:
    case = case_of(seed)
    rules = case.rules
    assert case.allowed() == [
        [
            bool(rules.movable[row]) and rules.keeps(row) is None and rules.bars(row, broker) is None
            for broker in range(len(case.owned))
        ]
        for row in range(case.bundles_count)
    ]


@CHECKED
@given(seeds)
def test_the_order_of_groups_domains_and_limits_and_the_names_of_namespaces_change_nothing(seed: int) -> None:
    case, random = case_of(seed), Random(seed)  # noqa: S311
    named = dict(zip(NAMESPACES, random.sample(NAMESPACES, len(NAMESPACES)), strict=True))

    def rename(names: Sequence[str]) -> list[str]:
        return [name.replace(name[:3], named[name[:3]]) for name in names]

    def shuffle(values: dict[str, Any]) -> dict[str, Any]:
        return dict(random.sample(sorted(values.items()), len(values)))

    options = dict(case.options)
    for name in ("groups", "domains", "limits"):
        if name in options:
            options[name] = shuffle(options[name])
    options["groups"] = {name: rename(names) for name, names in options["groups"].items()}
    for name in ("masked", "told"):
        options[name] = rename(options.get(name, []))
    other = Case([rename(names) for names in case.owned], options, case.moves)
    assert other.allowed() == case.allowed()


@CHECKED
@given(seeds, seeds)
def test_more_rules_never_allow_more(seed: int, other: int) -> None:
    """A failure domain may: it makes a broker as good as another that is worse alone. So it stays as it is."""
    case = case_of(seed)
    more = case_of(other).options
    groups = dict(case.options["groups"])
    free = [name for name in NAMESPACES if not any(name in names for names in groups.values())]
    added: dict[str, Any] = {
        "groups": groups | {"new": free[:3]},
        "keeps_sole": True,
        "limits": dict.fromkeys(("round", "hour", "broker", "namespace"), 2) | case.options.get("limits", {}),
        "silent": {*case.options.get("silent", ()), *more.get("silent", ())},
        "masked": {*case.options.get("masked", ()), *more.get("masked", ())},
    }
    stricter = replace(case, options=case.options | added)
    assert np.all(np.array(stricter.allowed()) <= np.array(case.allowed()))


@CHECKED
@given(seeds)
def test_what_is_taken_spends_and_never_gives_back(seed: int) -> None:
    case = case_of(seed)
    rules = case.rules
    if not case.bundles_count:
        return
    before = [rules.keeps(row) is None for row in range(case.bundles_count)]
    asked = all_allowed(rules, case.bundles_count, len(case.owned))
    draft = rules.draft()
    draft.take(0, len(case.owned) - 1)
    after = [draft.keeps(row) is None for row in range(case.bundles_count)]
    assert all(was or not is_ for was, is_ in zip(before, after, strict=True))
    assert all_allowed(rules, case.bundles_count, len(case.owned)) == asked, (
        "a draft keeps its moves to itself"
    )


@CHECKED
@given(seeds)
def test_a_part_of_the_view_is_told_the_same_and_counts_in_the_whole(seed: int) -> None:
    case, random = case_of(seed), Random(seed)  # noqa: S311
    rules = case.rules
    brokers = np.array(sorted(random.sample(range(len(case.owned)), random.randint(1, len(case.owned)))))
    bundles = np.concatenate([np.arange(rules.starts[row], rules.starts[row + 1]) for row in brokers]).astype(
        int
    )
    if not len(bundles):
        return
    part = rules.part(brokers, bundles)
    part.take(0, len(brokers) - 1)
    whole = np.array(case_with(case, int(bundles[0]), int(brokers[-1])).allowed())
    found = part.allowed(np.arange(len(bundles)), np.arange(len(brokers)))
    assert found.tolist() == whole[bundles][:, brokers].tolist()
    assert all_allowed(rules, case.bundles_count, len(case.owned)) == whole.tolist()


def case_with(case: Case, row: int, destination: int) -> Case:
    """The case after one more move."""
    return replace(case, moves=[*case.moves, (row, destination)])
