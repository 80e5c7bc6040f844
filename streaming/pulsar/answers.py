"""Which errors of Pulsar's client and admin API pass by themselves."""

import pulsar

from streaming.pulsar.admin.errors import PASSING, AdminError

_OUTAGES = (
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
    """Whether brokers do not answer, which may pass. A wrong address looks the same; a missing permission or topic does not."""
    if isinstance(error, AdminError):
        return error.failure in PASSING
    return isinstance(error, _OUTAGES)
