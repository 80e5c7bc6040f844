"""A connection to a cluster's admin API, and the one error for everything that keeps it from answering."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

REACH_TIMEOUT_MS = 8_000
REQUEST_TIMEOUT_MS = 15_000


class ClusterError(Exception):
    """The cluster does not answer, or not as it must; the message names the request and the remedy."""


class Unanswered(ClusterError):
    """A request failed; the error of Kafka's client is its cause."""


@contextmanager
def connected(bootstrap: str, options: Mapping[str, object] | None = None) -> Iterator[KafkaAdminClient]:
    """An admin client, closed at the end; ``options`` are passed on to it.

    Raises ``ClusterError``, also for any request that Kafka refuses while the client is used.
    """
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            bootstrap_timeout_ms=REACH_TIMEOUT_MS,
            **{"request_timeout_ms": REQUEST_TIMEOUT_MS, **(options or {})},
        )
    except (KafkaError, OSError, ValueError) as error:
        raise _no_answer(bootstrap, error) from error
    try:
        with admin:
            yield admin
    except (KafkaError, Unanswered) as error:
        cause = error.__cause__ if isinstance(error, Unanswered) else error
        raise _no_answer(bootstrap, cause) from error


def _no_answer(bootstrap: str, error: BaseException | None) -> ClusterError:
    return ClusterError(
        f"Kafka at {bootstrap} does not answer as expected: {error!r}. "
        "Check the address, whether the brokers are up, and the security settings."
    )
