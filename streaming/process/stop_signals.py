"""Being asked to stop: SIGTERM and Ctrl-C are the same, from a program's first moment to its last."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType

_LOG = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_STOP_S = 5.0
"""The listener is a daemon: if something holds it up, the process can end all the same."""
_asked: SimpleQueue[signal.Signals | None] = SimpleQueue()
"""Requests that nobody has heard yet. A handler interrupts the main thread anywhere; ``put`` is safe there."""


@contextmanager
def stop_requests_kept() -> Iterator[None]:
    """Keep SIGTERM and SIGINT for ``stopped_by_signals``, so that they cut off no import and no start. Only for the main thread."""
    before = {number: signal.signal(number, _keep) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


@contextmanager
def stopped_by_signals(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call ``stop`` at the first SIGTERM or SIGINT inside the block, or kept until then, and log it. Only for the main thread.

    ``stop`` is called in a thread of its own: the main thread may hold the lock that ``Event.set`` or a log line needs, and would
    wait for that lock for ever. A process that was asked to stop ignores both signals after the block, to its end.
    """
    heard: list[signal.Signals] = []

    def listen() -> None:
        while (number := _asked.get()) is not None:
            if not heard:
                heard.append(number)
                _LOG.info("%s: stopping, as soon as what is in progress is finished", number.name)
                stop(number)

    listener = threading.Thread(target=listen, name="stop-signals", daemon=True)
    with stop_requests_kept():
        listener.start()
        try:
            yield
        finally:
            _asked.put(None)
            listener.join(_STOP_S)
            if heard:
                for number in _SIGNALS:
                    signal.signal(number, signal.SIG_IGN)


@contextmanager
def watched() -> Iterator[None]:
    """A block that only shows something, for as long as a person looks: Ctrl-C and SIGTERM end it anywhere. Only for the main thread."""
    with suppress(KeyboardInterrupt), interrupted_by_sigterm():
        yield


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """A block in which SIGTERM is a ``KeyboardInterrupt``, as Ctrl-C is. Only for the main thread."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep(number: int, _frame: FrameType | None) -> None:
    _asked.put(signal.Signals(number))
