"""The real `trimtab` as a child process: `topics create` once, then `run` or another command until it is told to stop.

It runs in a session of its own, because Spark's Python workers leave the process group but never the session. The end
of this module has two controllers: one leads, the other stands by, and after a while the leader is killed.
"""

import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from deploy.local.demo.story import Story
from deploy.local.processes import POLL_S, LocalError, Process, claim, free_ports
from deploy.local.prometheus import is_ready
from streaming.process.deadline import poll
from streaming.settings import MetricsSettings

ROOT = Path(__file__).parents[3]
USUAL_PORTS: Mapping[str, int] = {
    "run": MetricsSettings().port_of("controller"),
    "collect": MetricsSettings().port_of("collector"),
    "execute": MetricsSettings().port_of("executor"),
}
"""Where the metrics of each command are served, and Prometheus looks; if another process uses a port, a free one is taken."""
SESSION_S = 3.0
"""How long the standby waits for a beat of the leader."""
STANDBY_ENVIRONMENT = {
    "TRIMTAB_CONTROLLER__STANDBY": "true",
    "TRIMTAB_CONTROLLER__SESSION_S": str(SESSION_S),
}
"""The settings of controllers of which one stands by."""
_READY_TIMEOUT_S = 180.0
"""Spark needs about 10 s on two idle cores."""
_READY_POLL_S = 0.2
_STOP_TIMEOUT_S = 10.0
"""A batch in progress is finished in well under a second; what takes longer is killed, so that Ctrl-C feels prompt."""
_TOPICS_TIMEOUT_S = 120.0
_LEFTOVERS_TIMEOUT_S = 2.0
"""How long Spark's JVM and Python workers may take to end after the process that started them."""

_COMMAND = (sys.executable, "-c", "from streaming.cli import main; main(prog_name='trimtab')")


def typed_program() -> str:
    """What a person in this folder types to start the `trimtab` that belongs to this Python."""
    program, here = Path(sys.executable).with_name("trimtab"), Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


class Trimtab:
    """A `trimtab` command against the Kafka at `bootstrap`, with its log and checkpoint in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        bootstrap: str,
        metrics_port: int,
        settings: Path,
        command: Sequence[str] = ("run",),
        log: str = "trimtab.log",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._url = f"http://127.0.0.1:{metrics_port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB_")}
        given = kept | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "SPARK_LOCAL_DIRS": str(directory),
            "TMPDIR": str(directory),  # what a killed process leaves goes with the directory
            "TRIMTAB_INPUT__URL": f"kafka://{bootstrap}",
            "TRIMTAB_METRICS__PORT": str(metrics_port),
            "TRIMTAB_METRICS__COLLECTOR_PORT": str(metrics_port),
            "TRIMTAB_METRICS__EXECUTOR_PORT": str(metrics_port),
            "TRIMTAB_SPARK__CHECKPOINT": str(directory / "checkpoint"),
            **environment,
        }
        config = ("--config", str(settings))
        name, topics = f"trimtab {' '.join(command)}", ("topics", "create")
        self.process = Process(name, (*_COMMAND, *command, *config), directory / log, given)
        self._topics = Process("trimtab topics create", (*_COMMAND, *topics, *config), directory / log, given)

    @property
    def metrics_url(self) -> str:
        """Where Prometheus would scrape it."""
        return f"{self._url}/metrics"

    def create_topics(self) -> None:
        """Run `trimtab topics create`; raises LocalError with the end of its log."""
        self._topics.launch()
        assert self._topics.process is not None
        try:
            if self._topics.process.wait(_TOPICS_TIMEOUT_S) != 0:
                self._topics.check()
        finally:
            self._topics.end(signal.SIGKILL)

    def start(self) -> None:
        """Start the command; returns at once."""
        self.process.launch()

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` says that it is ready. Raises LocalError with the end of its log if it ends, or takes too long."""

        def is_done() -> bool:
            self.check()
            return is_ready(f"{self._url}/readyz")

        if not poll(is_done, timeout_s=_READY_TIMEOUT_S, pause_s=_READY_POLL_S):
            raise LocalError(f"trimtab is not ready after {_READY_TIMEOUT_S:g} s; {self.process.log_end()}")

    def check(self) -> None:
        """Raise LocalError with the end of its log if it has ended by itself."""
        self.process.check()

    def kill(self) -> None:
        """End it as the loss of its machine would: SIGKILL to every process of its session."""
        process, self.process.process = self.process.process, None
        if process is not None:
            _kill_session(process.pid)
            process.wait(_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after 10 s; no process of its session is left (without `/proc`: of its process group)."""
        process, self.process.process = self.process.process, None
        if process is None:
            return
        process.terminate()
        stopped = poll(lambda: process.poll() is not None, timeout_s=_STOP_TIMEOUT_S, pause_s=POLL_S)
        if stopped:
            _wait_until_empty(process.pid)
        _kill_session(process.pid)
        process.wait(_STOP_TIMEOUT_S)
        _wait_until_empty(process.pid)


def members(session: int) -> list[int]:
    """Processes of a session that have not ended (Linux; elsewhere none are found)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, behind_name = (folder / "stat").read_text().rpartition(")")
        except OSError:  # it ended while we looked
            continue
        state, _, _, its_session = behind_name.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(int(folder.name))
    return found


def _kill_session(session: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    for member in members(session):
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def _wait_until_empty(session: int) -> None:
    poll(lambda: not members(session), timeout_s=_LEFTOVERS_TIMEOUT_S, pause_s=POLL_S)


def free_metrics_port(command: str) -> int:
    """The usual port of a command's metrics, or another one that nothing on loopback has bound at this moment."""
    try:
        claim(USUAL_PORTS[command])
    except OSError:
        return free_ports(1)[0]
    return USUAL_PORTS[command]


_KILL_AFTER_ROUNDS = 8
"""By then the leader has decided something."""


@dataclass(slots=True)
class Pair:
    """The leader is killed after some rounds; the story says so, and when the standby has closed its first round."""

    leader: Trimtab
    standby: Trimtab
    _killed_s: float | None = field(init=False, default=None)
    _rounds_before: int = field(init=False, default=0)

    def follow(self, story: Story) -> None:
        """Kill the leader when it is time, and add the kill and the take-over to the story."""
        if self._killed_s is None:
            if story.rounds_count >= _KILL_AFTER_ROUNDS and story.decided_count > 0:
                self.leader.kill()
                self._killed_s, self._rounds_before = time.monotonic(), story.rounds_count
                story.happenings.append(
                    "killed the leader (kill -9): the standby takes over when it hears nothing from the leader for "
                    f"{SESSION_S:g} s"
                )
        elif story.metrics_url != self.standby.metrics_url and story.rounds_count > self._rounds_before:
            story.metrics_url = self.standby.metrics_url
            seconds = time.monotonic() - self._killed_s
            story.happenings.append(f"the standby leads: its first round came {seconds:.1f} s after the kill")
