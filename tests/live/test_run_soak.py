"""Two thousand batches in one process: memory stays as it was after the first few hundred, the checkpoint keeps the last minutes."""

import time
from collections import Counter

import pytest

from tests.live.driving import TRIMTAB, Child, members, samples, until
from tests.live.loads import played
from tests.live.stage import QUICK, Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3600)]

BATCHES_COUNT = 2000
WARM_COUNT = 700
"""Batches until caches are full and compiled code is settled."""
GROWTH_RATIO = 1.10
GROWTH_BYTES = 48 * 1024 * 1024
"""What the measuring itself varies by; a leak of 120 KB a batch would show even in the biggest process."""
PATIENCE_S = 3000.0
PLANNED_KEPT_COUNT = 40
"""Batches whose plans are kept: Spark is told to keep 30, and drops the others a few at a time."""
STATE_KEPT_S = 600.0
"""Age up to which the state's files may be kept; Spark drops them once a minute, and keeps what led to the last few snapshots."""

FIXED_HEAP = """
[spark.extra]
"spark.driver.extraJavaOptions" = "-Xms512m -XX:+AlwaysPreTouch"
"""
"""The heap counts in full from the start, so that only what grows beside it shows."""


def resident_bytes(session: int) -> Counter[str]:
    """Resident memory: the driver, its JVM, and all Python workers together."""
    found: Counter[str] = Counter()
    for process in members(session):
        name = "java" if process.name == "java" else "driver" if process.pid == session else "workers"
        found[name] += process.resident_bytes
    return found


def batches_done(url: str) -> float:
    """Batches since the start."""
    return samples(url).get(("trimtab_batch_duration_seconds_count", frozenset()), 0.0)


def test_memory_and_checkpoint_are_flat_over_two_thousand_batches(stage: Stage) -> None:
    config = stage.settings(
        base=QUICK + FIXED_HEAP,
        spark__max_records_per_trigger_count=1,
        spark__trigger_interval_s=0.01,
        spark__driver_memory="512m",
    )
    events = played(range(BATCHES_COUNT // 3 + 1))
    wanted = replayed(config, events)
    stage.send(events)
    arguments = ("run", "--config", str(config), "--from", "earliest")
    with Child((*TRIMTAB, *arguments), stage.directory / "run.log") as run:
        url = run.url

        def reached(count: int) -> None:
            until(
                lambda: batches_done(url) >= count, what=f"batch {count}", running=[run], timeout_s=PATIENCE_S
            )

        reached(WARM_COUNT)
        before = resident_bytes(run.process.pid)
        reached(BATCHES_COUNT)
        after, kept = resident_bytes(run.process.pid), list(stage.checkpoint.rglob("[!.]*"))
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
