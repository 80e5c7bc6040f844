"""Rounds of a Kafka cluster through the controller: events in, a summary and perhaps an action out."""

from collections.abc import Iterator

import numpy as np

from state.closing import Identity
from state.controller import Controller
from state.events import (
    BrokerLogs,
    Event,
    KafkaLoadReport,
    MoveRow,
    MovesReport,
    MoveTable,
    Reassignment,
    ReplicaTable,
    Tick,
)
from state.store import DictStore
from streaming.settings import ClusterSettingsSource, Settings
from tests.bench.report import Row, Section
from tests.bench.timing import best_cpu_s

_ROUND_MS = 10_000
_PARTITIONS_OF_A_TOPIC = 50
_SIZES = ((100, 1_000), (100, 10_000), (1_000, 100_000))
"""Brokers, and partitions that move."""


def measure_kafka_rounds(*, quick: bool) -> Section:
    """One round with everything known, and the size of what is remembered."""
    rows = []
    for brokers_count, count in _SIZES[: 1 if quick else None]:
        rounds = [list(_events(brokers_count, count, number)) for number in range(4)]
        store = DictStore()
        _play(store, [*rounds[0], *rounds[1]])
        seconds = best_cpu_s(
            lambda rounds=rounds, store=store: _play(_copy(store), rounds[2]), times=1 if quick else 3
        )
        rows += [
            Row(name=f"a round, {count:,} partitions on {brokers_count:,} brokers", value=seconds, unit="s"),
            Row(
                name=f"memory of it, {count:,} partitions",
                value=len(store.fleet() or b"") / 1e6,
                unit="MB",
            ),
        ]
    return Section(
        title="Kafka rounds",
        method=f"Partitions of {_PARTITIONS_OF_A_TOPIC} to a topic with three replicas, each moving to another broker; every "
        "broker reports, and the round is the third: a throttle is in force. From typed events to encoded outputs and memory, "
        "CPU time, the best of 3.",
        rows=rows,
    )


def _play(store: DictStore, events: list[Event]) -> None:
    controller = Controller(
        "kafka", store, identity=Identity(mode="act"), settings=ClusterSettingsSource(Settings())
    )
    outputs = [output for event in events for output in controller.step(event).outputs]
    controller.commit()
    assert outputs, "no round was closed: it measures nothing"


def _copy(store: DictStore) -> DictStore:
    """The same memory again, so that a round can be played many times."""
    found = DictStore()
    header, fleet = store.header(), store.fleet()
    assert header is not None
    assert fleet is not None
    found.put_header(header)
    found.put_fleet(fleet)
    for key, value in store.all_waiting():
        found.put_waiting(key, value)
    return found


def _events(brokers_count: int, count: int, number: int) -> Iterator[Event]:
    draw = np.random.default_rng(1)
    first = draw.integers(0, brokers_count, count)
    brokers = ((first[:, None] + np.array([0, 7, 19, 53])) % brokers_count).tolist()
    writes = draw.integers(0, 10**6, count).tolist()
    time_ms = number * _ROUND_MS + _ROUND_MS // 2
    names = [(f"topic-{row // _PARTITIONS_OF_A_TOPIC}", row % _PARTITIONS_OF_A_TOPIC) for row in range(count)]
    moves = [
        MoveRow(topic, partition, four, four[3:], four[:1], four[0], four[:3])
        for (topic, partition), four in zip(names, brokers, strict=True)
    ]
    yield Reassignment(id=str(number), time_ms=time_ms, report=MovesReport(MoveTable.of_rows(moves)))
    logs: list[list[tuple[str, int, int, None]]] = [[] for _ in range(brokers_count)]
    for (topic, partition), four, rate in zip(names, brokers, writes, strict=True):
        size = 10**10 + rate * number * _ROUND_MS // 1000
        for broker in four[:3]:
            logs[broker].append((topic, partition, size, None))
        logs[four[3]].append((topic, partition, number * 10**6, None))
    for broker, replicas in enumerate(logs):
        table = ReplicaTable.of(*zip(*replicas, strict=True))
        yield KafkaLoadReport(
            id=str(number), time_ms=time_ms, broker=str(broker), logs=BrokerLogs(broker, table)
        )
    yield Tick(id=str(number), time_ms=time_ms + 5_000 + _ROUND_MS // 2, asked=(), failed=())
