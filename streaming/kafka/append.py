"""Writing control events to Kafka: idempotent, acknowledged by all in-sync replicas."""

from collections.abc import Sequence

from kafka import KafkaProducer

from streaming.kafka.ending import end
from streaming.kafka.link import Link
from streaming.kafka.reading import explained
from streaming.operators.overlay import Planned

__all__ = ["write_to_kafka"]

_TIMEOUT_S = 20.0


def write_to_kafka(link: Link, topic: str, events: Sequence[Planned]) -> None:
    """Returns when all in-sync replicas have them. Raises ``exits.Refused``."""
    with explained(link, topic, "Write"):
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
            sent = [producer.send(topic, key=event.cluster.encode(), value=event.value) for event in events]
            for future in sent:
                future.get(timeout=_TIMEOUT_S)
        finally:
            end(producer, wait_s=_TIMEOUT_S)
