"""Hears the beats of other processes, in a thread of its own: an answer of brokers may take as long as a connection attempt."""

import logging
import threading
import time
from collections.abc import Callable

from streaming.contract.beat import Beat
from streaming.controller.election import Election
from streaming.process.closing import Closing
from streaming.process.exits import Refused
from streaming.transport.side import Reader

_LOG = logging.getLogger(__name__)

_MOST_BETWEEN_READS_S = 0.5
"""A goodbye is heard within this time."""
_READS_A_SESSION = 20
_AGAIN_S = 1.0
"""Seconds between attempts to read a topic that could not be read."""


class Listener(Closing):
    """Reads the topic of beats to its end again and again, and asks the election after each read."""

    def __init__(self, connect: Callable[[], Reader], election: Election, *, session_s: float) -> None:
        self._connect, self._election = connect, election
        self._every_s = min(_MOST_BETWEEN_READS_S, session_s / _READS_A_SESSION)
        self._reader: Reader | None = None
        self.reason: str | None = None
        """Why this standby may try to lead now; None where it may not."""
        self.problem = ""
        """Why the topic cannot be read; empty where it can."""
        self._closed = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._thread.start()

    @property
    def leader(self) -> Beat | None:
        """See ``Election.leader``."""
        return self._election.leader

    def wait(self, seconds: float) -> None:
        """Wait at most so long; less once there is a reason to try to lead."""
        self._changed.wait(seconds)

    def close(self) -> None:
        """Stop hearing; a read in progress is not waited for."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            is_read = self._read()
            self.reason = self._election.reason()
            if self.reason is not None:
                self._changed.set()
            else:
                self._changed.clear()
            self._closed.wait(self._every_s if is_read else _AGAIN_S)
        self._disconnect()

    def _read(self) -> bool:
        began_s = time.monotonic()
        try:
            if self._reader is None:
                self._reader = self._connect()
            for record in self._reader.read_to_end():
                self._election.receive(record.value)
        except Refused as error:
            self._note_failure(error.message)
            return False
        except Exception as error:  # noqa: BLE001  logged with its traceback; the next read may go well
            _LOG.exception("the beats could not be read")
            self._note_failure(repr(error))
            return False
        if self.problem:
            _LOG.info("beats are read again")
        self.problem = ""
        self._election.note_read(began_s)
        return True

    def _note_failure(self, problem: str) -> None:
        if not self.problem:
            _LOG.warning("the beats of the leader cannot be read: %s", problem)
        self.problem = problem
        self._election.note_failure()
        self._disconnect()

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
