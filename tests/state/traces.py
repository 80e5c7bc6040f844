"""Traces of one cluster: events built by hand or by Hypothesis, and ways to run them that must not matter.

Times are seconds; rounds of the drawn traces last 10 s with a lateness of 5 s and a report age of 25 s.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from policies.splitting.ranges import Bundle, position_of
from state.closing import Identity
from state.controller import Controller
from state.events import (
    ActionResult,
    BrokerLogs,
    BrokerReport,
    ClusterFacts,
    Control,
    Coordinates,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    Tick,
    TopicStats,
    TopicTraffic,
)
from state.facts import Facts, Isolation
from state.outputs import Output
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.settings import SettingsSource
from state.store import DictStore, Store, StoredKey
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table

CLUSTER = "east-1"
LATENESS_S = 5
ROUNDS = {"length_s": 10.0, "lateness_s": float(LATENESS_S), "max_report_age_s": 25.0}


def _names_of(bundle: str) -> list[str]:
    return [f"persistent://{bundle.rpartition('/')[0]}/topic-{number}" for number in range(60)]


BROKERS = ["b1", "b2", "b3", "b4"]
BUNDLES = [f"t/{namespace}/0x{i}0000000_0x{i + 1}0000000" for namespace in ("a", "b") for i in range(4)]
TOPICS = {
    bundle: [name for name in _names_of(bundle) if Bundle.parse(bundle).range.contains(position_of(name))]
    for bundle in BUNDLES
}
"""Topics that hash into each bundle, a few each."""


def statistics(
    broker: str, time_s: float, bundles: Mapping[str, Mapping[str, float]], *, id_: str | None = None
) -> TopicStats:
    """Topic statistics: messages/s of each topic by bundle (bytes/s are ten times that)."""
    rates = np.array([rate for topics in bundles.values() for rate in topics.values()], dtype=np.float64)
    return TopicStats(
        id=id_ or f"{broker}/stats/{time_s:g}",
        time_ms=round(time_s * 1000),
        broker=broker,
        traffic=TopicTraffic(
            bundles=list(bundles),
            counts=np.array([len(topics) for topics in bundles.values()], dtype=np.int64),
            topics=[name for topics in bundles.values() for name in topics],
            messages_per_s=rates,
            bytes_per_s=10 * rates,
            sessions=np.zeros(len(rates), dtype=np.int64),
        ),
    )


def settings_of(**pulsar: Any) -> SettingsSource:
    """Settings as ``[pulsar]`` of a file would give them; the rounds of the traces are the defaults."""
    rounds = ROUNDS | pulsar.get("rounds", {})
    return ClusterSettingsSource(compose({"pulsar": pulsar | {"rounds": rounds}}))


def load(
    broker: str,
    time_s: float,
    *,
    cpu: float = 0.0,
    bundles: Mapping[str, float | None] | None = None,
    id_: str | None = None,
    rate: float | None = None,
    topics_count: int = 0,
    system_bundles: Sequence[str] = (),
    unlisted: float = 0.0,
) -> LoadReport:
    """A load report: CPU in percent, and messages/s of each bundle (bytes/s are ten times that; None: no statistics)."""
    listed = dict(sorted((bundles or {}).items()))
    traffic = np.array([[value or 0.0, 0.0, 10 * (value or 0.0), 0.0] for value in listed.values()])
    total = math.fsum(value or 0.0 for value in listed.values()) if rate is None else rate
    return LoadReport(
        id=id_ or f"{broker}/{time_s:g}",
        time_ms=round(time_s * 1000),
        broker=broker,
        report=BrokerReport(
            resources=np.array([[cpu, 100.0], [-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0]]),
            messages_per_s=total,
            bytes_per_s=10 * total,
            listed_count=len(listed),
            bundles=list(listed),
            traffic=traffic.reshape(-1, 4),
            has_traffic=np.array([value is not None for value in listed.values()], dtype=np.bool_),
            counts=np.full((len(listed), 2), topics_count, dtype=np.int64),
            system_bundles=system_bundles,
            unlisted_messages_per_s=unlisted,
        ),
    )


def sweep(time_s: float, id_: str = "tick") -> Tick:
    return Tick(
        id=f"{id_}/{time_s:g}", time_ms=round(time_s * 1000), asked=("b1", "b2"), failed=(("b2", "late"),)
    )


def overlay(
    time_s: float,
    *,
    paused: bool = False,
    mode: Any = None,
    settings: dict[str, object] | None = None,
    resumed_s: float | None = None,
    **maintenance: Any,
) -> Control:
    """A control event of ann; ``maintenance`` are the fields of what is under maintenance or drained."""
    return Control(
        id=f"control/{time_s:g}/{paused}/{mode}",
        time_ms=round(time_s * 1000),
        data=ControlData(
            paused=paused,
            mode=mode,
            settings=settings or {},
            who="ann",
            why="a test",
            resumed_at=None if resumed_s is None else moment_at(round(resumed_s * 1000)),
            **maintenance,
        ),
    )


ISOLATED = [Isolation("a", ["t/a"], ["b[12]"])]
"""Brokers b1 and b2 for namespace t/a; b3 and b4 and t/b are the default group."""


def facts(
    time_s: float,
    *,
    shedding: Sequence[str] = (),
    splitting: Sequence[str] = (),
    isolation: Sequence[Isolation] = (),
    anti_affinity: Mapping[str, list[str]] | None = None,
    restricted: Sequence[str] = (),
    trimtab_topics: Mapping[str, tuple[float, float]] | None = None,
    failure_domains: Mapping[str, list[str]] | None = None,
    id_: str = "facts",
) -> ClusterFacts:
    """What a cluster is besides its load."""
    return ClusterFacts(
        id=id_,
        time_ms=round(time_s * 1000),
        facts=Facts(
            list(shedding),
            list(splitting),
            [],
            list(isolation),
            dict(anti_affinity or {}),
            list(restricted),
            dict(trimtab_topics or {}),
            dict(failure_domains or {}),
        ),
    )


class BackwardStore(DictStore):
    """Another store: hands out copies, and the waiting reports in another order."""

    def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
        yield from sorted(
            ((key, bytes(bytearray(value))) for key, value in super().all_waiting()), reverse=True
        )

    def fleet(self) -> bytes | None:
        value = super().fleet()
        return None if value is None else bytes(bytearray(value))


@dataclass
class Run:
    """What became of a trace."""

    outputs: list[Output] = field(default_factory=list)
    results: Counter[tuple[type[Event], str]] = field(default_factory=Counter)
    rejections: list[Rejection] = field(default_factory=list)

    @property
    def written(self) -> list[tuple[str, str, int, bytes]]:
        return [(each.id, each.subject, each.place, each.data) for each in self.outputs]

    @property
    def actions(self) -> list[dict[str, Any]]:
        return [json.loads(each.data) for each in self.outputs if each.kind == "action"]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [json.loads(each.data) for each in self.outputs if each.kind == "round"]


def run(
    batches: Iterable[Sequence[Event | tuple[Event, Coordinates]]],
    settings: SettingsSource,
    *,
    identity: Identity | None = None,
    store: Store | None = None,
    is_closed: bool = True,
) -> Run:
    """Run each batch with a new controller on what the one before it committed; at the end the open rounds close."""
    held = DictStore() if store is None else store
    found = Run()
    for batch in [*batches, None]:
        controller = Controller(CLUSTER, held, identity=identity or Identity(mode="act"), settings=settings)
        for event in batch or ():
            step = controller.step(*event) if isinstance(event, tuple) else controller.step(event)
            found.outputs += step.outputs
            found.rejections += [] if step.rejection is None else [step.rejection]
        if batch is None and is_closed:
            found.outputs += controller.close_open()
        controller.commit()
        found.results += controller.take_results()
    return found


def random_report(random: Random) -> LoadReport:
    """A load report at any time of a trace."""
    return load(
        random.choice(BROKERS),
        random.randrange(180) / 2,
        cpu=random.choice([0.0, 20.0, 30.0, 50.0, 80.0, 90.0, 100.0]),
        bundles={
            name: random.choice([None, 0.0, 1.0, 5.0, 20.0, 30.0, 100.0])
            for name in random.sample(BUNDLES, random.randrange(5))
        },
        id_=random.choice([None, "x", "y"]),
        rate=random.choice([None, 0.0, 50.0, 200.0]),
        topics_count=random.choice([0, 1, 5, 50]),
    )


_OVERLAYS = [
    {},
    {"pulsar": {"shedding_policy": "threshold-shedder"}},
    {"pulsar": {"guards": {"bundle_cooldown_s": 0}}},
]


def _random_maintenance(random: Random, time_s: float) -> dict[str, dict[str, MaintenanceWindow]]:
    if random.random() < 0.85:
        return {}
    first, second = random.sample(BROKERS, 2)
    window = MaintenanceWindow(since=moment_at(round(time_s * 1000)), who="ann", why="a test")
    ends = msgspec.structs.replace(window, until=window.since + timedelta(seconds=40))
    return {
        "maintenance_brokers": random.choice([{}, {first: ends}]),
        "maintenance_namespaces": random.choice([{}, {"t/a": ends}]),
        "drained_brokers": random.choice([{}, {second: window}]),
    }


def _random_other(random: Random) -> Event:
    time_s = random.randrange(180) / 2
    kind = random.randrange(4)
    if kind == 0:
        return sweep(time_s, random.choice(["p", "q"]))
    if kind == 1:
        return statistics(
            random.choice(BROKERS),
            time_s,
            {
                bundle: {
                    name: random.choice([0.0, 1.0, 5.0, 30.0]) for name in random.sample(TOPICS[bundle], 2)
                }
                for bundle in random.sample(BUNDLES, random.randrange(8))
            },
            id_=random.choice(["x", "y"]),
        )
    if kind == 2:
        return facts(
            time_s,
            shedding=random.choice([[], [], [], ["b1"]]),
            splitting=random.choice([[], [], [], ["b4"]]),
            restricted=["b2"] if time_s % 2 == 0 else [],
            trimtab_topics={BUNDLES[0]: (20.0, 200.0)},
            isolation=random.choice([[], ISOLATED, [Isolation("b", ["t/b"], ["b[14]"]), *ISOLATED]]),
            anti_affinity={"spread": ["t/a", "t/b"]},
            id_=random.choice(["p", "q"]),
        )
    return overlay(
        time_s,
        paused=random.random() < 0.3,
        mode=random.choice([None, "dry-run", "act"]),
        settings=random.choice(_OVERLAYS),
        resumed_s=random.choice([None, time_s]),
        **_random_maintenance(random, time_s),
    )


def random_trace(random: Random, *, is_plain: bool = False) -> list[Event]:
    """Events in the order of their times, no two with the same time and id; ``is_plain``: load reports only."""
    drawn = [
        random_report(random) if is_plain or random.random() < 0.85 else _random_other(random)
        for _ in range(random.randint(5, 80))
    ]
    unique = {(type(event), event.age_key, getattr(event, "broker", "")): event for event in drawn}
    return sorted(unique.values(), key=lambda event: event.age_key)


seeds = st.integers(0, 2**32 - 1)
"""Hypothesis chooses seeds, not single values: a trace has hundreds of those, and a seed is enough to repeat one."""

traces = seeds.map(lambda seed: random_trace(Random(seed)))  # noqa: S311  tests, not secrets
plain_traces = seeds.map(lambda seed: random_trace(Random(seed), is_plain=True))  # noqa: S311
some_reports = seeds.map(lambda seed: [random_report(random) for random in [Random(seed)] for _ in range(12)])  # noqa: S311


def with_results(trace: list[Event], settings: SettingsSource, outcomes: Sequence[str]) -> list[Event]:
    """The trace with what became of its first actions, three seconds after they were decided."""
    decided = [each for each in run([trace], settings).outputs if each.kind == "action"]
    ends = [
        ActionResult(id=f"r{i}", time_ms=action.time_ms + 3000, action_id=action.id, outcome=outcome)  # type: ignore[arg-type]
        for i, (action, outcome) in enumerate(zip(decided, outcomes, strict=False))
    ]
    return sorted([*trace, *ends], key=lambda event: event.age_key)


def arrivals(trace: list[Event], seed: int) -> list[list[Event]]:
    """The trace as it may arrive: disordered within the lateness, with repeats at any time, cut into batches."""
    random = Random(seed)  # noqa: S311
    late = [(event.time_ms + random.randint(0, LATENESS_S * 1000), i, event) for i, event in enumerate(trace)]
    repeats = [
        (time_ms + random.randint(0, 40_000), len(trace) + i, msgspec.structs.replace(event))
        for i, (time_ms, _, event) in enumerate(late)
        if random.random() < 0.3
    ]
    ordered = [event for _, _, event in sorted([*late, *repeats], key=lambda each: each[:2])]
    cuts = sorted(random.sample(range(len(ordered) + 1), random.randint(0, min(8, len(ordered)))))
    return [ordered[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(ordered)], strict=True)]


def assert_arrival_changes_nothing(trace: list[Event], settings: SettingsSource, seed: int) -> None:
    """However the trace arrives, and in whatever order the store lists what it holds, the same is written."""
    expected = run([trace], settings).written
    arrived = arrivals(trace, seed)
    for store in (DictStore(), BackwardStore()):
        assert run(arrived, settings, store=store).written == expected


KAFKA = ClusterSettingsSource(
    compose(
        {
            "kafka": {"rounds": ROUNDS | {"warmup_rounds": 1}, "throttle": {"floor_bytes_per_s": 1}},
            "pulsar": {"rounds": ROUNDS},
        }
    )
)


def kafka_round(number: int, *topics: str) -> Iterator[Event]:
    """A round in which a partition of each topic moves from brokers 1 and 2 to 3, and its log grows."""
    time_ms = 10_000 * number + 5000
    rows = [MoveRow(topic, 0, (1, 2, 3), (3,), (1,), 1, (1, 2)) for topic in topics]
    yield Reassignment(id=f"m{number}", time_ms=time_ms, report=copies_report(*rows))
    for broker in (1, 2, 3):
        size = 1000 * (number + 1000) if broker < 3 else 10 * number
        logs = BrokerLogs(broker, replica_table(*(Replica(topic, 0, size, size) for topic in topics)))
        yield KafkaLoadReport(id=f"l{number}", time_ms=time_ms, broker=str(broker), logs=logs)


def kafka_trace(rounds_count: int) -> list[Event]:
    """Rounds in which one partition moves."""
    return [event for number in range(rounds_count) for event in kafka_round(number, "t")]


def failing_in(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, when: Callable[[int], bool]
) -> list[int]:
    """Let some calls of a function do their work and then fail; ``when`` chooses them by their number."""
    calls: list[int] = []
    real = getattr(module, name)

    def failing(*args: Any, **options: Any) -> Any:
        calls.append(len(calls))
        found = real(*args, **options)
        if when(calls[-1]):
            raise Fault
        return found

    monkeypatch.setattr(module, name, failing)
    return calls


def tick(time_s: float, id_: str = "t") -> Tick:
    return Tick(id=id_, time_ms=round(1000 * time_s), asked=("1",), failed=())


def result(time_s: float, action_id: str = "a", **fields: Any) -> ActionResult:
    return ActionResult(
        id=f"r{time_s:g}", time_ms=round(1000 * time_s), action_id=action_id, outcome="failed", **fields
    )


def pause(time_s: float, id_: str = "") -> Control:
    return Control(
        id=id_ or f"c{time_s:g}",
        time_ms=round(1000 * time_s),
        data=ControlData(paused=True, who="ann", why="why"),
    )


FIRING = {"avg_shedder": {"high_hit_count": 1, "low_hit_count": 1, "min_unload_messages_per_s": 0}}


EAGER: dict[str, Any] = {
    "avg_shedder": {
        "low_hit_count": 2,
        "high_hit_count": 1,
        "min_unload_messages_per_s": 1.0,
        "min_unload_bytes_per_s": 1.0,
    },
    "threshold_shedder": {"min_unload_bytes_per_s": 1.0, "lower_boundary_shedding": True},
    "uniform_load_shedder": {"min_unload_messages_per_s": 1.0, "min_unload_bytes_per_s": 1.0},
    "overload_shedder": {"threshold_points": 60.0},
    "bundle_average_samples": 3,
    "split": {
        "enabled": True,
        "max_messages_per_s": 40.0,
        "max_topics_count": 40,
        "hit_count": 1,
        "bundle_cooldown_s": 40,
        "average_samples": 2,
        "without_topic_stats": "range",
        "hot_partition_bytes_per_s": 200.0,
    },
}
"""Settings under which small numbers already move bundles, so that there is something to look at."""


PULSARS_POLICIES = ["avg-shedder", "threshold-shedder", "uniform-load-shedder", "overload-shedder"]
"""They look only at a round's reports, not at what is in flight."""


HOT, COLD = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
HOT_TOPICS = [
    name
    for name in (f"persistent://t/n/topic-{number}" for number in range(60))
    if position_of(name) < 0x80000000
][:4]
EVEN = dict.fromkeys(HOT_TOPICS, (50.0, 500.0))
"""Topics of the hot bundle, with messages and bytes a second of each."""


def split_settings(**split: Any) -> SettingsSource:
    limits = {"max_messages_per_s": 100.0, "max_bytes_per_s": 1e9, "max_topics_count": 1000}
    found = {"enabled": True, "hit_count": 0, "average_samples": 1} | limits | split
    return settings_of(
        rounds={"warmup_rounds": 0},
        bundle_average_samples=1,
        split=found,
        avg_shedder={"low_threshold_points": 99.0, "high_threshold_points": 99.0},
    )


def topic_stats(time_s: float, rates: Mapping[str, tuple[float, float]]) -> TopicStats:
    """Messages and bytes a second of each topic of the hot bundle."""
    return TopicStats(
        id=f"stats/{time_s:g}",
        time_ms=round(1000 * time_s),
        broker="b1",
        traffic=TopicTraffic(
            bundles=[HOT],
            counts=np.array([len(rates)]),
            topics=list(rates),
            messages_per_s=np.array([messages for messages, _ in rates.values()]),
            bytes_per_s=np.array([volume for _, volume in rates.values()]),
            sessions=np.zeros(len(rates), dtype=np.int64),
        ),
    )


class Fault(Exception):
    """Stands for any error."""
