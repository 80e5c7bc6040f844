"""Where one cluster's memory lives between batches: bytes in, bytes out.

Two implementations: ``DictStore`` here (replay and tests), and Spark's state handle in ``streaming``. The fleet is
read and written only when a round closes. What waits for a round is written, as one value, only if the round is still open after the
batch that brought it, and read when the round closes.

What Spark loads at each start of a query imports this, so it imports nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class StoredKey(NamedTuple):
    """The key of a stored value of an open round: what one batch left waiting, under a number."""

    round: int
    number: int


class Store(Protocol):
    """Memory of one cluster; values are opaque and versioned by ``state.layouts``."""

    def header(self) -> bytes | None:
        """Clock, open rounds, control and guards; None for a cluster never seen."""

    def put_header(self, value: bytes) -> None:
        """Replace the header."""

    def fleet(self) -> bytes | None:
        """What the system remembers: on Pulsar brokers, bundles and the policies' memory, on Kafka the throttle; None before the first closed round."""

    def put_fleet(self, value: bytes) -> None:
        """Replace the fleet."""

    def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
        """All that waits, in no particular order."""

    def put_waiting(self, key: StoredKey, value: bytes) -> None:
        """Keep something for its round."""

    def remove_waiting(self, key: StoredKey) -> None:
        """Forget something of a closed round."""

    def clear_waiting(self) -> None:
        """Forget all that waits at once."""

    def clear(self) -> None:
        """Forget the cluster."""


class DictStore:
    """Memory in a dict; for replay and tests."""

    def __init__(self) -> None:
        self._header: bytes | None = None
        self._fleet: bytes | None = None
        self._waiting: dict[StoredKey, bytes] = {}

    def header(self) -> bytes | None:
        return self._header

    def put_header(self, value: bytes) -> None:
        self._header = value

    def fleet(self) -> bytes | None:
        return self._fleet

    def put_fleet(self, value: bytes) -> None:
        self._fleet = value

    def all_waiting(self) -> Iterator[tuple[StoredKey, bytes]]:
        yield from self._waiting.items()

    def put_waiting(self, key: StoredKey, value: bytes) -> None:
        self._waiting[key] = value

    def remove_waiting(self, key: StoredKey) -> None:
        self._waiting.pop(key, None)

    def clear_waiting(self) -> None:
        self._waiting.clear()

    def clear(self) -> None:
        self._header = self._fleet = None
        self._waiting.clear()
