"""What a controller publishes with, whichever system its outputs are on."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from streaming.ports.marker import BatchState, Checkpoint, Marker
from streaming.ports.outbox import OutboundRecord
from streaming.ports.starts import StartWith


class Publisher(AbstractContextManager["Publisher"], Protocol):
    """What the publishers for Kafka and Pulsar have in common; contracts and errors are those of ``KafkaPublisher``."""

    def read_marker(self) -> Marker | None:
        """The newest marker, None without one; no controller is disturbed. Raises ``PublishError`` or ``CheckpointMismatch``."""

    def check(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> None:
        """Raise what ``open`` would raise now, without disturbing the controller that runs."""

    def open(self, read: Callable[[], Checkpoint], *, start_with: StartWith = "checkpoint") -> int:
        """Take over as the controller of this name and return its epoch."""

    def publish(
        self,
        batch_id: int,
        query_id: str,
        records: Sequence[OutboundRecord],
    ) -> BatchState:
        """Make a batch's records visible if they are not out already."""

    @property
    def marker(self) -> Marker:
        """The marker of what is published."""

    def ensure_owner(self) -> None:
        """Raise ``Fenced`` when a newer controller of this name has taken over, ``PublishError`` when no broker answers."""

    def is_superseded(self) -> bool:
        """Whether a newer controller of this name has taken over."""

    def close(self) -> None:
        """Close all connections."""
