"""Throttling: a plan of many moving partitions, a round of pacing them, the command from file to JSON, and whole rounds."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

import msgspec
import numpy as np

from policies.throttle.batches import batches_of
from policies.throttle.checked_copies import CopyColumns, read_copies
from policies.throttle.copies import UNKNOWN, Copies
from policies.throttle.lists import lists_of
from policies.throttle.needs import needs_of
from policies.throttle.pacing import decide
from policies.throttle.pacing_round import PacingMemory, PacingSnapshot
from policies.throttle.rates import RateRule, ThrottleSettings, loads_of, per_broker_plan, uniform_plan
from state.closing import Identity
from state.controller import Controller
from state.events import (
    BrokerLogs,
    Event,
    KafkaLoadReport,
    PartitionTable,
    Reassignment,
    Tick,
)
from state.store import DictStore
from streaming.contract.kafka import Move, ReassignmentData, copies_report
from streaming.planner.throttle_plan import answer_of, make_plan
from streaming.planner.throttle_request import checked_request, read_request
from streaming.settings import ClusterSettingsSource, Settings
from tests.bench.report import Row, Section, best_cpu_s

_SMALL, _LARGE = 10_000, 100_000
_BROKERS_COUNT = 1000
_PARTITIONS_OF_A_TOPIC = 50
_BATCHES_COUNT = 10
_ROUND_MS = 10_000
_LIMIT_S = 1.0


def measure_throttles(*, quick: bool) -> Section:
    """Plan, its parts, pacing, batches, reading and writing JSON, and how the plan grows tenfold."""
    times = 1 if quick else 5
    plans = {count: best_cpu_s(partial(_plan, _columns(count)), times=times) for count in (_SMALL, _LARGE)}
    columns = _columns(_LARGE)
    copies = read_copies(columns).copies
    text = _request(columns)
    request = read_request(text)
    plan = make_plan(checked_request(request), RateRule())
    answer = msgspec.to_builtins(answer_of(plan))
    memory = _first_round(copies)
    rows = [
        Row(f"plan, {_LARGE:,} partitions", plans[_LARGE], "s", at_most=_LIMIT_S),
        Row(f"plan, {_SMALL:,} partitions", plans[_SMALL], "s"),
        Row(f"plan: {_LARGE:,} ÷ {_SMALL:,}", plans[_LARGE] / plans[_SMALL], "x"),
        Row(
            f"a round of pacing in which nothing changes, {_LARGE:,} partitions",
            best_cpu_s(lambda: _round(copies, memory), times=times),
            "s",
            at_most=_LIMIT_S,
        ),
        Row(
            f"{_BATCHES_COUNT} batches of {_LARGE:,} partitions",
            best_cpu_s(lambda: batches_of(copies, RateRule(), count=_BATCHES_COUNT), times=1),
            "s",
        ),
        Row(
            f"command: reading {len(text) / 1e6:.0f} MB of JSON",
            best_cpu_s(lambda: read_request(text), times=times),
            "s",
        ),
        Row(
            "command: planning what was read, its answer included",
            best_cpu_s(lambda: answer_of(make_plan(checked_request(request), RateRule())), times=times),
            "s",
            at_most=_LIMIT_S,
        ),
        Row("command: writing the answer as JSON", best_cpu_s(lambda: json.dumps(answer), times=times), "s"),
    ]
    return Section(
        title="Throttles",
        method=f"Partitions of {_PARTITIONS_OF_A_TOPIC} to a topic with three replicas on {_BROKERS_COUNT:,} brokers, one of them "
        "moving to another broker. A plan is lists, needs, both kinds of rates, durations and fingerprint, from Python's "
        f"own lists of numbers. CPU time of one call, the best of {times}.",
        rows=rows,
    )


def _columns(count: int) -> CopyColumns:
    draw = np.random.default_rng(1)
    # three different brokers and a fourth as destination: a random start and steps that do not meet
    first = draw.integers(0, _BROKERS_COUNT, count)
    brokers = (first[:, None] + np.array([0, 7, 19, 53])) % _BROKERS_COUNT
    return CopyColumns(
        topics=[f"topic-{row // _PARTITIONS_OF_A_TOPIC}" for row in range(count)],
        partitions=[row % _PARTITIONS_OF_A_TOPIC for row in range(count)],
        current=brokers[:, :3].tolist(),
        adding=[()] * count,
        target=brokers[:, 1:].tolist(),
        leaders=brokers[:, 0].tolist(),
        write_bytes_per_s=draw.integers(0, 10**7, count).tolist(),
        log_size_bytes=draw.integers(0, 10**11, count).tolist(),
    )


def _plan(columns: CopyColumns) -> None:
    copies = read_copies(columns).copies
    assert lists_of(copies).leader, "nothing moves: it measures too little"
    loads = loads_of(needs_of(copies))
    uniform_plan(loads, RateRule())
    per_broker_plan(loads, RateRule())
    copies.fingerprint()


def _first_round(copies: Copies) -> PacingMemory:
    decision, memory, _ = decide(
        PacingSnapshot(now_ms=_ROUND_MS, copies=copies), PacingMemory(), ThrottleSettings()
    )
    assert decision is not None
    return memory


def _round(copies: Copies, memory: PacingMemory) -> None:
    snapshot = PacingSnapshot(now_ms=2 * _ROUND_MS, copies=copies, lists=memory.added)
    decision, _, explanation = decide(snapshot, memory, ThrottleSettings())
    assert (decision, explanation.outcome) == (None, "unchanged")


def _request(columns: CopyColumns) -> bytes:
    names = {
        "topic": columns.topics,
        "partition": columns.partitions,
        "current_replicas": columns.current,
        "target_replicas": columns.target,
        "leader": columns.leaders,
        "write_bytes_per_s": columns.write_bytes_per_s,
        "log_size_bytes": columns.log_size_bytes,
    }
    rows = zip(*names.values(), strict=True)
    return json.dumps({"partitions": [dict(zip(names, row, strict=True)) for row in rows]}).encode()


_SIZES = ((100, 1_000), (100, 10_000), (1_000, 100_000))
"""Brokers, and partitions of which something is copied."""
_ROUND_LIMIT_S = 0.6


def measure_kafka_rounds(*, quick: bool) -> Section:
    """One round with everything known, and the size of what is remembered."""
    rows = []
    for brokers_count, count in _SIZES[: 1 if quick else None]:
        rounds = [list(_events(brokers_count, count, number)) for number in range(4)]
        store = DictStore()
        _play(store, [*rounds[0], *rounds[1]])
        seconds = best_cpu_s(
            lambda rounds=rounds, store=store: _play(deepcopy(store), rounds[2]), times=1 if quick else 3
        )
        limit = _ROUND_LIMIT_S if (brokers_count, count) == _SIZES[-1] else None
        rows += [
            Row(f"a round, {count:,} copies on {brokers_count:,} brokers", seconds, "s", at_most=limit),
            Row(f"memory of it, {count:,} copies", len(store.fleet() or b"") / 1e6, "MB"),
        ]
    return Section(
        title="Kafka rounds",
        method=f"Partitions of {_PARTITIONS_OF_A_TOPIC} to a topic with three replicas, of which a third moves to another broker, a "
        "third recovers on one that is back, and a third moves between the disks of its broker; every broker reports, and the round is the third: a throttle is in force. From typed events to encoded outputs and memory, "
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


def _move(topic: str, partition: int, four: list[int], row: int) -> Move:
    """A copy of each kind in turn: to the fourth broker, to the third, and on the second from disk to disk."""
    first, second, third, _ = four
    if row % 3 == 0:
        return Move(topic, partition, four, first, four[3:], [first], four[:3])
    if row % 3 == 1:
        return Move(topic, partition, four[:3], first, isr=[first, second], recovering=[third])
    return Move(topic, partition, four[:3], first, isr=four[:3], between_disks=[second])


def _events(brokers_count: int, count: int, number: int) -> Iterator[Event]:
    draw = np.random.default_rng(1)
    first = draw.integers(0, brokers_count, count)
    brokers = ((first[:, None] + np.array([0, 7, 19, 53])) % brokers_count).tolist()
    writes = draw.integers(0, 10**6, count).tolist()
    time_ms = number * _ROUND_MS + _ROUND_MS // 2
    names = [(f"topic-{row // _PARTITIONS_OF_A_TOPIC}", row % _PARTITIONS_OF_A_TOPIC) for row in range(count)]
    copies = [_move(*name, four, row) for row, (name, four) in enumerate(zip(names, brokers, strict=True))]
    data = ReassignmentData(copies, live_brokers=list(range(brokers_count)))
    yield Reassignment(id=str(number), time_ms=time_ms, report=copies_report(data))
    logs: list[list[tuple[str, int, int, int, int, int]]] = [[] for _ in range(brokers_count)]
    for (topic, partition), four, rate in zip(names, brokers, writes, strict=True):
        size = 10**10 + rate * number * _ROUND_MS // 1000
        for place, broker in enumerate(four[:3]):
            missing = 10**9 if place else UNKNOWN
            logs[broker].append((topic, partition, size, UNKNOWN, missing, missing))
        logs[four[3]].append((topic, partition, number * 10**6, UNKNOWN, UNKNOWN, UNKNOWN))
    for broker, replicas in enumerate(logs):
        table = PartitionTable.of_rows(*zip(*replicas, strict=True))
        yield KafkaLoadReport(
            id=str(number), time_ms=time_ms, broker=str(broker), logs=BrokerLogs(broker, table)
        )
    yield Tick(id=str(number), time_ms=time_ms + 5_000 + _ROUND_MS // 2, asked=(), failed=())
