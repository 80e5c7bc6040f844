"""An outage at the start is waited out, as long as the limit says."""

from collections.abc import Callable

import pytest

from streaming.process import deadline
from streaming.process.exits import NotReached
from streaming.process.waiting import OutageWait, StoppedWaiting


class Time:
    """A clock that a pause moves."""

    def __init__(self, stop_after_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self.shown: list[str] = []
        self._stop_after_s = stop_after_s

    def pause(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s < self._stop_after_s

    def wait(self, limit_s: float) -> OutageWait:
        return OutageWait(
            limit_s,
            outage_of=lambda error: "the brokers" if isinstance(error, ConnectionError) else None,
            pause=self.pause,
            show=self.shown.append,
        )


class Broker:
    """A broker that answers from ``up_at_s`` on."""

    def __init__(self, time: Time, up_at_s: float) -> None:
        self._time, self._up_at_s = time, up_at_s

    def ask(self) -> str:
        if self._time.now_s < self._up_at_s:
            raise ConnectionError("b1 does not answer")
        return "here"


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Time]:
    """Makes a clock; the newest one is this process's."""

    def make(stop_after_s: float = float("inf")) -> Time:
        time = Time(stop_after_s)
        monkeypatch.setattr(deadline.time, "monotonic", lambda: time.now_s)
        return time

    return make


def test_an_outage_shorter_than_the_limit_is_waited_out_and_shown(times: Callable[..., Time]) -> None:
    time = times()
    assert time.wait(600).run(Broker(time, up_at_s=100).ask) == "here"
    assert 100 <= time.now_s < 120
    assert time.shown[0] == "waiting for the brokers: b1 does not answer"


def test_a_longer_one_ends_at_the_limit_with_its_error_and_a_code_of_its_own_and_0_does_not_wait(
    times: Callable[..., Time],
) -> None:
    for limit_s in (600, 0):
        time = times()
        with pytest.raises(NotReached, match=f"b1(?s:.*){limit_s} s"):
            time.wait(limit_s).run(Broker(time, up_at_s=1000).ask)
        assert time.now_s == limit_s


def test_what_waiting_does_not_mend_is_raised_at_once(times: Callable[..., Time]) -> None:
    time = times()

    def wrong() -> None:
        raise ValueError("topics missing")

    with pytest.raises(ValueError, match="topics missing"):
        time.wait(600).run(wrong)
    assert time.now_s == 0


def test_a_stop_ends_the_wait(times: Callable[..., Time]) -> None:
    time = times(stop_after_s=50)
    with pytest.raises(StoppedWaiting):
        time.wait(600).run(Broker(time, up_at_s=1000).ask)
    assert time.now_s < 70
