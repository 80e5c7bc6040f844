"""The controller's beat, every few seconds: it says that this process runs, whether it leads, and how far it is.

A thread of its own writes it, so that brokers that do not answer hold nothing up. Without the topic, or the permission to
write to it, the controller runs all the same; a standby then takes over from it after each session.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import version

import msgspec

from state.outputs import rfc3339
from streaming.contract import beat as beats
from streaming.contract.beat import Beat, Role
from streaming.process.closeable import Closeable
from streaming.transport.errors import NoTopic, PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)

_AGAIN_S = 30.0
"""How soon a missing topic is tried again."""
_CLOSE_S = 2.0
"""How long the end of the process waits for its last beat."""


def _no_batch() -> int | None:
    return None


class ProcessState:
    """What this process does now, as its beats say it. Written by the driver, read by the beats' thread."""

    def __init__(
        self, *, name: str, session_s: float, is_alive: Callable[[], bool], checkpoint: str = ""
    ) -> None:
        """A process that is not alive writes no beats, so that a standby takes over from one that hangs."""
        self._name, self._session_s, self._is_alive = name, session_s, is_alive
        self._checkpoint = checkpoint
        self.instance = f"{socket.gethostname()}:{os.getpid()}"
        self._role: Role | None = None
        self._epoch = 0
        self._batch_id: Callable[[], int | None] = _no_batch
        self._problem = ""

    def stand_by(self, problem: str = "") -> None:
        """The process waits for its turn to lead; ``problem`` says why it could not lead."""
        self._role, self._problem, self._batch_id = "standby", problem, _no_batch

    def lead(self, epoch: int, batch_id: Callable[[], int | None]) -> None:
        """The process leads; ``batch_id`` returns the newest batch it has begun."""
        self._epoch, self._batch_id, self._problem = epoch, batch_id, ""
        self._role = "leader"

    def note_problem(self, problem: str) -> None:
        """Why the leader's query fails, such as a full disk; empty once it works again."""
        self._problem = problem

    def be_silent(self) -> None:
        """The process was superseded and ends without a goodbye, which would make a standby take over from the successor."""
        self._role = None

    def beat(self) -> Beat | None:
        """The beat to write now; None if there is none, or the process is not alive."""
        role = self._role
        if role is None or not self._is_alive():
            return None
        return Beat(
            name=self._name,
            instance=self.instance,
            epoch=self._epoch,
            batch=self._batch_id(),
            at=rfc3339(round(time.time() * 1000)),
            version=version("trimtab"),
            spark_version=version("pyspark"),
            role=role,
            session_s=self._session_s,
            checkpoint=self._checkpoint,
            problem=self._problem,
        )


class Beats(Closeable):
    """Writes what ``beat`` returns, again and again until it is closed, and then a last time."""

    def __init__(
        self,
        connect: Callable[[], EventSink],
        beat: Callable[[], Beat | None],
        *,
        every_s: float,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._connect, self._beat = connect, beat
        self._every_s, self._again_s = every_s, again_s
        self._sink: EventSink | None = None
        self._has_failed = False
        self.problem = ""
        """Why no beats are written now; empty where they are."""
        self._is_closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._thread.start()

    def beat_now(self) -> None:
        """Do not wait for the next beat's time: something has changed."""
        self._wake.set()

    def write_last_beat(self) -> None:
        """Write one last beat, so that a standby need not wait for the session's end. Does not wait until it is written."""
        self._is_closed = True
        self._wake.set()

    def close(self) -> None:
        """Say goodbye, and wait a little until it is written."""
        self.write_last_beat()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._is_closed:
            pause_s = self._write(is_leaving=False)
            self._wake.wait(pause_s)
            self._wake.clear()
        if not self._has_failed:
            self._write(is_leaving=True)
        self._disconnect()

    def _write(self, *, is_leaving: bool) -> float:
        """Write a beat; returns the seconds until the next one."""
        try:
            self._send(is_leaving=is_leaving)
        except NoTopic as error:
            self._note_failure(error)
            return self._again_s
        except PublishError as error:
            self._note_failure(error)
            return min(self._every_s, self._again_s)
        except Exception:  # noqa: BLE001  logged with its traceback; the controller goes on without beats for a while
            _LOG.exception("a beat could not be written")
            self._disconnect()
            return self._again_s
        if self._has_failed:
            _LOG.info("beats are written again")
        self._has_failed, self.problem = False, ""
        return self._every_s

    def _send(self, *, is_leaving: bool) -> None:
        beat = self._beat()
        if beat is None:
            return
        if self._sink is None:
            self._sink = self._connect()
        self._sink.send(beat.name, beats.encode(msgspec.structs.replace(beat, is_leaving=is_leaving)))
        self._sink.flush()

    def _note_failure(self, error: Exception) -> None:
        if not self._has_failed:
            _LOG.warning(
                "no beats are written, so other processes do not see that this controller runs: %s", error
            )
        self._has_failed, self.problem = True, str(error)
        self._disconnect()

    def _disconnect(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
