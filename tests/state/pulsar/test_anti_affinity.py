"""An unload must not gather an anti-affinity group at a broker; what counts are other namespaces of the group.

Failure domains in whole rounds are in ``test_failure_domains``.
"""

from collections.abc import Mapping

import pytest

from policies.shedding.view import NOBODY
from state.engine.holds import Hold
from state.facts import Facts
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.moves import Move
from state.pulsar.tables import Eligible
from tests.state.building import Seen, seen
from tests.state.traces import load

GROUP = {"spread": ["t/a", "t/b", "t/c"], "other": ["t/x", "t/y"]}
A, B, C, X, FREE = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c", "x", "free"))
MORE_OF_A, MORE_OF_B = "t/a/0x1_0x2", "t/b/0x1_0x2"


def cluster(*bundles: list[str]) -> Seen:
    """Brokers b1, b2 … (rows 0, 1 …) with these bundles."""
    return seen(
        *(load(f"b{at}", 470, bundles=dict.fromkeys(names, 1.0)) for at, names in enumerate(bundles, start=1))
    )


def spread_of(
    found: Seen,
    *,
    groups: Mapping[str, list[str]] = GROUP,
    domains: Mapping[str, list[str]] | None = None,
) -> AntiAffinity:
    facts = Facts([], [], [], [], dict(groups), [], {}, dict(domains or {}))
    return AntiAffinity.of(facts, found.table, found.advanced.fleet)


def row_of(table: Eligible, bundle: str) -> int:
    return list(table.view.bundles.names).index(bundle)


def hold(
    found: Seen, bundle: str, source: int, destination: int, spread: AntiAffinity | None = None
) -> str | None:
    """Why an unload of a bundle between two broker rows is held."""
    made = spread or spread_of(found)
    held = made.hold(found.table, Move(row_of(found.table, bundle), source, destination))
    assert held is None or held.reason == "anti-affinity"
    return None if held is None else held.detail


@pytest.mark.parametrize(
    ("bundles", "bundle", "counts"),
    [
        pytest.param(([A], []), A, None, id="the destination is empty"),
        pytest.param(([A], [B]), A, (1, 0), id="the destination has another namespace of the group"),
        pytest.param(([A], [B, C]), A, (2, 0), id="it has two others"),
        pytest.param(([A], [B, MORE_OF_B]), A, (1, 0), id="two bundles of a namespace count once"),
        pytest.param(([A, B], [C]), A, None, id="both brokers have one other"),
        pytest.param(([A, B], [C, MORE_OF_B]), A, (2, 1), id="the destination has one more than the source"),
        pytest.param(([A, B, C], [MORE_OF_B]), A, None, id="the source has one more than the destination"),
        pytest.param(([A], [MORE_OF_A]), A, None, id="the namespace itself is no other"),
        pytest.param(([A, MORE_OF_A], [B]), A, (1, 0), id="nor is it at the source"),
        pytest.param(([A], [X, FREE]), A, None, id="other groups and free namespaces do not count"),
        pytest.param(([FREE], [A, B, C]), FREE, None, id="a namespace without a group may go anywhere"),
        pytest.param(([X], [A, B, C]), X, None, id="a group does not mind another one"),
    ],
)
def test_a_bundle_stays_where_its_destination_has_more_of_its_group(
    bundles: tuple[list[str], list[str]], bundle: str, counts: tuple[int, int] | None
) -> None:
    expected = counts and (
        f"b2 owns bundles of {counts[0]} other namespaces of anti-affinity group spread, b1 of {counts[1]}"
    )
    assert hold(cluster(*bundles), bundle, 0, 1) == expected


@pytest.mark.parametrize("domains", [{}, {"east": ["b1"], "west": ["b2"]}])
def test_where_pulsar_chooses_the_destination_nothing_is_held(domains: Mapping[str, list[str]]) -> None:
    found = cluster([A], [B])
    spread = spread_of(found, domains=domains)
    assert hold(found, A, 0, 1, spread) is not None
    assert hold(found, A, 0, NOBODY, spread) is None


@pytest.mark.parametrize("facts", [None, Facts([], [], [], [], {}, [], {}, {"east": ["b1"]})])
def test_where_no_group_is_known_every_bundle_may_go(facts: Facts | None) -> None:
    found = cluster([A], [B])
    spread = AntiAffinity.of(facts, found.table, found.advanced.fleet)
    assert spread == AntiAffinity()
    assert hold(found, A, 0, 1, spread) is None


def test_a_bundle_that_moves_counts_at_its_destination_for_those_after_it() -> None:
    found = cluster([A, B], [], [])
    spread = spread_of(found)
    assert hold(found, B, 0, 1, spread) is None
    spread.move(A, 1)
    assert hold(found, B, 0, 1, spread) is None, "the namespace also stays at b1, which may have more of it"
    assert hold(found, B, 2, 1, spread) == (
        "b2 owns bundles of 1 other namespaces of anti-affinity group spread, b3 of 0"
    )


def test_a_move_to_a_broker_of_pulsars_choice_counts_nowhere_and_one_of_a_free_bundle_neither() -> None:
    found = cluster([A, FREE], [])
    spread = spread_of(found)
    before = spread.draft()
    spread.move(A, NOBODY)
    spread.move(FREE, 1)
    assert spread == before
    spread.move(MORE_OF_B, 1)
    assert spread.owned["spread", 1] == {"t/b"}


def test_a_draft_knows_what_was_moved_and_keeps_its_own_moves_to_itself() -> None:
    found = cluster([A], [], [B], [])
    spread = spread_of(found)
    spread.move(MORE_OF_B, 1)
    draft = spread.draft()
    draft.move(C, 1)
    assert hold(found, A, 0, 1, draft) == (
        "b2 owns bundles of 2 other namespaces of anti-affinity group spread, b1 of 0"
    )
    assert hold(found, A, 0, 3, draft) is None, "nothing of the group is at b4"
    assert hold(found, A, 0, 1, spread) == (
        "b2 owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0"
    )
    spread.move(C, 2)
    assert draft.owned["spread", 2] == {"t/b"}


EAST_WEST = {"east": ["b1", "b2"], "west": ["b3", "b4"]}


@pytest.mark.parametrize(
    ("bundles", "destination", "domains", "is_held"),
    [
        pytest.param(([A], [B], [C], []), 3, EAST_WEST, False, id="as many in both domains, none at b4"),
        pytest.param(([A], [B], [], [C]), 3, EAST_WEST, True, id="as many in both domains, one at b4"),
        pytest.param(([A], [B], [], []), 1, {}, True, id="no domain is declared"),
        pytest.param(([A], [B], [], []), 1, EAST_WEST, True, id="within a domain"),
    ],
)
def test_if_one_domain_is_as_good_as_the_other_the_brokers_are_compared(
    bundles: tuple[list[str], ...], destination: int, domains: Mapping[str, list[str]], *, is_held: bool
) -> None:
    found = cluster(*bundles)
    why = f"b{destination + 1} owns bundles of 1 other namespaces of anti-affinity group spread, b1 of 0"
    assert hold(found, A, 0, destination, spread_of(found, domains=domains)) == (why if is_held else None)


def test_two_brokers_of_a_domain_that_have_the_same_namespace_both_count() -> None:
    found = cluster([A], [B], [B.replace("0x0_0x1", "0x2_0x3")], [MORE_OF_B])
    assert hold(found, A, 0, 3, spread_of(found, domains=EAST_WEST)) == (
        "brokers of failure domain west own bundles of 2 other namespaces of anti-affinity group spread, those of "
        "failure domain east of 1"
    )


def drain_hold(
    found: Seen, spread: AntiAffinity, *here: str, source: str = "gone", destination: int = 0
) -> Hold | None:
    """Why a bundle of namespace ``t/a`` does not leave a drained broker with bundles of the namespaces ``here``."""
    return spread.drain_hold(found.table, "t/a", source=source, here=here, destination=destination)


@pytest.mark.parametrize(
    ("at_destination", "here", "counts"),
    [
        ([], ("t/a",), None),
        ([B], ("t/a",), (1, 0)),
        ([B], ("t/a", "t/c"), None),
        ([B], ("t/a", "t/free", "t/x"), (1, 0)),
        ([B, C], ("t/a", "t/b"), (2, 1)),
        ([MORE_OF_A], ("t/a",), None),
    ],
    ids=["empty", "one", "one at both", "no others of the group here", "two against one", "itself"],
)
def test_a_drained_broker_counts_with_the_namespaces_it_has(
    at_destination: list[str], here: tuple[str, ...], counts: tuple[int, int] | None
) -> None:
    found = cluster(at_destination)
    held = drain_hold(found, spread_of(found), *here)
    assert (held and held.detail) == (
        counts
        and f"b1 owns bundles of {counts[0]} other namespaces of anti-affinity group spread, gone of {counts[1]}"
    )


def test_a_namespace_without_a_group_leaves_a_drained_broker() -> None:
    found = cluster([A, B])
    spread = spread_of(found)
    assert spread.drain_hold(found.table, "t/free", source="gone", here=["t/a"], destination=0) is None


@pytest.mark.parametrize(
    ("here", "in_east"),
    [(("t/a",), 1), (("t/a", "t/c"), None), (("t/a", "t/b", "t/c"), None)],
    ids=["fewer", "as many, and b3 has no more than the broker", "more"],
)
def test_the_domain_of_a_drained_broker_counts_with_what_its_brokers_have(
    here: tuple[str, ...], in_east: int | None
) -> None:
    """Domain west has two others, one at each of its brokers; domain east has one at b2, and those of the drained broker."""
    found = cluster([], [B], [B.replace("0x0_0x1", "0x2_0x3")], [MORE_OF_B])
    spread = spread_of(found, domains={"east": ["b1", "b2", "gone"], "west": ["b3", "b4"]})
    held = drain_hold(found, spread, *here, destination=2)
    assert (held and held.detail) == (
        in_east
        and "brokers of failure domain west own bundles of 2 other namespaces of anti-affinity group spread, those of "
        f"failure domain east of {in_east}"
    )


def test_a_drained_broker_that_still_takes_part_is_counted_once() -> None:
    """b1 has one other and b2 has one, so domain east has two, as domain west has; b3 has one, as b1 has."""
    found = cluster([A, C], [B], [B.replace("0x0_0x1", "0x2_0x3")], [MORE_OF_B])
    spread = spread_of(found, domains=EAST_WEST)
    assert drain_hold(found, spread, "t/a", "t/c", source="b1", destination=2) is None
    spread.move(C, 3)
    assert drain_hold(found, spread, "t/a", "t/c", source="b1", destination=2) is not None, (
        "three against two"
    )
