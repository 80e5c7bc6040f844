"""Where one cluster's memory lives between batches: bytes in, bytes out.

Two implementations: ``DictStore`` here (replay and tests), and Spark's state handle in ``streaming``. The fleet is
read and written only when a round closes; a report only when its round outlives the batch that brought it.
"""

from collections.abc import Iterator
from typing import Protocol


class Store(Protocol):
    """Memory of one cluster; values are opaque and versioned by ``state.memory``."""

    def header(self) -> bytes | None:
        """Clock, open rounds, control and guards; None for a cluster never seen."""

    def put_header(self, value: bytes) -> None:
        """Replace the header."""

    def fleet(self) -> bytes | None:
        """Brokers, bundles and the policies' memory; None before the first closed round."""

    def put_fleet(self, value: bytes) -> None:
        """Replace the fleet."""

    def report(self, number: int, broker: str) -> bytes | None:
        """A broker's report waiting in an open round."""

    def reports(self) -> Iterator[tuple[int, str, bytes]]:
        """All waiting reports as (round, broker, report), in no particular order."""

    def put_report(self, number: int, broker: str, value: bytes) -> None:
        """Keep a report for its round."""

    def remove_report(self, number: int, broker: str) -> None:
        """Forget a report of a closed round."""

    def clear_reports(self) -> None:
        """Forget all waiting reports at once."""


class DictStore:
    """Memory in a dict; for replay and tests."""

    def __init__(self) -> None:
        self._header: bytes | None = None
        self._fleet: bytes | None = None
        self._reports: dict[tuple[int, str], bytes] = {}

    def header(self) -> bytes | None:
        return self._header

    def put_header(self, value: bytes) -> None:
        self._header = value

    def fleet(self) -> bytes | None:
        return self._fleet

    def put_fleet(self, value: bytes) -> None:
        self._fleet = value

    def report(self, number: int, broker: str) -> bytes | None:
        return self._reports.get((number, broker))

    def reports(self) -> Iterator[tuple[int, str, bytes]]:
        for (number, broker), value in self._reports.items():
            yield number, broker, value

    def put_report(self, number: int, broker: str, value: bytes) -> None:
        self._reports[number, broker] = value

    def remove_report(self, number: int, broker: str) -> None:
        self._reports.pop((number, broker), None)

    def clear_reports(self) -> None:
        self._reports.clear()
