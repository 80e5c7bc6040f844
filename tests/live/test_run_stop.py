"""A stop of the whole process group, or of every process by itself: whenever it comes, the controller ends with code 0."""

import json
import os
import signal
from collections.abc import Callable

import pytest

from deploy.local.processes import free_ports
from tests.live.driving import EXIT_S, TRIMTAB, Child, ask, members, until
from tests.live.loads import played
from tests.live.stage import Stage

pytestmark = pytest.mark.live


def is_waiting(run: Child) -> bool:
    return "wait" in str(ask(f"{run.url}/readyz"))


def is_starting_spark(run: Child) -> bool:
    return "starting Spark" in str(ask(f"{run.url}/readyz"))


def is_making_its_context(run: Child) -> bool:
    return "To adjust logging level" in run.output


def is_running(run: Child) -> bool:
    return ask(f"{run.url}/readyz").status == 200


@pytest.mark.parametrize(
    ("moment", "is_reachable"),
    [
        pytest.param(is_waiting, False, id="brokers that are down are waited for"),
        pytest.param(is_starting_spark, True, id="Spark is being started", marks=pytest.mark.slow),
        pytest.param(is_making_its_context, True, id="Spark's JVM has just started", marks=pytest.mark.slow),
        pytest.param(is_running, True, id="it runs", marks=pytest.mark.slow),
    ],
)
def test_a_stop_of_the_whole_group_ends_it_in_order_whatever_it_does(
    stage: Stage, moment: Callable[[Child], bool], *, is_reachable: bool
) -> None:
    stage.create_topics()
    stage.send(played(range(3)))
    url = {} if is_reachable else {"input__url": f"kafka://127.0.0.1:{free_ports(1)[0]}"}
    config = stage.settings(**url)
    command = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
    with Child(command, stage.directory / "run.log") as run:
        until(lambda: moment(run), what="the moment", running=[run])
        os.killpg(run.process.pid, signal.SIGTERM)
        assert run.wait(EXIT_S) == 0, run.output
        assert "Traceback" not in run.output
        until(run.is_gone, what="the end of its JVM")


def test_a_stop_of_every_process_by_itself_is_a_stop_and_no_failure(stage: Stage) -> None:
    """As systemd does it with ``KillMode=control-group``, its default."""
    stage.create_topics()
    config = stage.settings(controller__log_format="json")
    command = (*TRIMTAB, "run", "--config", str(config))
    with Child(command, stage.directory / "run.log") as run:
        until(lambda: is_running(run), what="a running query", running=[run])
        for process in members(run.process.pid):
            os.kill(process.pid, signal.SIGTERM)
        assert run.wait(EXIT_S) == 0, run.output
    loggers = {json.loads(line)["logger"] for line in run.output.splitlines()}
    assert "spark.jvm" in loggers, "what the JVM writes is a line like any other"
