"""Names of partitions, places in a partition's log, and how far a batch may go. Pure.

A partition is a chain of ledgers, each with entries 0, 1, …; an entry is one message, or a producer's whole batch of them.
A position names the last entry that is done, ``ledger:entry``; ``ledger:-1`` is the beginning of a ledger. Ids of ledgers
rise, are unique in a cluster and never used again, so they show whether a topic was made anew.

Pulsar drops a ledger that is still empty when the topic is loaded again (unloaded, its broker restarted) and opens another.
So ``ledger:-1``, before which nothing was ever read, may name a ledger that is gone although nothing is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from state.layouts import FRESH
from streaming.transport.errors import SKIP_LOST

_ENTRY_BITS, _BATCH_BITS, _LEDGER_BITS = 24, 10, 29
_PERSISTENT = "persistent://"
_PARTITION = "-partition-"


class DataLoss(Exception):
    """The log no longer holds what is still to be read; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The last entry that is done."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``ledger:entry``. Raises ValueError naming the text."""
        ledger, _, entry = text.partition(":")
        try:
            return cls(int(ledger), int(entry))
        except ValueError as error:
            raise ValueError(f"{text!r} is no position: expected ledger:entry") from error

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger with the number of entries it has now."""

    id: int
    entries: int


@dataclass(frozen=True, slots=True)
class Log:
    """A partition's log as it is now: its ledgers, ascending, at least one."""

    ledgers: Sequence[Ledger]
    written: Position | None = None
    """The last entry ever written, if the broker reports it; it may be gone."""
    acknowledged: Position | None = None
    """How far the subscription that keeps unread messages has been moved; None where there is no such subscription."""

    @property
    def first(self) -> Position:
        """Before everything that is there."""
        return Position(self.ledgers[0].id, -1)

    def nearest(self, start: Position) -> Position:
        """``start``, or the beginning of what is there if the ledger of ``start`` is gone."""
        is_there = any(ledger.id == start.ledger for ledger in self.ledgers)
        return start if is_there else max(start, self.first)

    @property
    def last(self) -> Position:
        """After everything that is there."""
        return self.advance(self.first, None)

    def advance(self, start: Position, entries_max: int | None) -> Position:
        """The end of the next range after ``start``, of at most ``entries_max`` entries; ``start`` where there are none.

        A range never holds ledgers whose ids ``pack`` cannot put in order.
        """
        position, left = start, entries_max
        for ledger in self.ledgers:
            done = position.entry + 1 if ledger.id == position.ledger else 0
            available = ledger.entries - done
            if ledger.id < position.ledger or available <= 0:
                continue
            if position > start and ledger.id >> _LEDGER_BITS != position.ledger >> _LEDGER_BITS:
                break
            taken = available if left is None else min(left, available)
            position = Position(ledger.id, done + taken - 1)
            if left is not None:
                left -= taken
                if left == 0:
                    break
        return position

    def require(self, start: Position, partition: str) -> None:
        """Raises ``DataLoss`` unless everything after ``start`` is still there."""
        ids = [ledger.id for ledger in self.ledgers]
        if start.ledger in ids or self._was_empty(start):
            return
        if start.ledger > ids[0]:
            what = "does not belong to this topic: the topic was made anew"
        elif start.entry < 0 and self.acknowledged is None:
            what = (
                "is gone, and so is the subscription that keeps unread records: the topic was made anew, or somebody "
                "removed the subscription"
            )
        else:
            what = "was trimmed, or the topic was made anew"
        raise DataLoss(
            f"{partition}: the next record to read is after {start}, but ledger {start.ledger} {what}. The topic has "
            f"ledgers {ids[0]} to {ids[-1]}. Go on with {SKIP_LOST}, or start over with {FRESH}; "
            "raise the namespace's retention, and set no message TTL"
        )

    def _was_empty(self, start: Position) -> bool:
        """Whether ``start`` is the beginning of a ledger that was dropped because nothing had been written to it.

        If anything had been written, the subscription would have kept it, unless a TTL or an operator acknowledged it.
        """
        first, moved, written = self.ledgers[0].id, self.acknowledged, self.written
        if start.entry >= 0 or start.ledger > first or moved is None:
            return False
        is_moved = moved.entry >= 0 and moved > start
        is_written = written is not None and written.entry >= 0 and start.ledger <= written.ledger < first
        return not is_moved and not is_written


def pack(position: Position, batch_index: int) -> int:
    """A number that rises along a range from ``Log.advance``, for consumers that know offsets.

    It holds only the lowest 29 bits of a ledger's id, so that ids of any size fit; it begins anew every 536,870,912
    ledgers of the cluster. Raises OverflowError for an entry or a batch that is too large.
    """
    batch = max(batch_index, 0)
    if position.entry >> _ENTRY_BITS or batch >> _BATCH_BITS:
        raise OverflowError(
            f"{position} (batch index {batch}) does not fit into 63 bits: producers must batch at most "
            f"{1 << _BATCH_BITS} messages, and a ledger hold at most {1 << _ENTRY_BITS} entries "
            "(managedLedgerMaxEntriesPerLedger)"
        )
    ledger = position.ledger & (1 << _LEDGER_BITS) - 1
    return (ledger << _ENTRY_BITS | position.entry) << _BATCH_BITS | batch


def partition_names(topic: str, count: int) -> list[str]:
    """Full names of the partitions; the topic's own name if it has none."""
    return [f"{topic}{_PARTITION}{number}" for number in range(count)] if count else [topic]


def partition_index(partition: str) -> int:
    """Number of a partition; -1 for a topic without partitions."""
    _, mark, number = partition.rpartition(_PARTITION)
    return int(number) if mark and number.isdigit() else -1


def topic_path(topic: str) -> str:
    """Path of a topic in the admin API."""
    return f"/admin/v2/persistent/{quote(topic.removeprefix(_PERSISTENT))}"
