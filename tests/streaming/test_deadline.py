"""Waiting with a limit, on a clock that only sleeping moves."""

import pytest

from streaming.process import deadline
from streaming.process.deadline import Deadline, poll


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each sleep; the clock shows their sum."""
    found: list[float] = []
    monkeypatch.setattr(deadline.time, "monotonic", lambda: sum(found))
    monkeypatch.setattr(deadline.time, "sleep", found.append)
    return found


def test_a_deadline_is_over_when_its_seconds_have_passed(slept: list[float]) -> None:
    until = Deadline(10.0)
    slept.append(9.0)
    assert (until.left_s, until.is_over) == (1.0, False)
    slept.append(2.0)
    assert (until.left_s, until.is_over, until.timeout_s) == (0.0, True, 10.0)


def test_what_is_done_already_is_not_waited_for(slept: list[float]) -> None:
    assert poll(lambda: True, timeout_s=0.0, pause_s=1.0)
    assert slept == []


def test_what_becomes_true_in_time_is_noticed_at_the_next_look(slept: list[float]) -> None:
    assert poll(lambda: sum(slept) >= 2.5, timeout_s=10.0, pause_s=1.0)
    assert slept == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("timeout_s", "expected"), [(0.0, []), (2.5, [1.0, 1.0, 0.5])])
def test_after_the_limit_there_is_one_last_look(
    slept: list[float], timeout_s: float, expected: list[float]
) -> None:
    looks: list[float] = []
    assert not poll(lambda: bool(looks.append(sum(slept))), timeout_s=timeout_s, pause_s=1.0)
    assert slept == expected
    assert looks[-1] == timeout_s
