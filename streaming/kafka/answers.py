"""Turns errors of Kafka's client into our own, and tells which of them pass by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka.errors import KafkaError

from streaming.transport.errors import NoAnswer


def passes(error: BaseException | None) -> bool:
    """Whether brokers do not answer, which may pass. A wrong address looks the same; a missing permission or topic does not."""
    return isinstance(error, KafkaError) and bool(error.retriable)


@contextmanager
def retry_until_answered() -> Iterator[None]:
    """Turn what the client raises into ``NoAnswer``."""
    try:
        yield
    except KafkaError as error:
        raise NoAnswer(str(error), passes=passes(error)) from error
