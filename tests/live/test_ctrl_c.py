"""Ctrl-C at a terminal, and SIGTERM: every program that runs on ends in order, with code 0 and one line, whatever it does."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import get_args

import pytest

from deploy.local.kafka import LocalKafka
from deploy.local.processes import free_ports
from tests.live.checkpoints import newest_start
from tests.live.driving import TRIMTAB, Child, ask, until
from tests.live.foreground import Foreground, Stop, hears_stops
from tests.live.loads import played
from tests.live.stage import QUICK, Stage
from tests.live.standing import leads, standing, stands_by

pytestmark = pytest.mark.live

HOWS = pytest.mark.parametrize("how", get_args(Stop))
SLOW = pytest.mark.slow

SMALL = {
    "collect": ("collect", "kafka", "here"),
    "execute": ("execute", "kafka", "here"),
    "record": ("record", "{folder}/recorded.ndjson"),
    "rotating record": ("record", "--max-total-size", "1GiB", "{folder}/recordings"),
    "feed": ("feed",),
}
"""Every program without Spark that runs until it is told to stop."""
SAYS = {"record": "records written", "rotating record": "records written", "feed": "records fed"}
"""What the programs without a log say in the end."""
OWN = '[targets.here.kafka]\nbootstrap = "{bootstrap}"\n'


@contextmanager
def started(stage: Stage, *arguments: str, **settings: object) -> Iterator[Foreground]:
    """A command in a terminal."""
    base = QUICK + OWN.format(bootstrap=stage.bootstrap)
    config = stage.settings(base=base, **settings)
    given = [each.format(folder=stage.directory) for each in arguments]
    command = (*TRIMTAB, *given, "--config", str(config))
    with Foreground(command, stage.directory / "terminal.log") as program:
        yield program


def ready(program: Child) -> bool:
    return ask(f"{program.url}/readyz").status == 200


def has_recorded(program: Child) -> bool:
    return any(file.stat().st_size for file in program.log.parent.rglob("*.ndjson*"))


def has_fed(program: Child) -> bool:
    return "feeding" in program.output


AT_WORK: dict[str, Callable[[Child], bool]] = {
    "collect": ready,
    "execute": ready,
    "record": has_recorded,
    "rotating record": has_recorded,
    "feed": has_fed,
}


@HOWS
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("is_at_work", [False, True], ids=["imported", "at work"])
def test_a_program_ends_in_order_while_it_is_imported_and_at_work(
    stage: Stage, name: str, how: Stop, *, is_at_work: bool
) -> None:
    stage.send(played(range(2)))
    moment = AT_WORK[name] if is_at_work else hears_stops
    with started(stage, *SMALL[name]) as program:
        until(lambda: moment(program), what=f"{name}'s moment", running=[program])
        program.assert_ends_in_order(how, saying=SAYS.get(name))


@HOWS
@pytest.mark.parametrize("name", SMALL)
def test_a_program_whose_brokers_are_down_ends_in_order(stage: Stage, name: str, how: Stop) -> None:
    nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}"
    with started(stage, *SMALL[name], input__url=nowhere) as program:
        until(lambda: waits(program) or name in SAYS, what=f"{name} waits", running=[program])
        until(lambda: hears_stops(program), what=f"{name} hears", running=[program])
        program.assert_ends_in_order(how, saying=SAYS.get(name))


def waits(program: Child) -> bool:
    return "waiting for" in program.output


@HOWS
@pytest.mark.parametrize(
    ("moment", "settings"),
    [
        pytest.param("is imported", {}, id="is imported"),
        pytest.param("waits for brokers", {}, id="waits for brokers"),
        pytest.param("starts Spark", {}, id="starts Spark", marks=SLOW),
        pytest.param("has just a JVM", {}, id="has just a JVM", marks=SLOW),
        pytest.param("warms up", {"controller__standby": True}, id="warms up", marks=SLOW),
    ],
)
def test_a_controller_that_starts_ends_in_order(
    stage: Stage, how: Stop, moment: str, settings: dict[str, object]
) -> None:
    stage.send(played(range(2)))
    if moment == "waits for brokers":
        settings = {"input__url": f"kafka://127.0.0.1:{free_ports(1)[0]}"}
    with started(stage, "run", "--from", "earliest", **settings) as run:
        until(lambda: RUN_MOMENTS[moment](run), what=moment, running=[run])
        run.assert_ends_in_order(how)


RUN_MOMENTS: dict[str, Callable[[Child], bool]] = {
    "is imported": hears_stops,
    "waits for brokers": waits,
    "starts Spark": lambda run: "starting Spark" in ask(f"{run.url}/readyz").body,
    "has just a JVM": lambda run: "Setting Spark log level" in run.output,
    "warms up": lambda run: "warming up" in ask(f"{run.url}/readyz").body,
}


@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("SIGTERM", marks=SLOW)])
def test_a_controller_that_is_in_a_batch_finishes_and_commits_it(stage: Stage, how: Stop) -> None:
    stage.send(played(range(40)))
    with started(stage, "run", "--from", "earliest", spark__max_records_per_trigger_count=3) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        under_way = newest_in(stage, "offsets")
        run.assert_ends_in_order(how)
    assert newest_in(stage, "commits") >= under_way


def newest_in(stage: Stage, log: str) -> int:
    """The newest batch in one of Spark's logs: planned ones are in `offsets`, finished ones in `commits`."""
    return max(int(file.name) for file in (newest_start(stage.checkpoint) / log).glob("[0-9]*"))


@SLOW
@HOWS
def test_a_standby_ends_in_order_and_its_leader_goes_on(stage: Stage, how: Stop) -> None:
    with ExitStack() as stack:
        leader = standing(stage, stack, "leader")
        until(lambda: leads(leader), what="one to lead", running=[leader])
        standby = stack.enter_context(
            started(stage, "run", controller__standby=True, controller__session_s=3.0)
        )
        until(lambda: stands_by(standby), what="the other to stand by", running=[leader, standby])
        standby.assert_ends_in_order(how)
        assert leads(leader)
        assert leader.terminate() == 0


@SLOW
@HOWS
def test_a_controller_that_waits_to_start_its_query_again_ends_in_order(tmp_path: Path, how: Stop) -> None:
    with LocalKafka(tmp_path / "kafka") as kafka:
        stage = Stage(kafka.bootstrap, "outage", tmp_path)
        stage.create_topics()
        stage.send(played(range(2)))
        with started(stage, "run", "--from", "earliest") as run:
            stage.wait_for(stage.topics.audit, 2, running=[run])
            stage.close()
            kafka.kill()
            until(lambda: "the query failed and is restarted" in run.output, what="back-off", running=[run])
            run.assert_ends_in_order(how)
