"""Writes a collector's events to the input topic. Every collector ends a sweep with a tick.

An event's id is its subject and time, so that readers recognize an event that is written twice.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

import msgspec

from streaming.collector.metrics import CollectorMetrics
from streaming.contract.encode import encode_event
from streaming.contract.messages import MAX_UNOWNED_COUNT, TickData, TickMessage, type_of
from streaming.transport.side import EventSink


class EventWriter:
    """Writes the events of one cluster's collector. Thread-safe. Every method raises ``PublishError``."""

    def __init__(
        self, sink: EventSink, metrics: CollectorMetrics, *, cluster: str, clock_ms: Callable[[], int]
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self._cluster = cluster
        self._clock_ms = clock_ms

    def write(self, kind: str, type_: str, subject: str, data: bytes, *, time_ms: int | None = None) -> None:
        """Hand an event over; ``kind`` is the metric's label, ``data`` is JSON, ``time_ms`` is now where it is not given."""
        time_ms = self._clock_ms() if time_ms is None else time_ms
        event = encode_event(
            type_=type_,
            id_=f"{subject}/{time_ms}",
            source=f"/trimtab/collect/{self._cluster}",
            subject=subject,
            time_ms=time_ms,
            cluster=self._cluster,
            data=data,
        )
        self._sink.send(self._cluster, event)
        self._metrics.count_event(kind)

    def tick(
        self, asked: Sequence[str], failed: Mapping[str, str], unowned: Mapping[str, int] | None = None
    ) -> None:
        """Write that a sweep is complete. Returns when the tick and all events before it are written.

        ``unowned`` has, by bundle that nobody owns, since when in milliseconds.
        """
        data = TickData(asked=list(asked), failed=dict(failed))
        if unowned:
            named = islice(sorted(unowned.items()), MAX_UNOWNED_COUNT)
            data = msgspec.structs.replace(
                data,
                unowned={name: datetime.fromtimestamp(ms / 1000, UTC) for name, ms in named},
                unowned_count=len(unowned),
            )
        self.write("tick", type_of(TickMessage), "tick", msgspec.json.encode(data))
        self.flush()

    def flush(self) -> None:
        """Return when all events before this call are written."""
        self._sink.flush()
