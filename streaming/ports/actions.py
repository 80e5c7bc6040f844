"""The actions topic as an executor sees it: each action at least once and in order, and which controllers' actions are out of date."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

LOOKBACK_S = 3600.0
"""How far back a first start reads actions: actions that have not expired are younger, and expired ones get their result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """A record of the actions topic."""

    value: bytes
    epoch_header: bytes | None
    partition: int = 0


@dataclass(slots=True)
class Epochs:
    """The highest epoch read so far of each source in each partition: it applies to the records that follow there.

    Actions that an older controller published before it stay valid, even if they are carried out later.
    """

    _highest: dict[int, dict[str, int]] = field(default_factory=dict)

    def note(self, partition: int, source: str, epoch: int) -> int:
        """Take note of the epoch of the partition's next record; returns the highest epoch of the source so far, this one included."""
        epochs = self._highest.setdefault(partition, {})
        epochs[source] = max(epoch, epochs.get(source, epoch))
        return epochs[source]

    def epochs_of(self, partition: int) -> Mapping[str, int]:
        """The highest epoch so far of each source in a partition."""
        return self._highest.get(partition, {})

    def forget(self) -> None:
        """Forget all epochs, because the partitions are read again from an earlier place."""
        self._highest.clear()

    def begin(self, partition: int, epochs: Mapping[str, int]) -> None:
        """Reading of a partition begins (again) at a place; ``epochs`` are those that were read before it."""
        self._highest[partition] = dict(epochs)


class Actions(Protocol):
    """Actions, each at least once and in order. Methods raise ``PublishError``; call ``drop`` after it."""

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        """Records in order, partition by partition."""

    def keep_polled(self) -> None:
        """Keep the polled records while they are worked on; call it every few seconds. Fails once another executor has them."""

    def commit(self) -> None:
        """Note that all records polled so far are dealt with."""

    def drop(self) -> None:
        """Forget the records that were polled and not committed: they come again, here or at another executor. Raises nothing."""

    def is_at_end(self) -> bool:
        """Whether no record that exists at this moment is left to poll, once the polled ones are committed."""
