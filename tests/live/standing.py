"""Two controllers of one name on a stage: one leads, the other stands by."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tests.live.driving import TRIMTAB, Child, ask, members, until
from tests.live.stage import Stage

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
    return "query" in ask(f"{child.url}/readyz").body and ask(f"{child.url}/readyz").status == 200


def stands_by(child: Child) -> bool:
    answer = ask(f"{child.url}/readyz")
    return answer.status == 200 and "leads" in answer.body and "standing by" in answer.body


def pair(
    stage: Stage, stack: ExitStack, *, leader_build: Sequence[str] = TRIMTAB, build: Sequence[str] = TRIMTAB
) -> tuple[Child, Child]:
    """A leader, and a standby that is ready for it."""
    leader = standing(stage, stack, "leader", leader_build)
    until(lambda: leads(leader), what="one to lead", running=[leader])
    standby = standing(stage, stack, "standby", build)
    until(lambda: stands_by(standby), what="the other to stand by", running=[leader, standby])
    return leader, standby


def rounds(stage: Stage, count: int, *running: Child) -> Sequence[bytes]:
    return stage.wait_for(stage.topics.audit, count, running=running)


def signalled(child: Child, number: signal.Signals) -> None:
    """Send a signal to the process, Spark's JVM and the Python workers."""
    for each in members(child.process.pid):
        os.kill(each.pid, number)
