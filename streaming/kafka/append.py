"""Appending records to a topic on Kafka: idempotent, acknowledged by all in-sync replicas."""

from collections.abc import Sequence

from kafka import KafkaProducer

from streaming.kafka.ending import close_producer
from streaming.kafka.link import Link
from streaming.kafka.reading import explain_errors

_TIMEOUT_S = 20.0


def append(
    link: Link,
    topic: str,
    records: Sequence[tuple[str | None, bytes]],
    *,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Append values, with their keys if any; returns when all in-sync replicas have them. Raises ``exits.Refused``."""
    encoded = [(name, text.encode()) for name, text in headers]
    with explain_errors(link, topic, "Write"):
        producer = KafkaProducer(
            bootstrap_servers=link.bootstrap,
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            max_block_ms=round(_TIMEOUT_S * 1000),
            delivery_timeout_ms=round(_TIMEOUT_S * 1000),
            request_timeout_ms=round(_TIMEOUT_S * 1000),
            metrics_enabled=False,
            **link.client_options(),
        )
        try:
            sent = [
                producer.send(topic, key=None if key is None else key.encode(), value=value, headers=encoded)
                for key, value in records
            ]
            for future in sent:
                future.get(timeout=_TIMEOUT_S)
        finally:
            close_producer(producer, wait_s=_TIMEOUT_S)
