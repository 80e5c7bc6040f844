"""Which errors of a start are outages, that are waited out: brokers, or the store of the checkpoint, do not answer.

A store's error is judged by its causes, as those of the query are (``failing``): a full disk passes, a missing permission does not.
"""

from kafka.errors import KafkaError

from streaming.sinks import NotAllowed, PublishError
from streaming.spark.checkpoint import CheckpointError
from streaming.spark.failing import is_outage
from streaming.spark.java_errors import failure_of
from streaming.topics.kafka import Unreachable

__all__ = ["outage_of"]


def outage_of(error: Exception) -> str | None:
    """Who does not answer, and may the next time somebody asks; None for any other error."""
    if isinstance(error, CheckpointError):
        cause = error.__cause__
        is_away = isinstance(cause, Exception) and is_outage(failure_of(cause))
        return "the checkpoint's store" if is_away else None
    if isinstance(error, KafkaError):
        is_away = bool(error.retriable)
    else:
        is_away = isinstance(error, Unreachable | PublishError) and not isinstance(error, NotAllowed)
    return "the brokers" if is_away else None
