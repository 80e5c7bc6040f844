"""A batch of the largest records there may be passes, in 2 GiB of memory for everything."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest
from kafka import KafkaProducer

from tests.live.checkpoints import newest_start
from tests.live.driving import TRIMTAB, Child, Member, meanwhile, members, until
from tests.live.loads import closing, leaning
from tests.live.stage import RECORD_BYTES, Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(5400)]

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


@pytest.mark.parametrize(("records_count", "filling"), FILLINGS.values(), ids=FILLINGS)
def test_records_of_32_mib_pass_in_one_batch_with_2_gib_of_memory(
    stage: Stage, records_count: int, filling: bytes
) -> None:
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
    with Child((*TRIMTAB, "run", "--config", str(config), "--from", "earliest"), log) as run:

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
