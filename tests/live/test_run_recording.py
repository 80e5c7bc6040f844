"""The live application and `trimtab replay` decide alike, byte for byte, however the input is cut, mixed, spread, long or large."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import pytest
from kafka import KafkaProducer

from tests.support.loads import (
    RECORDED_LATENESS_S,
    RECORDED_SETTINGS,
    closing,
    leaning,
    played,
    recorded_control,
    recording,
    renamed,
    shuffled,
    time_of,
)
from tests.support.processes import Member, Warm, cold, meanwhile, members, samples, until
from tests.support.stage import QUICK, RECORD_BYTES, Stage, newest_start, replayed

pytestmark = pytest.mark.live


CLUSTERS = ("lab", "lab-b", "lab-c")
SPLITTING_SETTINGS = f"""{RECORDED_SETTINGS}
[pulsar.split]
enabled = true
hit_count = 1
max_messages_per_s = 300
"""
"""The recorded cluster carries little: with this limit its heaviest bundle is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way for the same events to reach the operator."""

    input_partitions: int = 1
    shuffle_partitions: int = 2
    records_per_trigger: int = 2000
    seed: int | None = None
    has_control: bool = False


def fleet_events(seed: int | None) -> list[bytes]:
    """The recording as that of three clusters, their events interleaved."""
    events = [value for cluster in CLUSTERS for value in renamed(recording(), cluster)]
    if seed is None:
        return sorted(events, key=time_of)
    return shuffled(events, within_s=RECORDED_LATENESS_S * 0.99, seed=seed)


def control_events() -> list[bytes]:
    """One cluster is paused for a while and goes on with another setting; another one is paused again and again.

    So many that they would come too late if they shared the limit of a batch with the reports.
    """
    first_s = time_of(recording()[0])
    often = [
        value
        for turn in range(15)
        for value in recorded_control("lab-c", paused_s=4 * turn, resumed_s=4 * turn + 2, first_s=first_s)
    ]
    return [*often, *recorded_control("lab-b", paused_s=100, resumed_s=200, first_s=first_s)]


def check_equal(variant: Variant, stage: Stage, warm: Warm) -> None:
    """Run a variant live and compare with the plain replay."""
    config = stage.settings(
        base=SPLITTING_SETTINGS,
        spark__shuffle_partitions=variant.shuffle_partitions,
        spark__max_records_per_trigger_count=variant.records_per_trigger,
    )
    control = control_events() if variant.has_control else []
    wanted = replayed(config, [*control, *fleet_events(None)])
    if variant.input_partitions > 1:
        stage.repartition(variant.input_partitions)
    stage.send(control, to=stage.topics.control)
    stage.send(fleet_events(variant.seed))
    with warm.run(config) as run:
        stage.wait_for_outputs(wanted, running=[run])
    assert wanted.actions_count > 20
    assert all(
        any(b"trimtab.action.split.v1" in action for action in actions) for actions in wanted.actions.values()
    )
    assert stage.published() == wanted
    assert stage.rejected() == []


def test_the_recording_is_decided_as_in_replay_however_it_arrives(stage: Stage, warm: Warm):
    variant = Variant(
        input_partitions=3, shuffle_partitions=3, records_per_trigger=200, seed=1, has_control=True
    )
    check_equal(variant, stage, warm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        Variant(),
        Variant(has_control=True),
        Variant(input_partitions=4),
        Variant(shuffle_partitions=1),
        Variant(shuffle_partitions=5),
        Variant(records_per_trigger=17, has_control=True),
        Variant(seed=2),
        Variant(seed=3, input_partitions=2, records_per_trigger=50, has_control=True),
    ],
    ids=str,
)
def test_each_way_for_the_recording_to_arrive_is_decided_alike(variant: Variant, stage: Stage, warm: Warm):
    check_equal(variant, stage, warm)


BATCHES_COUNT = 2000
WARM_COUNT = 700
"""Batches until caches are full and compiled code is settled."""
GROWTH_RATIO = 1.10
GROWTH_BYTES = 48 * 1024 * 1024
"""What the measuring itself varies by; a leak of 120 KB a batch would show even in the biggest process."""
SOAK_S = 3000.0
PLANNED_KEPT_COUNT = 40
"""Batches whose plans are kept: Spark is told to keep 30, and drops the others a few at a time."""
STATE_KEPT_S = 600.0
"""Age up to which the state's files may be kept; Spark drops them once a minute, and keeps what led to the last few snapshots."""

FIXED_HEAP = """
[spark.extra]
"spark.driver.extraJavaOptions" = "-Xms512m -XX:+AlwaysPreTouch"
"""
"""The heap counts in full from the start, so that only what grows beside it shows."""


def resident_by_name(session: int) -> Counter[str]:
    """Resident memory: the driver, its JVM, and all Python workers together."""
    found: Counter[str] = Counter()
    for process in members(session):
        name = "java" if process.name == "java" else "driver" if process.pid == session else "workers"
        found[name] += process.resident_bytes
    return found


def batches_done(url: str) -> float:
    """Batches since the start."""
    return samples(url).get(("trimtab_batch_duration_seconds_count", frozenset()), 0.0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_and_checkpoint_are_flat_over_two_thousand_batches(stage: Stage):
    config = stage.settings(
        base=QUICK + FIXED_HEAP,
        spark__max_records_per_trigger_count=1,
        spark__trigger_interval_s=0.01,
        spark__driver_memory="512m",
    )
    events = played(range(BATCHES_COUNT // 3 + 1))
    wanted = replayed(config, events)
    stage.send(events)
    with cold(config, stage.directory / "run.log") as run:
        url = run.url

        def reached(count: int) -> None:
            until(lambda: batches_done(url) >= count, what=f"batch {count}", running=[run], timeout_s=SOAK_S)

        reached(WARM_COUNT)
        before = resident_by_name(run.process.pid)
        reached(BATCHES_COUNT)
        after, kept = resident_by_name(run.process.pid), list(stage.checkpoint.rglob("[!.]*"))
        oldest_s = time.time() - min(path.stat().st_mtime for path in kept if path.suffix == ".changelog")
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert stage.published() == wanted
    assert set(before) == {"driver", "java", "workers"}
    for name, size in after.items():
        assert size <= before[name] * GROWTH_RATIO + GROWTH_BYTES, (name, before, after)
    planned_count = sum(path.parent.name == "offsets" for path in kept)
    assert (0 < planned_count <= PLANNED_KEPT_COUNT, oldest_s < STATE_KEPT_S) == (True, True), (
        planned_count,
        oldest_s,
    )


REPORTS_COUNT = 40
"""Number of real reports, padded; the other records are no JSON."""
MEMORY_BYTES = 2 * 1024**3
PATIENCE_S = 5000.0
_BLOCK = os.urandom(6 * 1024).hex().encode() + b"0" * (52 * 1024)
"""Packs to a tenth, as load reports do."""
FILLINGS = {
    "that pack like reports": (2_000, _BLOCK * (RECORD_BYTES // len(_BLOCK) + 1)),
    "of which a fetch holds many": (120, b"0" * RECORD_BYTES),
}
"""Number of records, and what they are filled with."""


def padded(event: bytes, filling: bytes) -> bytes:
    """The same event, as large as a record may be."""
    room = RECORD_BYTES - len(event) - len(',"pad":""')
    return event[:-1] + b',"pad":"' + filling[:room] + b'"}'


@contextmanager
def large_producer(stage: Stage) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(
        bootstrap_servers=stage.bootstrap, max_request_size=2 * RECORD_BYTES, compression_type="lz4"
    )
    try:
        yield producer
    finally:
        producer.close(timeout=30)


def resident_bytes(processes: list[Member]) -> int:
    """Resident memory of all processes; what they share counts for each."""
    return sum(process.resident_bytes for process in processes)


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(("records_count", "filling"), FILLINGS.values(), ids=FILLINGS)
def test_records_of_32_mib_pass_in_one_batch_with_2_gib(stage: Stage, records_count: int, filling: bytes):
    config = stage.settings(
        spark__max_records_per_trigger_count=records_count + 1000, spark__driver_memory="640m"
    )
    events = [value for number in range(REPORTS_COUNT // 3 + 1) for value in leaning(number)][:REPORTS_COUNT]
    end = closing(REPORTS_COUNT // 3)
    wanted = replayed(config, [*events, end])
    assert wanted.actions_count > 0
    rejected_count = records_count - len(events)
    every = records_count // len(events)
    with large_producer(stage) as producer:
        for place in range(records_count):
            is_report = place % every == 0 and place // every < len(events)
            value = (
                padded(events[place // every], filling) if is_report else b"[" + filling[: RECORD_BYTES - 1]
            )
            assert len(value) == RECORD_BYTES
            producer.send(stage.topics.input, key=b"east-1", value=value).get(timeout=60)
    stage.send([end])
    peak: list[Member] = []
    log = stage.directory / "run.log"
    with cold(config, log) as run:

        def watch(stop: Event) -> None:
            nonlocal peak
            while not stop.wait(0.5):
                peak = max(peak, members(run.process.pid), key=resident_bytes)

        with meanwhile(watch):
            until(
                lambda: len(stage.read(stage.topics.audit)) >= wanted.rounds_count,
                what="the last round",
                running=[run],
                timeout_s=PATIENCE_S,
            )
        assert run.terminate() == 0
    assert stage.published() == wanted
    letters = stage.rejected()
    assert len(letters) == rejected_count
    assert {letter["reason"] for letter in letters} == {"not-json"}
    assert resident_bytes(peak) <= MEMORY_BYTES, peak
    first_batch = (newest_start(stage.checkpoint) / "offsets" / "0").read_text()
    assert json.dumps({stage.topics.input: {"0": records_count + 1}}, separators=(",", ":")) in first_batch
