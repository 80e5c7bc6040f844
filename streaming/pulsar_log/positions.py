"""Places in a partition's log, and how far a batch may go. Pure.

A partition is a chain of ledgers, each with entries 0, 1, …; an entry is one message, or a producer's whole batch of them.
A position names the last entry that is done, ``ledger:entry``; ``ledger:-1`` is the beginning of a ledger. Ids of ledgers
rise, are unique in a cluster and never used again, which is how a topic that was made anew is told from the old one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

__all__ = ["DataLoss", "Ledger", "Log", "Position", "pack"]

_ENTRY_BITS, _BATCH_BITS, _LEDGER_BITS = 24, 10, 29


class DataLoss(Exception):
    """The log no longer holds what is still to be read; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The last entry that is done."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of ``ledger:entry``. Raises ValueError naming the text."""
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
    """What there is of a partition now: its ledgers, ascending, never none."""

    ledgers: Sequence[Ledger]

    @property
    def first(self) -> Position:
        """Before everything that is there."""
        return Position(self.ledgers[0].id, -1)

    @property
    def last(self) -> Position:
        """After everything that is there."""
        return self.advance(self.first, None)

    def advance(self, start: Position, entries_max: int | None) -> Position:
        """The end of the next range after ``start``, of at most so many entries; ``start`` where there are none."""
        position, left = start, entries_max
        for ledger in self.ledgers:
            done = position.entry + 1 if ledger.id == position.ledger else 0
            available = ledger.entries - done
            if ledger.id < position.ledger or available <= 0:
                continue
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
        if start.ledger in ids:
            return
        is_older = start.ledger < ids[0]
        what = (
            "was trimmed, or the topic was made anew"
            if is_older
            else "is none of this topic's: it was made anew"
        )
        raise DataLoss(
            f"{partition}: ledger {start.ledger}, where reading is to go on after {start}, {what} (there are "
            f"{ids[0]} to {ids[-1]}). Start over with --fresh; raise the namespace's retention, and set no message TTL"
        )


def pack(position: Position, batch_index: int) -> int:
    """A number that rises along the log, for consumers that know offsets. Raises OverflowError where it cannot."""
    batch = max(batch_index, 0)
    if position.ledger >> _LEDGER_BITS or position.entry >> _ENTRY_BITS or batch >> _BATCH_BITS:
        raise OverflowError(
            f"{position} (batch index {batch}) does not fit into 63 bits: producers must batch at most "
            f"{1 << _BATCH_BITS} messages, and a ledger hold at most {1 << _ENTRY_BITS} entries "
            "(managedLedgerMaxEntriesPerLedger)"
        )
    return (position.ledger << _ENTRY_BITS | position.entry) << _BATCH_BITS | batch
