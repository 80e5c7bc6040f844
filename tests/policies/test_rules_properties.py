"""What holds for all rules, whatever they are: Hypothesis looks for a counterexample."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.shedding.rules import Rules
from tests.policies.ruled import rules_of

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
