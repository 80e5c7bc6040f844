"""What waits in open rounds: the newest report of each sender, whether it is in the store or came in this batch."""

from typing import Any, NamedTuple

import pytest

from state.engine.memory import Header, OpenRound
from state.engine.store import DictStore, WaitingKey
from state.engine.waiting import WaitingRoom, silence_ms, widen


class Said(NamedTuple):
    """A report by its age."""

    time_ms: int
    id: str

    @property
    def age_key(self) -> tuple[int, str]:
        return (self.time_ms, self.id)

    @property
    def rows_count(self) -> int:
        return 1


def encode(_key: WaitingKey, waiting: Any) -> bytes:
    return f"{waiting.time_ms} {waiting.id}".encode()


def decode(_key: WaitingKey, value: bytes) -> Any:
    time_ms, id_ = value.decode().split()
    return Said(int(time_ms), id_)


def key(number: int, broker: str = "b1") -> WaitingKey:
    return WaitingKey(number, "report", broker)


def room(store: DictStore, *stored_rounds: int) -> WaitingRoom:
    return WaitingRoom(store, stored_rounds, encode, decode)


def test_the_newer_one_stays_and_of_equal_times_the_greater_id() -> None:
    found = room(DictStore())
    assert found.put(key(1), Said(5, "b")) == (None, Said(5, "b"))
    assert found.put(key(1), Said(4, "z")) == (Said(5, "b"), Said(5, "b"))
    assert found.put(key(1), Said(5, "a")) == (Said(5, "b"), Said(5, "b"))
    assert found.put(key(1), Said(5, "c")) == (Said(5, "b"), Said(5, "c"))
    assert found.put(key(1), Said(6, "a")) == (Said(5, "c"), Said(6, "a"))


def test_what_an_earlier_batch_left_is_found_compared_and_taken() -> None:
    store = DictStore()
    first = room(store)
    first.put(key(1), Said(5, "b"))
    first.put(key(1, "b2"), Said(6, "b"))
    first.put(key(2), Said(7, "b"))
    first.flush()
    second = room(store, 1, 2)
    assert second.find(key(1)) == Said(5, "b")
    assert second.put(key(1), Said(4, "a")) == (Said(5, "b"), Said(5, "b"))
    assert second.put(key(1), Said(8, "a")) == (Said(5, "b"), Said(8, "a"))
    assert second.take(1) == {key(1): Said(8, "a"), key(1, "b2"): Said(6, "b")}
    assert second.take(1) == {}
    assert second.find(key(1)) is None
    second.flush()
    assert dict(store.all_waiting()) == {key(2): b"7 b"}
    assert room(store, 2).take(2) == {key(2): Said(7, "b")}


def test_rounds_that_the_store_has_nothing_of_are_not_asked_for() -> None:
    store = DictStore()
    store.put_waiting(key(3), b"1 a")
    assert room(store).find(key(3)) is None
    assert room(store).take(3) == {}


def test_what_comes_and_leaves_within_a_batch_never_reaches_the_store() -> None:
    store = DictStore()
    found = room(store)
    found.put(key(1), Said(5, "b"))
    found.take(1)
    found.flush()
    assert list(store.all_waiting()) == []


def test_after_a_flush_what_was_written_is_still_found() -> None:
    store = DictStore()
    found = room(store)
    found.put(key(1), Said(5, "b"))
    found.flush()
    assert found.find(key(1)) == Said(5, "b")
    assert found.take(1) == {key(1): Said(5, "b")}
    found.flush()
    assert list(store.all_waiting()) == []


@pytest.mark.parametrize(
    ("spans", "time_ms", "expected"),
    [
        ([], 5, [(5, 5)]),
        ([(0, 10)], 20, [(0, 20)]),
        ([(0, 10)], 21, [(0, 10), (21, 21)]),
        ([(30, 40)], 20, [(20, 40)]),
        ([(30, 40)], 19, [(19, 19), (30, 40)]),
        ([(0, 10), (30, 40)], 20, [(0, 40)]),
        ([(0, 10), (32, 40)], 21, [(0, 10), (21, 21), (32, 40)]),
        ([(0, 10), (31, 40)], 21, [(0, 10), (21, 40)]),
        ([(0, 10)], 5, [(0, 10)]),
    ],
)
def test_reports_no_further_apart_than_the_gap_are_one_stretch(
    spans: list[tuple[int, int]], time_ms: int, expected: list[tuple[int, int]]
) -> None:
    widen(spans, time_ms, 10)
    assert spans == expected


@pytest.mark.parametrize(
    ("spans", "last_report_ms", "expected"),
    [
        ([], 5, 0),
        ([(100, 200)], None, 0),
        ([(100, 200)], 40, 60),
        ([(100, 200), (290, 300)], 40, 90),
        ([(100, 200), (240, 300)], 40, 60),
    ],
)
def test_the_longest_silence_before_a_round_or_within_it(
    spans: list[tuple[int, int]], last_report_ms: int | None, expected: int
) -> None:
    header = Header(length_ms=60_000, last_report_ms=last_report_ms)
    header.rounds[3] = OpenRound(spans=spans)
    assert silence_ms(header, 3) == expected
