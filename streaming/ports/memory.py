"""The throttle that the executor set on a cluster, remembered so that exactly that is removed again.

It is written before anything is set: after a crash there may be less on the cluster than remembered, never more.
"""

from contextlib import AbstractContextManager
from typing import Protocol, Self

import msgspec

from policies.throttle.lists import ThrottledLists, union
from streaming.ports.publishing import PublishError


class Taken(PublishError):
    """Another executor has taken the memory since; nothing was written."""


class Rate(msgspec.Struct, frozen=True):
    """A rate that the executor set on a broker."""

    ours: int
    before: int | None
    """What was there before; None: nothing."""
    earlier: int | None = None
    """The rate that the executor set before ``ours``, while it is not known which of the two is in force."""


class Remembered(msgspec.Struct, frozen=True):
    """Everything that is remembered of one cluster; plain values, stored as JSON."""

    added: ThrottledLists = ThrottledLists()
    """Entries of the throttled replica lists that were not there before."""
    rates: dict[str, Rate] = {}
    """Rates by role and broker, as in ``leader:101``."""
    is_planned: bool = False
    """Whether it is for a move that had not begun when that was last checked; then it is not a leftover."""

    @property
    def is_empty(self) -> bool:
        """Whether the executor has set nothing on the cluster."""
        return not (self.added.leader or self.added.follower or self.rates)

    def with_(self, ours: Self) -> Self:
        """What is on the cluster after an executor that did not know of this memory has set ``ours``."""
        rates = {
            name: msgspec.structs.replace(now, earlier=ours.rates[name].ours) if name in ours.rates else now
            for name, now in self.rates.items()
        }
        return msgspec.structs.replace(
            self, added=union(self.added, ours.added), rates={**ours.rates, **rates}
        )

    @classmethod
    def parse(cls, value: bytes | None) -> Self:
        """The memory in the value of a record; without a value nothing is remembered."""
        return cls() if value is None else msgspec.json.decode(value, type=cls)

    def value(self) -> bytes | None:
        """The value for a record; None where nothing is remembered."""
        return None if self.is_empty else msgspec.json.encode(self)


class HeldMemory(Protocol):
    """The memory of a cluster while this executor holds it."""

    @property
    def remembered(self) -> "Remembered":
        """The memory as it was when it was taken."""

    def write(self, remembered: "Remembered") -> None:
        """Replace it. Raises ``Taken`` where another executor took it, and ``PublishError``."""


class Memory(Protocol):
    """What is remembered of one cluster. Methods raise ``PublishError``."""

    def read(self) -> Remembered:
        """The newest value, without taking the memory."""

    def hold(self) -> AbstractContextManager[HeldMemory]:
        """Take the memory from the executor that holds it, read it, and change it."""
