"""Runs the recording through a `trimtab run` that dies at chosen points, again and again, up to its end."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.live.driving import Child, Warm
from tests.live.loads import RECORDED_SETTINGS, recording
from tests.live.stage import Outputs, Stage, replayed

KILLED = -9
RECORDS_PER_BATCH = 60
BATCHES_COUNT = 7
DYING = "tests.live.dying"


def start_dying(stage: Stage, config: Path, points: Sequence[str], *, program: str = DYING) -> Child:
    """`trimtab run` that dies at the first of these points it comes to and has not died at before."""
    flags = stage.directory / "flags"
    flags.mkdir(exist_ok=True)
    command = (sys.executable, "-m", program, str(flags), ",".join(points))
    return Child(
        (*command, "run", "--config", str(config), "--from", "earliest"), stage.directory / "run.log"
    )


def crash_through(
    stage: Stage,
    points: Sequence[str],
    *,
    program: str = DYING,
    records_per_batch: int = RECORDS_PER_BATCH,
    successor: Warm | None = None,
) -> Outputs:
    """Run the recording to its end, dying at each point on the way; returns what replay makes of it.

    The last run, for which no point is left, is a `trimtab run` of the ``successor``, if there is one.
    """
    config = stage.settings(base=RECORDED_SETTINGS, spark__max_records_per_trigger_count=records_per_batch)
    wanted = replayed(config, recording())
    stage.send(recording())
    for _ in points:
        with start_dying(stage, config, points, program=program) as run:
            assert run.wait() == KILLED, run.output
    with (
        start_dying(stage, config, points, program=program)
        if successor is None
        else successor.start("run", "--config", str(config), "--from", "earliest")
    ) as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert {flag.name for flag in (stage.directory / "flags").iterdir()} == {
        point.replace(":", "-") for point in points
    }
    return wanted
