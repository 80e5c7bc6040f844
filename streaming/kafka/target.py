"""From a target of the settings to a connection to its admin API."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaAdminClient

from streaming.kafka.connection import connected
from streaming.kafka.link import Link
from streaming.settings import KafkaTarget


@contextmanager
def admin_of(target: KafkaTarget, *, cluster: str) -> Iterator[KafkaAdminClient]:
    """An admin client of the cluster, closed at the end. Raises ``ClusterError``, and ``WrongUse`` for a file."""
    options = Link(target.bootstrap, f"targets.{cluster}.kafka", target.security).client_options()
    timeout = {"request_timeout_ms": round(1000 * target.timeout_s)}
    with connected(target.bootstrap, {**options, **timeout}) as admin:
        yield admin
