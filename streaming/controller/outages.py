"""Which errors of a start are outages, which are waited out: brokers or the checkpoint's store do not answer.

A store's error is judged by its causes, as those of the query are (``streaming.spark.failing``): a full disk passes, a missing
permission does not.
"""

from streaming.spark.failing import is_outage
from streaming.spark.java_errors import failure_of
from streaming.systems import passes
from streaming.transport.errors import CheckpointError, NotAllowed, PublishError


def outage_of(error: Exception) -> str | None:
    """The name of what does not answer now and may answer later; None for any other error."""
    if isinstance(error, CheckpointError):
        cause = error.__cause__
        is_away = isinstance(cause, Exception) and is_outage(failure_of(cause))
        return "the checkpoint's store" if is_away else None
    if isinstance(error, PublishError):
        return None if isinstance(error, NotAllowed) else "the brokers"
    return "the brokers" if passes(error) else None
