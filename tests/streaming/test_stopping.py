"""A signal stops a program wherever its main thread is at that moment."""

import signal
import threading

import pytest

from streaming.process.stopping import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_the_main_thread_holds_the_lock_that_stopping_needs(
    number: signal.Signals,
) -> None:
    lock, stopped, heard = threading.Lock(), threading.Event(), []

    def stop(received: signal.Signals) -> None:
        with lock:
            heard.append(received)
            stopped.set()

    with stopped_by_signals(stop):
        with lock:
            signal.raise_signal(number)
        assert stopped.wait(30)
    assert heard == [number]


def test_afterwards_the_handlers_are_those_of_before() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stopped_by_signals(lambda _: None):
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
