"""What a policy sees of a round: what was measured, or that with the moves of a dry-run."""

from typing import Any

import pytest

from state.events import Tick
from state.ledger import Ledger
from state.memory import Header, OpenRound
from state.outputs import ShadowRow
from state.pulsar.memory import ShadowMoves
from state.pulsar.view import Eligible, view_of, with_shadow
from state.settings import ClusterSettings, GuardSettings, PulsarSettings
from state.upkeep import Spell, Upkeep
from tests.state.building import END_MS, Seen, plain_costs, seen
from tests.state.engine.test_ledger import decision, ledger_of
from tests.state.engine.test_summary import closing
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


FOUND = cluster()


def guarded(**guards: Any) -> ClusterSettings:
    return ClusterSettings(pulsar=PulsarSettings(guards=GuardSettings(**guards)))


def measured(found: Seen = FOUND, *, ledger: Ledger | None = None, **fields: Any) -> Eligible:
    header = Header(length_ms=60_000, ledger=ledger or Ledger())
    return view_of(
        closing(**fields), header, found.advanced, found.loads, found.reports, plain_costs(found.loads.limits)
    )


def movable(table: Eligible) -> list[str]:
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


def counted(moves: ShadowMoves, **fields: Any) -> Any:
    found = cluster()
    found.advanced.fleet.shadow = moves
    header = Header(length_ms=60_000)
    costs = plain_costs(found.loads.limits)
    return with_shadow(closing(mode="dry-run", **fields), header, found.advanced, found.reports, costs)


@pytest.mark.parametrize("moves", [{}, {"t/gone/0x0_0x1": ("b1", "b2")}, {C: ("b1", "b2")}])
def test_where_no_bundle_counts_elsewhere_the_measured_view_stands(moves: ShadowMoves) -> None:
    assert counted(moves) is None


def test_a_bundle_that_the_dry_run_moved_counts_at_its_destination_with_what_it_costs() -> None:
    """A message takes 1.25 points of CPU, so 25 of the 100 points of b1 are at b2: 75, 25 and 12.5 points, 37.5 on the mean."""
    found = counted({B: ("b1", "b2")})
    view = found.table.view
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
    assert found.table.view.brokers.names == names
    assert found.shadow.usage.mean_points == mean_points


def test_where_no_broker_takes_part_nothing_counts_elsewhere() -> None:
    everyone = guarded(excluded_brokers=("b1", "b2", "b3"))
    assert counted({B: ("b1", "b2")}, settings=everyone) is None
