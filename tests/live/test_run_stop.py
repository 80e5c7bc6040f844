"""Ctrl-C and SIGTERM, to one process or to all: every program that runs on ends in order, with code 0, whatever it does."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import pytest

from deploy.local.kafka import LocalKafka
from deploy.local.processes import free_ports
from tests.support.controllers import leads, standing, stands_by
from tests.support.loads import played
from tests.support.processes import EXIT_S, TRIMTAB, Child, ask, cold, environment, is_ready, members, until
from tests.support.stage import QUICK, Stage, newest_start

pytestmark = pytest.mark.live

Stop = Literal["Ctrl-C", "SIGTERM"]
HOWS = pytest.mark.parametrize("how", get_args(Stop))
SLOW = pytest.mark.slow
OWN = '[targets.here.kafka]\nbootstrap = "{bootstrap}"\n'


@dataclass(slots=True)
class Foreground(Child):
    """A command in the foreground of a terminal of its own, as a person starts it; what the terminal shows is its log.

    Ctrl-C goes to its whole process group.
    """

    _terminal: int = field(init=False)

    def __post_init__(self) -> None:
        self._terminal, other_end = pty.openpty()
        modes = termios.tcgetattr(other_end)
        modes[3] |= termios.NOFLSH  # Ctrl-C would throw away what was printed and is not read yet
        termios.tcsetattr(other_end, termios.TCSANOW, modes)
        self.log.touch()

        def take_terminal() -> None:
            fcntl.ioctl(other_end, termios.TIOCSCTTY, 0)
            # a shell without job control starts what is in the background deaf to Ctrl-C, the tests included
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        self.process = subprocess.Popen(
            [*self.command],
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            env=environment(self.log.parent),
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509  there is no other way to a controlling terminal
        )
        os.close(other_end)
        threading.Thread(target=self._keep_log, daemon=True).start()

    def _keep_log(self) -> None:
        with self.log.open("ab", buffering=0) as log:
            try:
                while piece := os.read(self._terminal, 65536):
                    log.write(piece)
            except OSError:  # nobody has the other end open any more
                return

    def ask_to_stop(self, how: Stop) -> None:
        """Press Ctrl-C, or send SIGTERM as `kill` does."""
        if how == "Ctrl-C":
            os.write(self._terminal, b"\x03")
        else:
            self.process.terminate()

    def assert_ends_in_order(self, how: Stop, *, saying: str | None = None) -> None:
        """It ends with code 0, says so in one line (the signal's name, or ``saying``), and none of its processes is left."""
        before = len(self.output)
        self.ask_to_stop(how)
        self.ask_to_stop(how)  # impatience changes nothing
        assert self.wait(EXIT_S) == 0, self.output
        until(self.is_gone, what="the end of its processes")
        ending = self.output[before:].replace("^C", "")
        said = [line for line in ending.splitlines() if (saying or "SIG") in line]
        assert len(said) == 1, self.output
        for word in ("Traceback", "Aborted", "KeyboardInterrupt"):
            assert word not in ending, self.output


@contextmanager
def started(stage: Stage, *arguments: str, **settings: object) -> Iterator[Foreground]:
    """A command in a terminal."""
    config = stage.settings(base=QUICK + OWN.format(bootstrap=stage.bootstrap), **settings)
    given = [each.format(folder=stage.directory) for each in arguments]
    command = (*TRIMTAB, *given, "--config", str(config))
    with Foreground(command, stage.directory / "terminal.log") as program:
        yield program


def hears_stops(child: Child) -> bool:
    """Whether it has a handler of SIGTERM of its own: from then on a stop ends it in order."""
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def said(text: str) -> Callable[[Child], bool]:
    return lambda program: text in program.output


def unready(text: str) -> Callable[[Child], bool]:
    return lambda program: text in ask(f"{program.url}/readyz").body


def has_java(program: Child) -> bool:
    return any(each.name == "java" for each in members(program.process.pid))


def has_recorded(program: Child) -> bool:
    return any(file.stat().st_size for file in program.log.parent.rglob("*.ndjson*"))


@dataclass(frozen=True, slots=True)
class Small:
    """A program without Spark that runs until it is told to stop: when it is at work, and what it says in the end."""

    arguments: tuple[str, ...]
    is_at_work: Callable[[Child], bool]
    says: str | None = None


SMALL = {
    "collect": Small(("collect", "kafka", "here"), is_ready),
    "execute": Small(("execute", "kafka", "here"), is_ready),
    "record": Small(("record", "{folder}/recorded.ndjson"), has_recorded, "written to"),
    "rotating record": Small(
        ("record", "--max-total-size", "1GiB", "{folder}/recordings"), has_recorded, "written to"
    ),
    "feed": Small(("feed",), said("feeding"), " fed"),
}
EACH_SMALL = pytest.mark.parametrize("program", SMALL.values(), ids=SMALL)


@HOWS
@EACH_SMALL
@pytest.mark.parametrize("is_at_work", [False, True], ids=["imported", "at work"])
def test_a_program_ends_in_order_while_it_is_imported_and_at_work(
    stage: Stage, program: Small, how: Stop, *, is_at_work: bool
):
    stage.send(played(range(2)))
    moment = program.is_at_work if is_at_work else hears_stops
    with started(stage, *program.arguments) as child:
        child.until(lambda: moment(child), "the moment")
        child.assert_ends_in_order(how, saying=program.says)


@HOWS
@EACH_SMALL
def test_a_program_whose_brokers_are_down_ends_in_order(stage: Stage, program: Small, how: Stop):
    nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}"
    with started(stage, *program.arguments, input__url=nowhere) as child:
        child.until(lambda: "waiting for" in child.output or bool(program.says), "it to wait")
        child.until(lambda: hears_stops(child), "it to hear")
        child.assert_ends_in_order(how, saying=program.says)


MOMENTS: dict[str, Callable[[Child], bool]] = {
    "is imported": hears_stops,
    "waits for brokers": said("waiting for"),
    "asks Java for its version": said("metrics and health at"),
    "starts Spark": unready("starting Spark"),
    "has just a JVM": lambda run: has_java(run) and unready("starting Spark")(run),
    "warms up": unready("warming up"),
}


def at(stage: Stage, moment: str) -> dict[str, object]:
    """Settings with which a controller comes to the moment."""
    stage.send(played(range(2)))
    down = {"input__url": f"kafka://127.0.0.1:{free_ports(1)[0]}"}
    return {"waits for brokers": down, "warms up": {"controller__standby": True}}.get(moment, {})


@HOWS
@pytest.mark.parametrize(
    "moment",
    [
        "is imported",
        "asks Java for its version",
        "waits for brokers",
        *(pytest.param(each, marks=SLOW) for each in ("starts Spark", "has just a JVM", "warms up")),
    ],
)
def test_a_controller_that_starts_ends_in_order(stage: Stage, how: Stop, moment: str):
    with started(stage, "run", "--from", "earliest", **at(stage, moment)) as run:
        run.until(lambda: MOMENTS[moment](run), moment)
        run.assert_ends_in_order(how)


@pytest.mark.parametrize(
    "moment",
    [
        "asks Java for its version",
        "waits for brokers",
        *(pytest.param(each, marks=SLOW) for each in ("starts Spark", "has just a JVM")),
    ],
)
def test_a_stop_of_the_whole_group_ends_it_in_order(stage: Stage, moment: str):
    config = stage.settings(**at(stage, moment))
    with cold(config, stage.directory / "run.log") as run:
        run.until(lambda: MOMENTS[moment](run), moment)
        os.killpg(run.process.pid, signal.SIGTERM)
        assert run.wait(EXIT_S) == 0, run.output
        assert "Traceback" not in run.output
        until(run.is_gone, what="the end of its JVM")


def test_a_stop_of_every_process_by_itself_is_a_stop_and_no_failure(stage: Stage):
    """As systemd does it with ``KillMode=control-group``, its default."""
    with cold(stage.settings(controller__log_format="json"), stage.directory / "run.log") as run:
        run.until(lambda: is_ready(run), "a running query")
        for process in members(run.process.pid):
            with suppress(ProcessLookupError):  # it ended with one before it
                os.kill(process.pid, signal.SIGTERM)
        assert run.wait(EXIT_S) == 0, run.output
    loggers = {json.loads(line)["logger"] for line in run.output.splitlines()}
    assert "spark.jvm" in loggers, "what the JVM writes is a line like any other"


@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("SIGTERM", marks=SLOW)])
def test_a_controller_that_is_in_a_batch_finishes_and_commits_it(stage: Stage, how: Stop):
    def newest_in(log: str) -> int:
        """The newest batch in one of Spark's logs: planned ones are in `offsets`, finished ones in `commits`."""
        return max(int(file.name) for file in (newest_start(stage.checkpoint) / log).glob("[0-9]*"))

    stage.send(played(range(40)))
    with started(stage, "run", "--from", "earliest", spark__max_records_per_trigger_count=3) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        under_way = newest_in("offsets")
        run.assert_ends_in_order(how)
    assert newest_in("commits") >= under_way


@SLOW
@HOWS
def test_a_standby_ends_in_order_and_its_leader_goes_on(stage: Stage, how: Stop):
    with ExitStack() as stack:
        leader = standing(stage, stack, "leader")
        leader.until(lambda: leads(leader), "one to lead")
        session = {"controller__standby": True, "controller__session_s": 3.0}
        standby = stack.enter_context(started(stage, "run", **session))
        until(lambda: stands_by(standby), what="the other to stand by", running=[leader, standby])
        standby.assert_ends_in_order(how)
        assert leads(leader)
        assert leader.terminate() == 0


@SLOW
@HOWS
def test_a_controller_that_waits_to_start_its_query_again_ends_in_order(tmp_path: Path, how: Stop):
    with LocalKafka(tmp_path / "kafka") as kafka:
        stage = Stage(kafka.bootstrap, "outage", tmp_path)
        stage.create_topics()
        stage.send(played(range(2)))
        with started(stage, "run", "--from", "earliest") as run:
            stage.wait_for(stage.topics.audit, 2, running=[run])
            stage.close()
            kafka.kill()
            run.until(lambda: "the query failed and is restarted" in run.output, "back-off")
            run.assert_ends_in_order(how)
