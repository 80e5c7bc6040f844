"""Being asked to stop: SIGTERM and Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

__all__ = ["stopped_by_signals"]

_STOP_S = 5.0
"""The listener is a daemon: if something holds it up, the process can end all the same."""


@contextmanager
def stopped_by_signals(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call ``stop`` for every SIGTERM and SIGINT that comes inside the block. Only for the main thread.

    ``stop`` is called in a thread of its own: a handler interrupts the main thread anywhere, also while it holds the lock that
    ``Event.set`` or a log line needs, and would wait for that lock for ever. ``SimpleQueue.put`` is safe in a handler.
    """
    signals: SimpleQueue[signal.Signals | None] = SimpleQueue()

    def listen() -> None:
        while (number := signals.get()) is not None:
            stop(number)

    listener = threading.Thread(target=listen, name="stop-signals", daemon=True)
    listener.start()
    before = {
        number: signal.signal(number, lambda received, _frame: signals.put(signal.Signals(received)))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(None)
        listener.join(_STOP_S)
