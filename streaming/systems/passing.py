"""Which errors of brokers may be over the next time somebody asks: they do not answer, rather than refuse."""

import pulsar
from kafka.errors import KafkaError

from streaming.kafka.topics import Unreachable
from streaming.pulsar.admin.errors import PASSING, AdminError

__all__ = ["passes"]

_OUTAGES_OF_PULSAR = (
    pulsar.BrokerMetadataError,
    pulsar.BrokerPersistenceError,
    pulsar.ConnectError,
    pulsar.LookupError,
    pulsar.NotConnected,
    pulsar.ServiceUnitNotReady,
    pulsar.Timeout,
    pulsar.TooManyLookupRequestException,
)


def passes(error: BaseException | None) -> bool:
    """Whether brokers do not answer. A wrong address looks the same; a missing permission or topic does not."""
    if isinstance(error, KafkaError):
        return bool(error.retriable)
    if isinstance(error, AdminError):
        return error.failure in PASSING
    return isinstance(error, (Unreachable, *_OUTAGES_OF_PULSAR))
