"""Which errors of brokers may be gone at the next try: the brokers do not answer, rather than refuse."""

from streaming.kafka import client
from streaming.pulsar import clients
from streaming.transport.errors import NoAnswer, Unreachable


def passes(error: BaseException | None) -> bool:
    """Whether the error means that brokers do not answer. A wrong address looks the same; a missing permission or topic does not."""
    if isinstance(error, NoAnswer):
        return error.passes
    return isinstance(error, Unreachable) or client.passes(error) or clients.passes(error)
