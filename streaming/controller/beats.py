"""The controller's beat, every few seconds: it says that this process runs, and how far it is.

A thread of its own writes it, so that brokers that do not answer hold nothing up. Without the topic, or the permission to
write it, the controller runs all the same.
"""

import logging
import threading
from collections.abc import Callable

from streaming.contract import beat as beats
from streaming.contract.beat import Beat
from streaming.ports.events import EventSink, NoTopic
from streaming.ports.publishing import PublishError
from streaming.process.closing import Closing

__all__ = ["Beats"]

_LOG = logging.getLogger(__name__)

_AGAIN_S = 30.0
"""How soon a topic is tried again that could not be written."""
_CLOSE_S = 2.0
"""How long the end of the process waits for a beat on its way."""


class Beats(Closing):
    """Writes what ``beat`` returns from now on, until it is closed."""

    def __init__(
        self,
        connect: Callable[[], EventSink],
        beat: Callable[[], Beat],
        *,
        every_s: float = beats.EVERY_S,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._connect, self._beat = connect, beat
        self._every_s, self._again_s = every_s, again_s
        self._sink: EventSink | None = None
        self._has_failed = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        self._closed.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            pause_s = self._every_s if self._write() else self._again_s
        self._disconnect()

    def _write(self) -> bool:
        try:
            if self._sink is None:
                self._sink = self._connect()
            beat = self._beat()
            self._sink.send(beat.name, beats.encode(beat))
            self._sink.flush()
        except (PublishError, NoTopic) as error:
            self._note_failure(error)
            return False
        except Exception:  # noqa: BLE001  logged with its traceback; the controller goes on without beats for a while
            _LOG.exception("a beat could not be written")
            self._disconnect()
            return False
        if self._has_failed:
            _LOG.info("beats are written again")
        self._has_failed = False
        return True

    def _note_failure(self, error: Exception) -> None:
        if not self._has_failed:
            _LOG.warning("no beats are written, so `trimtab status` cannot say that this runs: %s", error)
        self._has_failed = True
        self._disconnect()

    def _disconnect(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()
