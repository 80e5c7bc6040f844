"""A throttle action that is held: its outcome, and what is remembered of it. The cluster is a list of what was set."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.admin import ConfigResourceType

from streaming.executor.kafka import ThrottleExecutor
from streaming.executor.orders import Held, Skip
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import Change
from streaming.transport.errors import Taken
from streaming.transport.executor import Rate, Remembered

CHANGES = [
    Change(kind=ConfigResourceType.BROKER, name=str(number), key="rate", value="1") for number in range(3)
]
DURING = Remembered(rates={"leader:1": Rate(5, None, earlier=4)})
AFTER = Remembered(rates={"leader:1": Rate(5, None)})


@dataclass(slots=True)
class Memory:
    """Stands in for the memory on a topic. ``taken`` is what another executor wrote that has taken the memory from its holder."""

    remembered: Remembered = field(default_factory=Remembered)
    taken: Remembered | None = None

    def read(self) -> Remembered:
        return self.remembered

    @contextmanager
    def hold(self) -> Iterator["Memory"]:
        yield self

    def write(self, remembered: Remembered) -> None:
        if self.taken is not None:
            self.remembered, self.taken = self.taken, None
            raise Taken("another has it")
        self.remembered = remembered


def held_at(attempt: int) -> Callable[[], None]:
    attempts = iter(range(1, 99))

    def recheck() -> None:
        if next(attempts) == attempt:
            raise Held(Skip("paused", "the sale"))

    return recheck


@pytest.fixture
def put() -> list[Change]:
    """What was set on the cluster."""
    return []


def carry(memory: Memory, put: list[Change], recheck: Callable[[], None]) -> None:
    kafka: Any = SimpleNamespace(apply=put.extend)
    ThrottleExecutor(memory)._carry_out_changes(kafka, memory, CHANGES, DURING, AFTER, recheck)


def test_held_before_its_first_setting_it_is_skipped_and_nothing_is_remembered(put: list[Change]) -> None:
    memory = Memory()
    with pytest.raises(Held):
        carry(memory, put, held_at(1))
    assert (put, memory.remembered) == ([], Remembered())


def test_held_in_the_middle_it_is_a_failure_that_says_so_and_all_of_it_is_remembered(
    put: list[Change],
) -> None:
    memory = Memory()
    with pytest.raises(ClusterError, match="2 of 3 settings made, then paused: the sale"):
        carry(memory, put, held_at(3))
    assert (put, memory.remembered) == (CHANGES[:2], DURING)


def test_stopped_in_the_middle_all_of_it_is_remembered_for_whoever_takes_it_up_again(
    put: list[Change],
) -> None:
    class Stopped(Exception):
        """Stands in for the error that the loop raises when it is stopped."""

    attempts = iter(range(len(CHANGES)))

    def recheck() -> None:
        if next(attempts) == 1:
            raise Stopped

    memory = Memory()
    with pytest.raises(Stopped):
        carry(memory, put, recheck)
    assert (put, memory.remembered) == (CHANGES[:1], DURING)


def test_what_was_set_behind_the_back_of_one_who_took_the_memory_is_remembered_with_his(
    put: list[Change],
) -> None:
    memory = Memory(taken=Remembered(rates={"leader:1": Rate(9, None)}))
    with pytest.raises(Taken):
        carry(memory, put, held_at(99))
    assert put == CHANGES
    assert memory.remembered == Remembered(rates={"leader:1": Rate(9, None, earlier=5)})
