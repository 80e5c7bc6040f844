"""What the executor put on a cluster, remembered so that exactly that is taken off again.

It is written before anything is set: after a crash there may be less on the cluster than remembered, never more.
"""

from contextlib import AbstractContextManager
from typing import Protocol, Self

import msgspec

from policies.throttle.lists import ThrottledLists, union
from streaming.ports.publishing import PublishError

__all__ = ["HeldMemory", "Memory", "Rate", "Remembered", "Taken"]


class Taken(PublishError):
    """Another executor has taken the memory since; nothing was written."""


class Rate(msgspec.Struct, frozen=True):
    """A rate of ours on a broker."""

    ours: int
    before: int | None
    """What was there before; None: nothing."""
    earlier: int | None = None
    """Ours before that one, while nobody knows which of them is there."""


class Remembered(msgspec.Struct, frozen=True):
    """All of one cluster; plain values, stored as JSON."""

    added: ThrottledLists = ThrottledLists()
    """Entries that were not there before."""
    rates: dict[str, Rate] = {}
    """By role, as in ``leader:101``."""
    is_planned: bool = False
    """Whether it is for a move that had not begun when it was looked at last, and so is no leftover."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours is there."""
        return not (self.added.leader or self.added.follower or self.rates)

    def with_(self, ours: Self) -> Self:
        """What is there after ``ours`` was put on the cluster by one who did not know of this."""
        rates = {
            name: msgspec.structs.replace(now, earlier=ours.rates[name].ours) if name in ours.rates else now
            for name, now in self.rates.items()
        }
        return msgspec.structs.replace(
            self, added=union(self.added, ours.added), rates={**ours.rates, **rates}
        )

    @classmethod
    def parse(cls, value: bytes | None) -> Self:
        """Of the value of a record; without one nothing is remembered."""
        return cls() if value is None else msgspec.json.decode(value, type=cls)

    def value(self) -> bytes | None:
        """For a record; None where nothing of ours is there."""
        return None if self.is_empty else msgspec.json.encode(self)


class HeldMemory(Protocol):
    """The memory of a cluster while it is ours."""

    @property
    def remembered(self) -> "Remembered":
        """What it was when it was taken."""

    def write(self, remembered: "Remembered") -> None:
        """Replace it. Raises ``Taken`` where another took it, and ``PublishError``."""


class Memory(Protocol):
    """What is remembered of one cluster. Methods raise ``PublishError``."""

    def read(self) -> Remembered:
        """A look at the newest value."""

    def hold(self) -> AbstractContextManager[HeldMemory]:
        """Take it from whoever holds it, read it, and change it."""
