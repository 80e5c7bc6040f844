"""A signal stops a program wherever its main thread is at that moment."""

import signal
import threading
from collections.abc import Iterator

import pytest

from streaming.process.stop_signals import stop_requests_kept, stopped_by_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A process that was asked to stop ignores the signals to its end; this one goes on."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_the_main_thread_holds_the_lock_that_stopping_needs(number: signal.Signals):
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_while_a_program_is_imported_stops_it_as_soon_as_it_can(number: signal.Signals):
    stopped = threading.Event()
    with stop_requests_kept():
        signal.raise_signal(number)
        with stopped_by_signals(lambda _: stopped.set()):
            assert stopped.wait(30)


def test_a_program_stops_once_however_often_it_is_asked_and_is_asked_in_vain_afterwards():
    heard, stopped = [], threading.Event()

    def stop(number: signal.Signals) -> None:
        heard.append(number)
        stopped.set()

    with stopped_by_signals(stop):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert stopped.wait(30)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGINT]


def test_where_no_stop_came_the_handlers_are_afterwards_those_of_before():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stopped_by_signals(lambda _: None):
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
