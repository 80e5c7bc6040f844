"""The network client with which every client of kafka-python connects.

The client learns a topic's partitions with its second request for metadata, and sends that no sooner than 100 ms after the first,
whatever its ``retry_backoff_ms`` (kafka-python 3.0.12 does not pass it on). A fail-over opens five clients, one after another.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.net.compat import KafkaNetClient

__all__ = ["connect_quickly"]

_BETWEEN_METADATA_MS = 10


def connect_quickly(**options: Any) -> "KafkaNetClient":
    """Make the network client; for the option ``kafka_client`` of a consumer, a producer or an admin client."""
    from kafka.net.compat import KafkaNetClient  # noqa: PLC0415  commands that need no broker load this module too

    client = KafkaNetClient(**options)
    client.cluster.config["retry_backoff_ms"] = _BETWEEN_METADATA_MS
    return client
