"""Two controllers of one name: one leads, the other stands by and takes over, and nothing is lost, repeated or altered."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.live.driving import TRIMTAB, Child, ask, until
from tests.live.loads import played
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SESSION_S = 3.0


def standing(stage: Stage, stack: ExitStack, name: str, config: Path | None = None) -> Child:
    """A controller that stands by, or leads where nobody does."""
    config = config or stage.settings(controller__standby=True, controller__session_s=SESSION_S)
    command = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
    return stack.enter_context(Child(command, stage.directory / f"{name}.log"))


def leads(child: Child) -> bool:
    return "query" in ask(f"{child.url}/readyz").body and ask(f"{child.url}/readyz").status == 200


def stands_by(child: Child) -> bool:
    answer = ask(f"{child.url}/readyz")
    return answer.status == 200 and "leads" in answer.body and "standing by" in answer.body


def pair(stage: Stage, stack: ExitStack, config: Path | None = None) -> tuple[Child, Child]:
    """A leader, and a standby that is ready for it."""
    leader = standing(stage, stack, "leader", config)
    until(lambda: leads(leader), what="one to lead", running=[leader])
    standby = standing(stage, stack, "standby", config)
    until(lambda: stands_by(standby), what="the other to stand by", running=[leader, standby])
    return leader, standby


def rounds(stage: Stage, count: int, *running: Child) -> Sequence[bytes]:
    return stage.wait_for(stage.topics.audit, count, running=running)


@pytest.mark.parametrize(
    "ending", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), pytest.param(signal.SIGTERM)]
)
def test_a_standby_goes_on_where_a_leader_ended(stage: Stage, ending: signal.Signals) -> None:
    with ExitStack() as stack:
        leader, standby = pair(stage, stack)
        stage.send(played(range(3)))
        rounds(stage, 3, leader, standby)
        leader.process.send_signal(ending)
        until(lambda: leads(standby), what="the standby to lead", running=[standby])
        stage.send(played(range(3, 6)))
        rounds(stage, 6, standby)
        assert standby.terminate() == 0
    config = stage.directory / "trimtab.toml"
    assert stage.published() == replayed(config, played(range(6)))
    first, second = sorted(set(stage.epochs(stage.topics.audit)))
    assert stage.epochs(stage.topics.audit) == [first] * 3 + [second] * 3
