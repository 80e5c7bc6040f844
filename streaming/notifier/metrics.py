"""Prometheus metrics of the notifier; every label value exists from the first scrape."""

from collections.abc import Iterable
from typing import get_args

from prometheus_client import CollectorRegistry

from streaming.contract import families
from streaming.notifier.delivery import Result
from streaming.process.instruments import counter, gauge


class NotifierMetrics:
    """All metrics, on a ``registry`` of their own. Thread-safe."""

    def __init__(self, receivers: Iterable[str]) -> None:
        registry = self.registry = CollectorRegistry()
        self._messages = counter(registry, families.NOTIFIER_MESSAGES)
        self._left_out = counter(registry, families.NOTIFIER_LEFT_OUT)
        self._unreadable = counter(registry, families.NOTIFIER_UNREADABLE)
        self._polled = gauge(registry, families.NOTIFIER_LAST_POLL)
        for name in receivers:
            for result in get_args(Result):
                self._messages.labels(name, result)
            for reason in ("limit", "too-old"):
                self._left_out.labels(name, reason)

    def count_message(self, receiver: str, result: Result) -> None:
        """Count a message that was tried."""
        self._messages.labels(receiver, result).inc()

    def count_left_out(self, receiver: str, reason: str, count: int) -> None:
        """Count notices that were left out."""
        self._left_out.labels(receiver, reason).inc(count)

    def count_unreadable(self) -> None:
        """Count a record that was no event."""
        self._unreadable.inc()

    def show_poll(self, at_s: float) -> None:
        """Show when the topics were last polled (Unix time)."""
        self._polled.set(at_s)
