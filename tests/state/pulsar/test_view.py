"""What a policy sees of a round: what was measured, or that with the moves of a dry-run, and the cluster's own past."""

from typing import Any

import pytest

from policies.shedding.view import JudgedAction, RoundView, Traffic, UnloadInFlight
from state.events import Tick
from state.ledger import Decision, Ledger, Verdict, end_watch
from state.memory import OpenRound
from state.outputs import ShadowRow
from state.pulsar.masks import unload_mask, unsettled_brokers
from state.pulsar.memory import ShadowMoves
from state.pulsar.view import PolicyView, policy_view, shadowed_view
from state.upkeep import Spell, Upkeep
from tests.state.building import (
    END_MS,
    Seen,
    decided_split,
    decision,
    guarded,
    ledger_of,
    open_to_all,
    seen,
)
from tests.state.traces import load

A, B, C, D = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c", "d"))
SPELL = Spell(0)


def cluster(**options: Any) -> Seen:
    """b1 is at 100 % with A of 60 and B of 20 messages/s, b2 idles with C of 10, b3 is at 12.5 % with D of 30."""
    return seen(
        load("b1", 470, cpu=100.0, bundles={A: 60.0, B: 20.0}),
        load("b2", 470, cpu=0.0, bundles={C: 10.0}),
        load("b3", 470, cpu=12.5, bundles={D: 30.0}),
        **options,
    )


def measured(*, ledger: Ledger | None = None, **fields: Any) -> PolicyView:
    context = cluster(header={"ledger": ledger or Ledger()}, **fields).context
    unsettled = unsettled_brokers(context)
    return policy_view(context, unload_mask(context, unsettled), unsettled)


def movable(table: PolicyView) -> list[str]:
    bundles = table.view.bundles
    return [name for name, may_go in zip(bundles.names, bundles.movable.tolist(), strict=True) if may_go]


def test_the_view_has_brokers_with_their_bundles_and_what_may_move() -> None:
    view = measured().view
    assert view.brokers.names == ("b1", "b2", "b3")
    assert list(view.bundles.names) == [A, B, C, D]
    assert view.bundles.starts.tolist() == [0, 2, 3, 4]
    assert movable(measured()) == [A, B, C, D]
    assert view.brokers.may_receive.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"settings": guarded(excluded_namespaces=("t/b",))}, [A, C, D]),
        ({"upkeep": Upkeep(namespaces={"t/c": SPELL})}, [A, B, D]),
        ({"ledger": ledger_of(decision(bundle=A, decided_ms=END_MS))}, [B, C, D]),
    ],
    ids=["its namespace is excluded", "its namespace is under maintenance", "it rests after an unload"],
)
def test_what_may_not_be_touched_does_not_move(options: dict[str, Any], names: list[str]) -> None:
    assert movable(measured(**options)) == names


def test_brokers_that_wait_for_their_unload_give_and_receive_nothing() -> None:
    on_its_way = ledger_of(decision(bundle=A, decided_ms=END_MS, expires_ms=END_MS + 1, destination="b3"))
    table = measured(ledger=on_its_way, settings=guarded(hold_unsettled_brokers=True))
    assert movable(table) == [C]
    assert table.view.brokers.may_receive.tolist() == [False, True, False]
    free = measured(ledger=on_its_way)
    assert (movable(free), free.view.brokers.may_receive.tolist()) == ([B, C, D], [True] * 3)


ASKED = OpenRound(tick=Tick(1, "t", ("b9", "b1", "b4", "b7", "b8"), ()))


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, []),
        ({"open_round": ASKED}, ["b4", "b7", "b8", "b9"]),
        ({"open_round": ASKED, "settings": guarded(excluded_brokers=("b7",))}, ["b4", "b8", "b9"]),
        ({"open_round": ASKED, "upkeep": Upkeep({"b8": SPELL}, {}, {"b9": SPELL})}, ["b4", "b7"]),
    ],
    ids=["nobody was asked", "four are silent", "b7 is excluded", "b8 rests and b9 is drained"],
)
def test_a_broker_is_missing_that_takes_part_was_asked_and_did_not_report(
    fields: dict[str, Any], missing: list[str]
) -> None:
    assert measured(**fields).view.missing == missing


def counted(moves: ShadowMoves, **fields: Any) -> PolicyView | None:
    context = cluster(shadow=moves, mode="dry-run", **fields).context
    return shadowed_view(context, open_to_all(context), ())


@pytest.mark.parametrize("moves", [{}, {"t/gone/0x0_0x1": ("b1", "b2")}, {C: ("b1", "b2")}])
def test_where_no_bundle_counts_elsewhere_the_measured_view_stands(moves: ShadowMoves) -> None:
    assert counted(moves) is None


def test_a_bundle_that_the_dry_run_moved_counts_at_its_destination_with_what_it_costs() -> None:
    """A message takes 1.25 points of CPU, so 25 of the 100 points of b1 are at b2: 75, 25 and 12.5 points, 37.5 on the mean."""
    found = counted({B: ("b1", "b2")})
    assert found is not None
    assert found.shadow is not None
    view = found.view
    assert found.loads.usage_ratio.tolist() == view.brokers.usage_ratio.tolist() == [0.75, 0.25, 0.125]
    assert view.brokers.messages_per_s.tolist() == [60.0, 30.0, 30.0]
    assert list(view.bundles.names) == [A, B, C, D]
    assert view.bundles.starts.tolist() == [0, 1, 3, 4]
    assert (found.shadow.count, found.shadow.heaviest) == (
        1,
        [ShadowRow(bundle=B, broker="b1", counts_at="b2")],
    )
    assert (found.shadow.usage.mean_points, found.shadow.usage.max_points) == (37.5, 75.0)


@pytest.mark.parametrize(
    ("fields", "names", "mean_points"),
    [
        ({"settings": guarded(excluded_brokers=("b3",))}, ("b1", "b2"), 50.0),
        ({"upkeep": Upkeep({"b3": SPELL})}, ("b1", "b2"), 50.0),
        ({"upkeep": Upkeep({}, {}, {"b1": SPELL})}, ("b2", "b3"), 18.75),
    ],
    ids=["excluded", "under maintenance", "drained"],
)
def test_usage_with_the_shadow_is_that_of_the_brokers_that_take_part(
    fields: dict[str, Any], names: tuple[str, ...], mean_points: float
) -> None:
    found = counted({B: ("b1", "b2")}, **fields)
    assert found is not None
    assert found.shadow is not None
    assert found.view.brokers.names == names
    assert found.shadow.usage.mean_points == mean_points


def test_where_no_broker_takes_part_nothing_counts_elsewhere() -> None:
    everyone = guarded(excluded_brokers=("b1", "b2", "b3"))
    assert counted({B: ("b1", "b2")}, settings=everyone) is None


BEFORE = {"source": Traffic(100.0, 10.0), "destination": Traffic(5.0, 1.0)}
AFTER = {"source": Traffic(60.0, 6.0), "destination": Traffic(45.0, 5.0)}


def past(*decisions: Decision, end_ms: int) -> RoundView:
    context = seen(load("b1", 470), header={"ledger": ledger_of(*decisions)}, end_ms=end_ms).context
    return policy_view(context, open_to_all(context), ()).view


def test_a_judged_unload_shows_its_brokers_and_the_load_expected_and_seen() -> None:
    moved = decision("a", traffic=Traffic(40.0, 4.0), before=BEFORE)
    end_watch(moved, Verdict("good", 4000, "b2", 1, expected=AFTER, seen={"source": Traffic(70.0, 7.0)}))
    assert past(moved, end_ms=10_000).judged() == [
        JudgedAction(
            kind="unload",
            outcome="good",
            age_s=6.0,
            brokers={"source": "b1", "destination": "b2"},
            before=BEFORE,
            expected=AFTER,
            seen={"source": Traffic(70.0, 7.0)},
        )
    ]


def test_a_judged_split_and_an_unload_that_pulsar_placed_show_what_is_known() -> None:
    cut, placed = decided_split("s"), decision("a", destination=None)
    end_watch(cut, Verdict("failed", 1000, "b1", 0))
    end_watch(placed, Verdict("ineffective", 2000, "b1", 3))
    first, second = past(cut, placed, end_ms=2000).judged()
    assert (first.kind, first.outcome, first.age_s, first.brokers) == ("split", "failed", 1.0, {})
    assert (second.outcome, second.age_s, second.brokers) == ("ineffective", 0.0, {"source": "b1"})


def test_unloads_on_their_way_come_by_bundle() -> None:
    found = past(
        decision("b", bundle=B, source="b3"), decision("a", bundle=A, destination=None), end_ms=END_MS
    )
    assert found.in_flight() == [
        UnloadInFlight(A, "b1", None),
        UnloadInFlight(B, "b3", "b2"),
    ]


def test_a_bundle_that_counts_at_its_destination_is_not_on_its_way_there_as_well() -> None:
    moves = [
        decision(bundle=each, decided_ms=END_MS, expires_ms=END_MS + 1, destination="b2") for each in (A, B)
    ]
    found = counted({A: ("b1", "b2")}, header={"ledger": ledger_of(*moves)})
    assert found is not None
    assert [each.bundle for each in found.view.in_flight()] == [B]
