"""Brokers that do not answer for a moment, while a command waits: a bundle on Pulsar changes its broker, or a leader on Kafka is elected."""

from collections.abc import Iterator
from contextlib import contextmanager

from streaming.process.deadline import Deadline
from streaming.process.exits import Refused


@contextmanager
def pass_over_outage(deadline: Deadline) -> Iterator[None]:
    """End the block without an error if brokers do not answer before the deadline; the caller then looks again.

    Raises ``Refused`` after the deadline, and at once for what does not pass, such as a missing permission.
    """
    try:
        yield
    except Refused as error:
        from streaming.systems import passes  # noqa: PLC0415  the brokers' clients are imported late

        if deadline.is_over or not passes(error.__cause__):
            raise
