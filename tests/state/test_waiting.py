"""What waits in open rounds: the newest report of each sender, whether it is in the store or came in this batch."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

import state.report_buffer
from state.layouts import unseal
from state.memory import Header, OpenRound, Sender, Waiters, WaitingKey
from state.report_buffer import ReportBuffer, decode_batch, silence_ms, widen
from state.store import DictStore, StoredKey


class Said(NamedTuple):
    """A report by its age."""

    time_ms: int
    id: str
    rows_count: int = 1

    @property
    def age_key(self) -> tuple[int, str]:
        return (self.time_ms, self.id)


def decode(key: WaitingKey, value: bytes) -> Any:
    return msgspec.msgpack.decode(unseal(key.kind, value), type=Said)


class Batches:
    """A waiting room, made anew for each batch, as a controller is."""

    def __init__(self, store: DictStore | None = None) -> None:
        self.store = DictStore() if store is None else store
        self.rounds = {number: OpenRound() for number in range(4)}
        self.begin()

    def begin(self) -> None:
        self.room = ReportBuffer(self.store, decode)

    def end(self) -> None:
        self.room.flush(self.rounds)
        self.begin()

    def put(self, number: int, said: Said, broker: str = "b1") -> bool:
        return self.room.put(self.rounds[number], WaitingKey(number, "report", broker), said)

    def take(self, number: int) -> dict[str, Any]:
        found = self.room.take(number, self.rounds.pop(number))
        return {key.broker: each for key, each in found.items()}

    def stored(self) -> list[tuple[int, list[str]]]:
        """Number and senders of each stored value."""
        return [
            (key.number, [each.broker for each in decode_batch(value)])
            for key, value in self.store.all_waiting()
        ]


def test_the_newer_one_stays_and_of_equal_times_the_greater_id() -> None:
    for said, expected in [
        ([Said(5, "b"), Said(4, "z")], Said(5, "b")),
        ([Said(5, "b"), Said(5, "a")], Said(5, "b")),
        ([Said(5, "b"), Said(5, "c")], Said(5, "c")),
        ([Said(5, "b"), Said(6, "a")], Said(6, "a")),
        ([Said(5, "b"), Said(5, "b")], Said(5, "b")),
    ]:
        at_once, apart = Batches(), Batches()
        assert [at_once.put(1, each) for each in said] == [True, False]
        for each in said:
            apart.put(1, each)
            apart.end()
        assert at_once.take(1) == apart.take(1) == {"b1": expected}


def test_what_an_earlier_batch_left_is_taken_and_leaves_the_store() -> None:
    found = Batches()
    found.put(1, Said(5, "b"))
    found.put(1, Said(6, "b"), "b2")
    found.put(2, Said(7, "b"))
    found.end()
    assert found.put(1, Said(8, "a")) is False
    assert found.take(1) == {"b1": Said(8, "a"), "b2": Said(6, "b")}
    found.end()
    assert [key.round for key, _ in found.store.all_waiting()] == [2]
    assert found.take(2) == {"b1": Said(7, "b")}
    found.end()
    assert list(found.store.all_waiting()) == []


def test_the_round_says_who_waits_with_how_many_rows() -> None:
    found = Batches()
    found.put(1, Said(5, "b", 3))
    found.put(1, Said(5, "b", 4), "b2")
    found.put(1, Said(6, "b", 5))
    found.put(1, Said(4, "b", 9))
    assert found.rounds[1].waiters == {
        "report": Waiters(9, {"b1": Sender(6, "b", 5), "b2": Sender(5, "b", 4)})
    }


def test_a_round_without_stored_values_does_not_read_the_store() -> None:
    class Unread(DictStore):
        def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
            raise AssertionError

    found = Batches(Unread())
    found.put(1, Said(5, "b"))
    assert found.take(1) == {"b1": Said(5, "b")}


def test_what_comes_and_leaves_within_a_batch_never_reaches_the_store() -> None:
    found = Batches()
    found.put(1, Said(5, "b"))
    found.take(1)
    found.end()
    assert found.stored() == []


def test_after_a_flush_what_was_written_is_still_taken() -> None:
    found = Batches()
    found.put(1, Said(5, "b"))
    found.room.flush(found.rounds)
    assert found.take(1) == {"b1": Said(5, "b")}
    found.room.flush({})
    assert found.stored() == []


def test_a_batch_is_one_stored_value_up_to_its_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Batches()
    for broker in ("b1", "b2", "b3"):
        found.put(1, Said(5, "b"), broker)
    found.end()
    found.put(1, Said(5, "b"), "b4")
    found.end()
    assert found.stored() == [(0, ["b1", "b2", "b3"]), (3, ["b4"])]
    monkeypatch.setattr(state.report_buffer, "_MAX_BATCH_BYTES", 2 * len(b"5 b 1"))
    for broker in ("b5", "b6", "b7"):
        found.put(1, Said(5, "b"), broker)
    found.end()
    assert found.stored()[2:] == [(4, ["b5", "b6"]), (6, ["b7"])]
    assert sorted(found.take(1)) == [f"b{number}" for number in range(1, 8)]


def test_senders_that_repeat_themselves_leave_at_most_one_replaced_value_for_each_that_counts() -> None:
    found = Batches()
    found.put(2, Said(1, "z"))
    for time_ms in range(20):
        found.put(1, Said(time_ms, "a"))
        found.put(1, Said(time_ms, "a"), "b2")
        found.end()
        senders = [broker for _, brokers in found.stored() for broker in brokers]
        assert len(senders) == 1 + found.rounds[1].stored_count <= 1 + 2 * 2
    assert found.take(1) == {"b1": Said(19, "a"), "b2": Said(19, "a")}
    assert found.take(2) == {"b1": Said(1, "z")}


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
