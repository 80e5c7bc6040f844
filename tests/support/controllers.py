"""Controllers on a stage that die, come back with other settings, or stand by for one another."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.loads import RECORDED_CLUSTER, RECORDED_SETTINGS, recording
from tests.support.processes import (
    TRIMTAB,
    Child,
    Warm,
    ask,
    is_ready,
    members,
    query_failures,
    state_of,
    until,
)
from tests.support.stage import Outputs, Stage, replayed

KILLED = -9
RECORDS_PER_BATCH = 60
BATCHES_COUNT = 7


def misbehaving(stage: Stage, config: Path, how: str, points: Sequence[str] = ()) -> Child:
    """`trimtab run` as ``tests.support.misbehaving`` has it; the folder or file for its flag is `flags`."""
    flags = stage.directory / "flags"
    if points:
        flags.mkdir(exist_ok=True)
    how_to = ("tests.support.misbehaving", how, str(flags), ",".join(points))
    run = ("run", "--config", str(config), "--from", "earliest")
    return Child((sys.executable, "-m", *how_to, *run), stage.directory / "run.log")


def crash_through(
    stage: Stage,
    points: Sequence[str],
    *,
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
        with misbehaving(stage, config, "dies", points) as run:
            assert run.wait() == KILLED, run.output
    with (
        misbehaving(stage, config, "dies", points)
        if successor is None
        else successor.start("run", "--config", str(config), "--from", "earliest")
    ) as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert {flag.name for flag in (stage.directory / "flags").iterdir()} == {
        point.replace(":", "-") for point in points
    }
    return wanted


@dataclass(frozen=True, slots=True)
class Changed:
    """Summaries and actions that were out when it died, the rounds published in each mode, and the output."""

    out: list[bytes]
    actions: list[bytes]
    acting: list[int]
    showing: list[int]
    output: str


def change_settings_at(stage: Stage, warm: Warm, point: str) -> Changed:
    """Die at the point in mode act; then go on to the end of the recording in a dry-run. Each round must be there, once."""
    batches = {"spark__max_records_per_trigger_count": RECORDS_PER_BATCH}
    acting = stage.settings(base=RECORDED_SETTINGS, **batches)
    showing = stage.settings(base=RECORDED_SETTINGS, file="shown.toml", controller__mode="dry-run", **batches)
    stage.send(recording())
    wanted = replayed(acting, recording())
    with misbehaving(stage, acting, "dies", [point]) as run:
        assert run.wait() == KILLED, run.output
    out, actions = stage.values(stage.topics.audit), stage.values(stage.topics.actions)
    with warm.start("run", "--config", str(showing), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count, running=[run])
        assert run.terminate() == 0, run.output
        assert not query_failures(run.output)
    summaries = stage.values(stage.topics.audit)
    assert summaries[: len(out)] == out
    rounds = [json.loads(value)["data"] for value in summaries]
    numbers = [json.loads(value)["data"]["round"] for value in wanted.rounds[RECORDED_CLUSTER]]
    assert [each["round"] for each in rounds] == numbers, "each once"
    by_mode = {
        mode: [each["round"] for each in rounds if each["mode"] == mode] for mode in ("act", "dry-run")
    }
    assert by_mode["act"] + by_mode["dry-run"] == numbers
    return Changed(out, actions, by_mode["act"], by_mode["dry-run"], run.output)


SESSION_S = 3.0


def standing(stage: Stage, stack: ExitStack, name: str, build: Sequence[str] = TRIMTAB) -> Child:
    """A controller that stands by, or leads if no other one does."""
    config = stage.settings(controller__standby=True, controller__session_s=SESSION_S)
    run = (*build, "run", "--config", str(config), "--from", "earliest")
    return stack.enter_context(Child(run, stage.directory / f"{name}.log"))


_RAISED = (
    "import state.layouts as layouts; layouts.UPGRADES[layouts.VERSION] = lambda kind, body: body; "
    "layouts.VERSION += 1; from streaming.cli import main; main(prog_name='trimtab')"
)
RAISED = (sys.executable, "-c", _RAISED)
"""A build whose checkpoints this one cannot read."""


def leads(child: Child) -> bool:
    return "query" in ask(f"{child.url}/readyz").body and is_ready(child)


def stands_by(child: Child) -> bool:
    answer = ask(f"{child.url}/readyz")
    return answer.status == 200 and "leads" in answer.body and "standing by" in answer.body


def pair(stage: Stage, stack: ExitStack, *, build: Sequence[str] = TRIMTAB) -> tuple[Child, Child]:
    """A leader, and a standby that is ready for it."""
    leader = standing(stage, stack, "leader")
    leader.until(lambda: leads(leader), "one to lead")
    standby = standing(stage, stack, "standby", build)
    until(lambda: stands_by(standby), what="the other to stand by", running=[leader, standby])
    return leader, standby


def rounds(stage: Stage, count: int, *running: Child) -> Sequence[bytes]:
    return stage.wait_for(stage.topics.audit, count, running=running)


def is_frozen(child: Child) -> bool:
    """Whether its first process is stopped."""
    return state_of(child.process.pid) == "T"


def signalled(child: Child, number: signal.Signals) -> None:
    """Send a signal to the process, Spark's JVM and the Python workers."""
    for each in members(child.process.pid):
        os.kill(each.pid, number)
