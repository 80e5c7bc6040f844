"""What decisions may have left on a Kafka cluster is remembered only while it may be there."""

from state.closing import Identity
from state.controller import Controller
from state.events import BrokerLogs, Event, KafkaLoadReport, MoveRow, Reassignment
from state.kafka.memory import KafkaMemory, decode_kafka
from state.store import DictStore
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.kafka.reporting import Replica, moves_report, replica_table
from tests.state.traces import CLUSTER, ROUNDS

SETTINGS = ClusterSettingsSource(
    compose(
        {
            "kafka": {"rounds": ROUNDS | {"warmup_rounds": 1}, "throttle": {"floor_bytes_per_s": 1}},
            "pulsar": {"rounds": ROUNDS},
        }
    )
)
MOVES_COUNT = 5
ROUNDS_COUNT_MAX = 1000


def moving(topic: str, number: int) -> list[Event]:
    """A round in which a partition moves from brokers 1 and 2 to 3."""
    time_ms = 10_000 * number + 5000
    row = MoveRow(topic, 0, (1, 2, 3), (3,), (1,), 1, (1, 2))
    events: list[Event] = [Reassignment(id=f"m{number}", time_ms=time_ms, report=moves_report(row))]
    for broker in (1, 2, 3):
        size = 1000 * (number + 1000) if broker < 3 else 10
        logs = BrokerLogs(broker, replica_table(Replica(topic, 0, size, size)))
        events.append(KafkaLoadReport(id=f"l{number}", time_ms=time_ms, broker=str(broker), logs=logs))
    return events


def test_without_an_executor_what_was_attempted_does_not_grow_with_the_moves() -> None:
    """Each topic moves until a decision about it has expired, and then the next topic moves."""
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=SETTINGS)
    moves_count = 0
    for number in range(ROUNDS_COUNT_MAX):
        for event in moving(f"t{moves_count}", number):
            controller.step(event)
        controller.commit()
        stored = store.fleet()
        memory = KafkaMemory() if stored is None else decode_kafka(stored)
        if memory.failures_count > moves_count:
            assert memory.asked is None, "a decision has expired"
            assert memory.attempted.is_empty
            moves_count += 1
        if moves_count == MOVES_COUNT:
            break
    assert moves_count == MOVES_COUNT, "decisions expired"
