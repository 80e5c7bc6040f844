"""Pulsar clients, made and read the same way everywhere: verified host names, a renewable token, a quiet log, a timeout.

The client prints to the console, several lines a second while its broker is down; what fails for it is raised, so its lines are shown
with ``--verbose`` only.

A client does not survive a fork: it is made in the process that uses it. What a broker refuses is explained: the permission that
is missing, and the command that grants it. Permissions belong to a token's role, and we cannot read the role from the token: the
commands say ROLE. docs/run/security.md has the permissions of every component.
"""

import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pulsar

from streaming.process.exits import words_of
from streaming.process.logs import logs_stacks
from streaming.pulsar.http import PASSING, AdminError
from streaming.pulsar.positions import Position, partition_index
from streaming.transport.reach import Protocol, faults_of

_OPERATION_TIMEOUT_S = 30
"""The client's own default."""
_ERRORS = pulsar.LoggerLevel.Error
_PORT, _TLS_PORT = 6650, 6651
_HAS_PORT = re.compile(r":\d+$")
_CONNECT = b"\x08\x02\x12\x09\x0a\x07trimtab"
"""``BaseCommand`` with type CONNECT and the client's name (``PulsarApi.proto``)."""
_PULSAR = Protocol(
    "Pulsar",
    greeting=struct.pack(">ii", 4 + len(_CONNECT), len(_CONNECT)) + _CONNECT,
    is_answer=lambda answer: answer[8:9] == b"\x08",
)
_UNAUTHORIZED = "Unauthorized to validate"
"""The admin API's words if a role lacks a permission, with status 401 or 403; for a bad token it has other words."""
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


def connect(
    service_url: str,
    *,
    token_file: str | None,
    ca_file: str | None,
    timeout_s: float | None = None,
    authentication: pulsar.Authentication | None = None,
) -> pulsar.Client:
    """A client; it connects when it is used. The token is read anew for every connection.

    ``timeout_s``, rounded up to seconds, bounds the making of producers and readers. ``authentication`` is
    used where there is no token file.
    """
    if token_file is not None:
        file = Path(token_file)
        authentication = pulsar.AuthenticationToken(lambda: file.read_text(encoding="utf-8").strip())
    return pulsar.Client(
        service_url,
        authentication=authentication,
        operation_timeout_seconds=_OPERATION_TIMEOUT_S if timeout_s is None else math.ceil(timeout_s),
        tls_trust_certs_file_path=ca_file,
        tls_validate_hostname=True,
        logger=pulsar.ConsoleLogger(_ERRORS) if logs_stacks() else pulsar.FileLogger(_ERRORS, os.devnull),
    )


def require_answer(service_url: str) -> None:
    """Raises ``pulsar.ConnectError`` where something is wrong with the address for sure: a client goes on trying for 30 s."""
    url = urlsplit(service_url)
    encrypts = url.scheme == "pulsar+ssl"
    port = _TLS_PORT if encrypts else _PORT
    addresses = [host if _HAS_PORT.search(host) else f"{host}:{port}" for host in url.netloc.split(",")]
    why = faults_of(addresses, _PULSAR, encrypts=encrypts)
    if why is not None:
        raise pulsar.ConnectError(why)


@cache
def shared_client(service_url: str, token_file: str | None, ca_file: str | None) -> pulsar.Client:
    """One client for each process: Spark's workers are used again for batch after batch."""
    return connect(service_url, token_file=token_file, ca_file=ca_file)


def close(client: pulsar.Client) -> None:
    """Close a client in any state; messages that are not acknowledged by then are given up.

    This is not ``shutdown``: in the Python client (3.13) that holds the interpreter while it waits for threads that may be
    about to call back into it, and then blocks for ten seconds.
    """
    with suppress(pulsar.PulsarException):
        client.close()


def reader_after(
    client: pulsar.Client, partition: str, done: Position, **options: int | bool
) -> pulsar.Reader:
    """A reader of what follows ``done``; ``options`` are those of ``Client.create_reader``.

    It begins with the entry after ``done``, whether it is there yet or not. A reader that excludes the entry it is given gets a
    producer's whole batch again, and one that seeks to a time (client 3.13) may be unknown to its broker for a moment.
    """
    first = pulsar.MessageId(partition_index(partition), done.ledger, done.entry + 1, -1)
    return client.create_reader(partition, first, start_message_id_inclusive=True, **options)


def read_to_end(reader: pulsar.Reader, *, silence_s: float) -> Iterator[pulsar.Message]:
    """Messages from where the reader stands to the end of its topic.

    Raises ``pulsar.PulsarException``, also after ``silence_s`` without a message.
    """
    while reader.has_message_available():
        yield reader.read_next(timeout_millis=round(1000 * silence_s))


@contextmanager
def keep_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C a ``KeyboardInterrupt``: Pulsar's client turns it into its own error while it waits for an answer."""
    try:
        yield
    except pulsar.Interrupted:
        raise KeyboardInterrupt from None


AuthAction = Literal["produce", "consume"]
"""Actions as ``pulsar-admin topics grant-permission`` spells them."""


def explain_denied(error: Exception, topic: str, action: AuthAction) -> str:
    """The missing permission, if the error is about one, and otherwise Pulsar's own words. ``topic`` is a full name."""
    if not is_denied(error):
        return words_of(error)
    return (
        f"the token's role lacks the permission {action} on {topic}. "
        f"Run: pulsar-admin topics grant-permission {topic} --role ROLE --actions {action}"
    )


def explain_administrator(error: AdminError, namespace: str) -> str | None:
    """The sentence for a call that only an administrator of the tenant may make; None if the error is about something else."""
    if not is_denied(error):
        return None
    tenant = namespace.partition("/")[0]
    return (
        f"{error.answer}. The token's role must be an administrator of the tenant {tenant}, because trimtab reads "
        f"topics and their policies. Run: pulsar-admin tenants update {tenant} --admin-roles ROLE (with the "
        "present roles, too: the command replaces the list)"
    )


def is_denied(error: Exception) -> bool:
    """Whether the role of the token lacks a permission."""
    if isinstance(error, AdminError):
        return _UNAUTHORIZED in error.answer
    return isinstance(error, pulsar.AuthorizationError)


def is_transient(error: BaseException | None) -> bool:
    """Whether brokers do not answer, which may pass. A wrong address looks the same; a missing permission or topic does not."""
    if isinstance(error, AdminError):
        return error.failure in PASSING
    return isinstance(error, _OUTAGES)
