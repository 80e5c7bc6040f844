"""What the summary of a Kafka round says of the throttle."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from policies.throttle.pacing_plan import PacingMemory
from policies.throttle.progress import Basis, Eta
from policies.throttle.settings import ThrottleSettings
from state.kafka import summary
from state.kafka.memory import KafkaMemory
from tests.state.kafka.test_drift import seen_of

BEGUN_MS, DEADLINE_S = 10_000, 60.0


def is_late(
    *,
    at_ms: int,
    remaining_s: float | None,
    basis: Basis = "observed",
    deadline_s: float = DEADLINE_S,
    begun_ms: int | None = BEGUN_MS,
) -> bool:
    eta = Eta(
        remaining_s=remaining_s, basis=basis, predicted_s=None, observed_s=None, observed_weight_ratio=0.0
    )
    closed: Any = SimpleNamespace(settings=SimpleNamespace(throttle=ThrottleSettings(deadline_s=deadline_s)))
    explanation: Any = SimpleNamespace(eta=eta)
    memory = KafkaMemory(pacing=PacingMemory(begun_ms=begun_ms))
    return summary._is_late(closed, memory, replace(seen_of(), at_ms=at_ms), explanation)


@pytest.mark.parametrize(
    ("at_ms", "remaining_s", "late"),
    [(30_000, 40.0, False), (30_000, 40.001, True), (70_000, 0.0, False), (70_001, 0.0, True)],
)
def test_a_move_is_late_that_will_not_be_done_by_its_deadline(
    at_ms: int, remaining_s: float, *, late: bool
) -> None:
    assert is_late(at_ms=at_ms, remaining_s=remaining_s) == late


def test_a_move_whose_end_nobody_knows_is_late_after_its_deadline() -> None:
    assert not is_late(at_ms=70_000, remaining_s=None, basis="unknown")
    assert is_late(at_ms=70_001, remaining_s=None, basis="unknown")


def test_a_move_that_does_not_catch_up_is_late_at_once() -> None:
    assert is_late(at_ms=10_001, remaining_s=None, basis="not-catching-up")


def test_without_a_deadline_or_a_throttle_nothing_is_late() -> None:
    assert not is_late(at_ms=10**9, remaining_s=None, basis="not-catching-up", deadline_s=0)
    assert not is_late(at_ms=10**9, remaining_s=None, basis="not-catching-up", begun_ms=None)
