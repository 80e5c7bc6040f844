"""Where collectors and executors send their events, and controllers their beats.

Sending is not exactly-once, and it need not be: input events carry ids and times, and a repeated one changes nothing.
"""

import threading
from typing import BinaryIO, Protocol


class EventSink(Protocol):
    """A place to which events are sent. Thread-safe."""

    def send(self, key: str, value: bytes) -> None:
        """Hand an event over; raises ``PublishError`` if that is impossible. ``flush`` reports whether it was written."""

    def flush(self) -> None:
        """Wait until all events handed over are written; raises ``PublishError`` naming how many are not."""

    def close(self) -> None:
        """Close connections."""


class LineEvents:
    """Events as lines of a file, for ``trimtab replay``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def send(self, key: str, value: bytes) -> None:
        """See ``EventSink``; the key is in the event."""
        del key
        with self._lock:
            self._file.write(value + b"\n")

    def flush(self) -> None:
        """See ``EventSink``."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """Does nothing, because the caller closes the file."""
