"""What hangs is not alive: Spark's JVM, or a batch that does not move on."""

import os
import signal
import sys

import pytest

from tests.live.driving import Child, ask, members, until
from tests.live.loads import played
from tests.live.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_frozen_jvm_and_a_batch_that_stands_still_show_in_healthz_until_they_go_on(stage: Stage) -> None:
    config, flag = stage.settings(), stage.directory / "hang"
    command = (sys.executable, "-m", "tests.live.hanging", str(flag), "run", "--config", str(config))
    stage.send(played([0]))
    with Child((*command, "--from", "earliest"), stage.directory / "run.log") as run:
        stage.wait_for(stage.topics.audit, 1, running=[run])

        def health(status: int, message: str = "") -> bool:
            answer = ask(f"{run.url}/healthz")
            return answer.status == status and message in answer.body

        until(lambda: health(200), what="the first batch to be over", running=[run])
        flag.touch()
        stage.send(played([1]))
        until(lambda: health(503, '"batch"'), what="the batch to be missed", running=[run])
        flag.unlink()
        stage.wait_for(stage.topics.audit, 2, running=[run])
        until(lambda: health(200), what="life again", running=[run])

        java = next(each.pid for each in members(run.process.pid) if each.name == "java")
        os.kill(java, signal.SIGSTOP)
        until(lambda: health(503, '"driver"'), what="the JVM to be missed", running=[run])
        os.kill(java, signal.SIGCONT)
        until(lambda: health(200), what="life again", running=[run])
        assert "not alive: driver" in run.output
        assert run.terminate() == 0
