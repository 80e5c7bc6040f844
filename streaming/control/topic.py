"""The control topic and what an operator's command does on it: read what stands, write, read the write back.

Writing is idempotent and waits for all in-sync replicas. Two operators at once can still take no note of each other,
because an event replaces the whole overlay; the second read notices, and says so.
"""

from collections.abc import Iterable, Sequence

from kafka import KafkaProducer

from streaming.control.overlay import ControlRecord, Planned
from streaming.exits import Refused
from streaming.link import Link
from streaming.topic_reader import TopicReader, explained

__all__ = ["ControlTopic", "check_written", "clusters_heard_of"]

_TIMEOUT_S = 20.0


class ControlTopic:
    """Reads and writes control events. Raises ``exits.Refused``."""

    def __init__(self, link: Link, topic: str) -> None:
        self._link = link
        self._topic = topic

    def read(self) -> list[ControlRecord]:
        """All records there are, in order."""
        with TopicReader(self._link, self._topic) as reader:
            return [
                ControlRecord(
                    key=None if record.key is None else record.key.decode(errors="replace"),
                    value=record.value,
                    appended_ms=record.timestamp,
                    offset=record.offset,
                )
                for record in reader.to_end()
            ]

    def write(self, events: Sequence[Planned]) -> None:
        """Write and wait for the brokers; returns when all of them have it."""
        with explained(self._link, self._topic, ["Write"]):
            producer = KafkaProducer(
                bootstrap_servers=self._link.bootstrap,
                acks="all",
                enable_idempotence=True,
                allow_auto_create_topics=False,
                max_block_ms=round(_TIMEOUT_S * 1000),
                delivery_timeout_ms=round(_TIMEOUT_S * 1000),
                request_timeout_ms=round(_TIMEOUT_S * 1000),
                metrics_enabled=False,
                **self._link.client_options(),
            )
            try:
                sent = [
                    producer.send(self._topic, key=event.cluster.encode(), value=event.value)
                    for event in events
                ]
                for future in sent:
                    future.get(timeout=_TIMEOUT_S)
            finally:
                producer.close(timeout=_TIMEOUT_S)


def check_written(
    events: Iterable[Planned], before: Sequence[ControlRecord], after: Sequence[ControlRecord]
) -> None:
    """Raise ``Refused`` unless each event is there and nobody else wrote for its cluster since ``before`` was read."""
    seen = max((record.offset for record in before), default=-1)
    for event in events:
        since = [record for record in after if record.offset > seen and record.key == event.cluster]
        if not any(record.value == event.value for record in since):
            raise Refused(
                f"{event.cluster}: the event {event.id} was acknowledged, but is not on the topic: run the command again"
            )
        if any(record.value != event.value for record in since):
            raise Refused(
                f"{event.cluster}: somebody else wrote a control event at the same moment, and the newer one replaces the "
                f"other whole: see what stands with `trimtab policy show --cluster {event.cluster}`, then run the command "
                "again if something is missing"
            )


def clusters_heard_of(link: Link, audit_topic: str, *, since_ms: int) -> set[str]:
    """Clusters with a round summary since then."""
    with TopicReader(link, audit_topic, begin=since_ms) as reader:
        return {record.key.decode() for record in reader.to_end() if record.key}
