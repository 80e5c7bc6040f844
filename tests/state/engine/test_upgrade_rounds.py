"""Rounds that trimtab 0.1.0 left open are closed by today's trimtab with all that waits in them."""

import pytest

from state.controller import Controller
from state.engine.closing import Identity
from state.engine.encoding import decode_header
from state.engine.memory import Sender, Waiters
from state.engine.store import DictStore, StoredKey, WaitingKey
from state.engine.upgrade_rounds import with_senders
from state.events import KafkaLoadReport
from state.kafka_reports import BrokerLogs
from state.systems import decode_waiting
from tests.state.golden_state import recorded
from tests.state.kafka.reporting import Replica, replica_table
from tests.state.traces import CLUSTER, settings_of

RELEASED = recorded.FOLDER / "v0.1.0"
SETTINGS = settings_of(rounds={"length_s": 60.0})
ROUND = 6


def value_of(name: str) -> bytes:
    return (RELEASED / f"{name}.bin").read_bytes()


@pytest.fixture
def store() -> DictStore:
    """A Kafka cluster's memory in version 2: a round is open, and has the logs of broker 1 and the cluster's moves."""
    found = DictStore()
    found.put_header(value_of("header-kafka"))
    found.put_waiting(StoredKey(ROUND, "logs", "1"), value_of("waiting-logs"))
    found.put_waiting(StoredKey(ROUND, "moves", ""), value_of("waiting-moves"))
    return found


def logs(broker: int, time_ms: int, id_: str) -> KafkaLoadReport:
    report = BrokerLogs(broker, replica_table(Replica("t", 0, 1)))
    return KafkaLoadReport(id=id_, time_ms=time_ms, broker=str(broker), logs=report)


def begun(store: DictStore) -> Controller:
    return Controller(CLUSTER, store, identity=Identity(), settings=SETTINGS)


def test_a_header_counts_the_stored_values_and_names_no_senders_yet():
    with_waiters = [[[60_001, 69_999]], None, [], {"logs": [3, 40], "moves": [1, 1]}, None]
    header = [10_000, 70_000, 6, 0, True, {6: with_waiters, 7: [[], None, [], {}, None]}, 5]
    after = with_senders(header)
    assert after[5] == {6: [[[60_001, 69_999]], None, [], {}, None, 4], 7: [[], None, [], {}, None, 0]}
    assert [*after[:5], *after[6:]] == [*header[:5], *header[6:]]


def test_who_waits_is_found_in_the_store(store: DictStore):
    waiting = begun(store)._header.rounds[ROUND]
    stored = decode_waiting(WaitingKey(ROUND, "logs", "1"), value_of("waiting-logs"))
    assert waiting.waiters["logs"] == Waiters(2, {"1": Sender(*stored.age_key, 2)})
    assert sorted(waiting.waiters) == ["logs", "moves"]
    assert waiting.stored_count == 2


def test_a_newer_report_takes_the_place_of_the_stored_one_of_its_broker(store: DictStore):
    controller = begun(store)
    controller.step(logs(1, 60_001, "newer"))
    controller.step(logs(2, 60_002, "other"))
    controller.commit()
    senders = decode_header(store.header() or b"").rounds[ROUND].waiters["logs"].senders
    assert senders == {"1": Sender(60_001, "newer", 1), "2": Sender(60_002, "other", 1)}


def test_what_was_stored_is_taken_when_the_round_closes_and_leaves_the_store(store: DictStore):
    controller = begun(store)
    controller.step(logs(2, 60_002, "other"))
    controller.commit()
    assert sorted(key.kind for key, _ in store.all_waiting()) == ["batch", "logs", "moves"]
    later = begun(store)
    outputs = later.close_open()
    later.commit()
    assert [each.kind for each in outputs][-1] == "round"
    assert b'"1"' in outputs[-1].data
    assert list(store.all_waiting()) == []
    assert sum(later.take_results().values()) == 3, "two logs and the moves"
