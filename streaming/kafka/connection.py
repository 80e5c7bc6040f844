"""Opening a cluster's admin API, and the one error for everything that keeps it from answering."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

_REACH_TIMEOUT_MS = 8_000
"""How long at most until some broker has answered: a command says within about 10 s that there is none at its address."""
_REQUEST_TIMEOUT_S = 10.0
"""How long one request may take, as long as a target's ``timeout_s`` allows by default: a healthy broker needs well under 1 s."""


class ClusterError(Exception):
    """The cluster does not answer, or not as it must; the message names the request and the remedy."""


class Unanswered(ClusterError):
    """A request failed; the error of Kafka's client is its cause."""


def open_admin(
    bootstrap: str,
    options: Mapping[str, object] = MappingProxyType({}),
    *,
    timeout_s: float = _REQUEST_TIMEOUT_S,
) -> KafkaAdminClient:
    """Open an admin client, which closes at the end of its ``with``; ``options`` are passed on to it.

    Raises ``KafkaError``, or ``OSError`` or ``ValueError`` for certificates that cannot be used.
    """
    return KafkaAdminClient(
        bootstrap_servers=bootstrap,
        bootstrap_timeout_ms=_REACH_TIMEOUT_MS,
        request_timeout_ms=round(1000 * timeout_s),
        **options,
    )


@contextmanager
def connected(
    bootstrap: str, options: Mapping[str, object], *, timeout_s: float
) -> Iterator[KafkaAdminClient]:
    """Open an admin client, and close it at the end.

    Raises ``ClusterError``, also for any request that Kafka refuses while the client is used.
    """
    try:
        admin = open_admin(bootstrap, options, timeout_s=timeout_s)
    except (KafkaError, OSError, ValueError) as error:
        raise _no_answer_error_of(bootstrap, error) from error
    try:
        with admin:
            yield admin
    except (KafkaError, Unanswered) as error:
        cause = error.__cause__ if isinstance(error, Unanswered) else error
        raise _no_answer_error_of(bootstrap, cause) from error


def _no_answer_error_of(bootstrap: str, error: BaseException | None) -> ClusterError:
    return ClusterError(
        f"Kafka at {bootstrap} does not answer as expected: {error!r}. "
        "Check the address, whether the brokers are up, and the security settings."
    )
