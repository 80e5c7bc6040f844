"""Closing a producer of kafka-python in bounded time.

Its ``close`` waits for records that cannot be delivered: without limit when none is given, and with one it raises
``KafkaTimeoutError`` and leaves the thread that sends them running.
"""

import logging

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

_LOG = logging.getLogger(__name__)


def close_producer(producer: KafkaProducer | None, *, wait_s: float = 0.0) -> None:
    """Close the producer (None: there is none yet); records not written within ``wait_s`` are given up and not sent any more."""
    if producer is None:
        return
    try:
        producer.close(timeout=wait_s)
    except KafkaTimeoutError:
        _LOG.info("a producer with unsent records is closed by force")
        producer._sender.force_close()  # noqa: SLF001 - close() gives up at its flush and never gets to this
