"""After a rebuild a throttle is known again, whatever part of its reassignment is read again, and it comes off in the end."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from state.controller import Controller
from state.engine.closing import Identity
from state.engine.encoding import decode_header
from state.engine.published import Published
from state.engine.store import DictStore
from state.events import Event, KafkaLoadReport, Reassignment
from state.kafka.memory import decode_kafka
from state.kafka.reconcile import our_configs
from state.kafka_reports import BrokerLogs, MoveRow
from state.outputs import Output
from state.settings import SettingsSource
from tests.state.kafka.reporting import Replica, moves_report, replica_table
from tests.state.kafka.test_kafka_invariants import (
    CHECKED,
    settings_of,
    some_outcomes,
    some_settings,
    traces,
)
from tests.state.traces import CLUSTER, run, with_results

ACT = Identity(mode="act")
SETTINGS = settings_of()
MOVE = MoveRow("t", 0, (1, 2, 3), (3,), (2,), 1, (1, 2))


def rebuilt(events: Sequence[Event], actions: Sequence[Output], settings: SettingsSource) -> DictStore:
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=ACT, settings=settings, published=Published(actions))
    for event in events:
        controller.step(event)
    controller.end_rebuild(0, ())
    controller.commit()
    return store


def round_of(number: int, *moves: MoveRow) -> list[Event]:
    """Reports of a round of ten seconds."""
    at_ms = 10_000 * number + 1
    logs = [
        KafkaLoadReport(
            id=f"{broker}/{number}",
            time_ms=at_ms,
            broker=str(broker),
            logs=BrokerLogs(broker, replica_table(Replica("t", 0, 1000 * number, 5)), None, None),
        )
        for broker in (1, 2)
    ]
    return [*logs, Reassignment(id=f"moves/{number}", time_ms=at_ms, report=moves_report(*moves))]


def of_rounds(numbers: Sequence[int], *moves: MoveRow) -> list[Event]:
    return [event for number in numbers for event in round_of(number, *moves)]


@CHECKED
@given(traces, some_settings, some_outcomes, st.integers(0, 100))
def test_wherever_a_stream_is_cut_the_decisions_after_a_rebuild_of_all_of_it_are_those_without(
    trace: list[Event], settings: SettingsSource, outcomes: list[str], cut_percent: int
) -> None:
    events = with_results(trace, settings, outcomes)
    cut = len(events) * cut_percent // 100
    before = run([events[:cut]], settings, is_closed=False)
    whole = run([events], settings)
    actions = [each for each in before.outputs if each.kind == "action"]
    after = run([events[cut:]], settings, store=rebuilt(events[:cut], actions, settings))
    assert after.actions == whole.actions[len(actions) :]
    assert len(after.summaries) == len(whole.summaries) - len(before.summaries)


def test_a_throttle_from_before_what_is_read_again_is_taken_off_when_the_move_is_over() -> None:
    begun = run([of_rounds(range(4), MOVE)], SETTINGS, is_closed=False)
    actions = [each for each in begun.outputs if each.kind == "action"]
    (throttle,) = begun.actions
    for first in (3, 6):
        store = rebuilt(of_rounds(range(first, 6), MOVE), actions, SETTINGS)
        found = store.fleet()
        assert found is not None
        assert decode_header(store.header() or b"").is_known, (
            "it may have our throttle, whether or not it reported"
        )
        assert our_configs(decode_kafka(found)).lists.leader == throttle["add_leader_throttled_replicas"]
        after = run([of_rounds(range(6, 12))], SETTINGS, store=store)
        assert [each["trigger"] for each in after.actions][-1:] == ["finished"]
        removed = json.loads(json.dumps(after.actions[-1]))
        assert removed["remove_leader_throttled_replicas"] == throttle["add_leader_throttled_replicas"]
        assert "rebuilt" in after.summaries[0]
