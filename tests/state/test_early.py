"""Events from before a cluster's first report are kept, and count in the rounds of the system that the report shows."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

import state.controller
from state import control, memory
from state.closing import Identity
from state.control import MAX_WAITING_COUNT
from state.controller import Controller
from state.events import ActionResult, Control, Coordinates, Event, Reassignment, Tick
from state.memory import Header, decode_header
from state.overlay import ControlData
from state.settings import RoundSettings
from state.store import DictStore
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.kafka.reporting import MoveRow, copies_report
from tests.state.traces import CLUSTER, facts, load, pause, result, tick

ROUNDS = [RoundSettings(length_s=60.0, lateness_s=15.0), RoundSettings(length_s=10.0, lateness_s=5.0)]
"""Pulsar's and Kafka's: what is 75 s older than the newest event may still be in an open round."""
SETTINGS = ClusterSettingsSource(
    compose(
        {
            "pulsar": {"rounds": {"length_s": 60.0, "lateness_s": 15.0}},
            "kafka": {"rounds": {"length_s": 10.0, "lateness_s": 5.0}},
        }
    )
)


def moves(time_s: float) -> Reassignment:
    report = copies_report(MoveRow("t", 0, (1, 2), (2,), (1,), 1, (1,)))
    return Reassignment(id="m", time_ms=round(1000 * time_s), report=report)


def kept(events: Sequence[Event]) -> tuple[list[str], list[float]]:
    """How each event ends, and the times in s of those that are kept."""
    header = Header(length_ms=60_000)
    ends = [control.keep_pending(header, event, ROUNDS) for event in events]
    return [str(end) for end in ends], [each.time_ms / 1000 for each in header.early]


@pytest.mark.parametrize(
    ("events", "ends", "times_s"),
    [
        pytest.param([tick(61), tick(62)], ["used", "used"], [62], id="the newer tick of a round"),
        pytest.param([tick(62), tick(61)], ["used", "superseded"], [62], id="whatever the order"),
        pytest.param([tick(62, "b"), tick(62, "a")], ["used", "superseded"], [62], id="the greater id"),
        pytest.param([tick(61), tick(70)], ["used"] * 2, [61, 70], id="one round of Pulsar, two of Kafka"),
        pytest.param([tick(5), tick(80)], ["used"] * 2, [5, 80], id="a round that may be open"),
        pytest.param([tick(4.999), tick(80)], ["used"] * 2, [80], id="a round that closed in every system"),
        pytest.param([tick(80), tick(4.999)], ["used", "late"], [80], id="a tick of such a round"),
        pytest.param([tick(80), tick(5)], ["used"] * 2, [80, 5], id="a tick of one that may be open"),
        pytest.param([result(4.999), tick(80)], ["used"] * 2, [80], id="a result of such a round"),
        pytest.param([result(1), result(1)], ["used", "superseded"], [1], id="a repeated result"),
        pytest.param([result(1), result(1, "b")], ["used"] * 2, [1, 1], id="results of two actions"),
        pytest.param([facts(1), facts(2)], ["used"] * 2, [2], id="the newer facts of a round"),
        pytest.param(
            [facts(1), facts(11), facts(200)], ["used"] * 3, [11, 200], id="facts outlive their round"
        ),
        pytest.param([pause(1), tick(500)], ["used"] * 2, [1, 500], id="so does what an operator wants"),
        pytest.param([tick(500), pause(1)], ["used"] * 2, [500, 1], id="however late it comes"),
        pytest.param([pause(1), pause(1)], ["used", "superseded"], [1], id="a repeated control event"),
        pytest.param(
            [pause(1), replace(pause(1), data=ControlData(why="other"))],
            ["used", "superseded"],
            [1],
            id="a control event of the same id, whatever it says",
        ),
        pytest.param(
            [pause(2), pause(1)], ["used"] * 2, [2, 1], id="no control event makes another pointless"
        ),
    ],
)
def test_what_may_still_count_is_kept_once(
    events: list[Event], ends: list[str], times_s: list[float]
) -> None:
    assert kept(events) == (ends, times_s)


def test_of_too_many_control_events_the_oldest_and_the_newest_stay() -> None:
    _, times_s = kept([pause(at) for at in range(MAX_WAITING_COUNT + 2)])
    assert len(times_s) == MAX_WAITING_COUNT
    assert times_s[:2] == [0, 3]
    assert times_s[-1] == MAX_WAITING_COUNT + 1


def test_an_event_comes_back_as_it_was_and_knows_the_clock_at_its_arrival() -> None:
    header = Header(length_ms=60_000)
    for event in (pause(1), tick(62), result(61)):
        control.keep_pending(header, event, ROUNDS)
    assert [(type(control.pending_event(each)), each.clock_ms) for each in header.early] == [
        (Control, None),
        (Tick, None),
        (ActionResult, 62_000),
    ]
    again = control.pending_event(header.early[2])
    assert isinstance(again, ActionResult)
    assert (again.id, again.time_ms, again.action_id, again.outcome) == ("r61", 61_000, "a", "failed")


def header_after(*events: Event) -> Header:
    store = DictStore()
    for event in events:  # a batch for each, so that everything goes through the store
        controller = Controller(CLUSTER, store, identity=Identity(), settings=SETTINGS)
        assert controller.step(event).rejection is None
        controller.commit()
    return decode_header(store.header() or b"")


EARLY = [result(1), result(59.999), tick(62), result(61), tick(65)]


@pytest.mark.parametrize(
    ("first", "system", "length_ms", "next_round", "results_s", "ticks_s"),
    [
        pytest.param(moves(62), "kafka", 10_000, 6, {6: [61]}, {6: 65}, id="kafka"),
        pytest.param(load("b1", 62), "pulsar", 60_000, 0, {0: [1, 59.999], 1: [61]}, {1: 65}, id="pulsar"),
    ],
)
def test_early_events_are_in_the_rounds_of_the_system_and_those_of_closed_rounds_are_gone(
    first: Event,
    system: str,
    length_ms: int,
    next_round: int,
    results_s: dict[int, list[float]],
    ticks_s: dict[int, float],
) -> None:
    header = header_after(*EARLY, first)
    assert (header.system, header.length_ms, header.next_round) == (system, length_ms, next_round)
    assert header.is_known
    assert header.newest_ms == 65_000
    assert header.early == []
    found = {number: each.results for number, each in header.rounds.items() if each.results}
    assert found == {
        number: [ActionResult(round(1000 * at), f"r{at:g}", "a", "failed") for at in times]
        for number, times in results_s.items()
    }
    assert {
        number: each.tick.time_ms / 1000 for number, each in header.rounds.items() if each.tick
    } == ticks_s


@pytest.mark.parametrize("event", [tick(65), facts(65), result(65), pause(65)])
def test_what_clusters_of_both_systems_send_shows_no_system_nor_do_facts_alone(event: Event) -> None:
    header = header_after(event)
    assert header.system is None
    assert not header.is_known
    assert header.rounds == {}


def test_facts_from_before_the_first_report_are_obeyed_from_the_close_of_their_round_on() -> None:
    early_facts = facts(1, trimtab_topics={"t/a/0x0_0x1": (1.0, 2.0)})
    header = header_after(early_facts, tick(200), load("b1", 200))
    assert header.facts == early_facts.facts


def test_facts_that_come_late_do_not_take_the_place_of_those_that_were_in_time() -> None:
    """Round 0 of a Pulsar cluster closes at second 75."""
    in_time = facts(10, trimtab_topics={"t/a/0x0_0x1": (1.0, 2.0)})
    header = header_after(in_time, tick(80), facts(20), tick(200), load("b1", 200))
    assert header.facts == in_time.facts


@pytest.mark.parametrize(
    ("clock_s", "applies_from", "arrived_late"),
    [(44, 1, False), (74, 1, False), (135, 2, True), (300, 4, True)],
)
def test_a_control_event_counts_from_the_round_it_would_have_had(
    *, clock_s: float, applies_from: int, arrived_late: bool
) -> None:
    """Due is round 1: the first that starts 2 x 15 s after second 10."""
    taken = header_after(tick(clock_s), pause(10), load("b1", clock_s)).control
    assert [(number, event.arrived_late) for number, event in taken.items()] == [(applies_from, arrived_late)]


def test_the_clock_at_its_arrival_decides_whether_a_control_event_came_late() -> None:
    """Kafka: due is round 1; at second 60 round 5 is the first that is open."""
    taken = header_after(tick(1), tick(60), pause(0), moves(60)).control
    assert [(number, event.arrived_late) for number, event in taken.items()] == [(5, True)]


def test_a_wish_to_forget_from_before_the_first_report_is_obeyed() -> None:
    """At second 60 the cluster is not silent; the first round that starts 2 x 15 s after it begins at 120 s."""
    wish = msgspec.structs.replace(pause(60), data=ControlData(forget=True))
    header = header_after(tick(60), wish, load("b1", 61))
    assert header.forget_from_ms == [120_000]


@pytest.mark.parametrize(
    ("time_s", "newest_s", "late"),
    [(59.999, 65, True), (60, 65, False), (60, 74.999, False), (60, 75, True)],
)
def test_a_first_report_of_a_closed_round_is_late_and_shows_no_system(
    *, time_s: float, newest_s: float, late: bool
) -> None:
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=SETTINGS)
    controller.step(tick(newest_s))
    controller.step(moves(time_s))
    assert controller.is_known is not late
    assert controller.take_results()[Reassignment, "late"] == late


def test_a_report_from_another_partition_than_the_events_before_it_is_refused() -> None:
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=SETTINGS)
    controller.step(tick(65), Coordinates(3))
    rejection = controller.step(load("b1", 65), Coordinates(5)).rejection
    assert rejection is not None
    assert rejection.reason == "wrong-partition"
    assert controller.step(load("b1", 65), Coordinates(3)).rejection is None


def test_more_results_than_a_cluster_can_have_before_its_first_report_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MAX_EARLY_RESULTS_COUNT", 2)
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=SETTINGS)
    found = [controller.step(result(at)).rejection for at in (1, 2, 3, 1, 1000)]
    assert [each and each.reason for each in found] == [None, None, "too-many-results", None, None], (
        "a repeat is no new one, and what no round needs any more makes room"
    )


def test_an_error_of_ours_in_the_first_report_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DictStore()
    failing = Controller(CLUSTER, store, identity=Identity(), settings=SETTINGS)
    failing.step(tick(1))
    failing.step(tick(65))
    with monkeypatch.context() as patch:
        patch.setattr(state.controller, "widen", lambda *_: 1 / 0)
        rejection = failing.step(moves(65)).rejection
    assert rejection is not None
    assert rejection.reason == "internal-error"
    failing.step(load("b1", 65))
    failing.commit()
    assert decode_header(store.header() or b"").system == "pulsar"


def test_the_rounds_of_a_cluster_begin_with_its_first_report() -> None:
    header = header_after(tick(1), tick(200))
    assert (header.newest_ms, header.next_round, header.rounds) == (200_000, None, {})


def test_the_length_of_rounds_may_change_as_long_as_no_report_came() -> None:
    store = DictStore()
    before = Controller(CLUSTER, store, identity=Identity(), settings=SETTINGS)
    before.step(tick(65))
    before.commit()
    other = ClusterSettingsSource(compose({"pulsar": {"rounds": {"length_s": 30.0}}}))
    after = Controller(CLUSTER, store, identity=Identity(), settings=other)
    after.step(load("b1", 65))
    after.commit()
    assert decode_header(store.header() or b"").length_ms == 30_000
