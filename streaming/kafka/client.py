"""The network client with which every client of kafka-python connects.

The client learns a topic's partitions with its second request for metadata, and sends that no sooner than 100 ms after the first,
whatever its ``retry_backoff_ms`` (kafka-python 3.0.12 does not pass it on). A fail-over opens five clients, one after another.

Nor does it pass on ``allow_auto_create_topics``: a request for a topic that is missing would make it, with the brokers' defaults.

The client logs a traceback when a connection is reset, although it connects again by itself; a line with the error is enough. It also
logs one when it has closed a connection while a task was about to wait for it; that one is dropped, because nothing is wrong.
"""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.net.compat import KafkaNetClient

_BETWEEN_METADATA_MS = 10
_TRANSPORT = logging.getLogger("kafka.net.transport")
_SELECTOR = logging.getLogger("kafka.net.selector")
_TASK_FAILED = "Unhandled exception in task"
_CLOSED = "Invalid file descriptor: -1"
"""What Python's selectors say of a socket that is closed."""


def connect_quickly(**options: Any) -> "KafkaNetClient":
    """Make the network client; for the option ``kafka_client`` of a consumer, a producer or an admin client."""
    # commands that need no broker load this module too
    from kafka.net.compat import KafkaNetClient  # noqa: PLC0415
    from kafka.net.selector import NetworkSelector  # noqa: PLC0415

    from streaming.kafka.bootstrapping import ClosingManager  # noqa: PLC0415

    _TRANSPORT.addFilter(_name_error)  # the same filter is added once
    _SELECTOR.addFilter(_is_news)
    network = NetworkSelector(**options)
    client = KafkaNetClient(network, ClosingManager(network, **options), **options)
    client.cluster.config["retry_backoff_ms"] = _BETWEEN_METADATA_MS
    client.cluster.config["allow_auto_create_topics"] = False
    return client


def _name_error(record: logging.LogRecord) -> bool:
    """Put the error into the line in place of its traceback."""
    if record.exc_info:
        record.msg, record.args = f"{record.getMessage()}: {record.exc_info[1]!r}", ()
        record.exc_info = None
    return True


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it is about more than a wait for a socket that the client itself has closed."""
    error = record.exc_info[1] if record.exc_info else None
    is_closed = isinstance(error, ValueError) and str(error) == _CLOSED
    return not (is_closed and str(record.msg).startswith(_TASK_FAILED))
