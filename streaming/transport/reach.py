"""Why an address does not answer: nothing listens there, its name is unknown, or what listens speaks another protocol.

Clients of brokers try again and again, and in the end only say that they gave up. So the address is asked here once they have failed:
a connection, a few bytes, at most a second each. Only what is certain is said; a broker that is busy or starting is none of these.
"""

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

_WAIT_S = 0.5
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_ANSWER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Protocol:
    """Whose port it should be: a request that its brokers answer without a login, and how their answer is known."""

    name: str
    greeting: bytes
    is_answer: Callable[[bytes], bool]


def faults_of(addresses: Sequence[str], protocol: Protocol, *, encrypts: bool) -> str | None:
    """What is wrong with every one of the addresses (``host:port``), as a clause; None if one of them may still answer.

    ``encrypts`` says whether the settings ask for TLS.
    """
    faults = [_fault_of(address, protocol, encrypts=encrypts) for address in addresses]
    known = [fault for fault in faults if fault is not None]
    return "; ".join(dict.fromkeys(known)) if known and len(known) == len(faults) else None


def fault_of_connection(address: str, error: BaseException | None) -> str | None:
    """What an error of a connection, or the errors that caused it, say of the address; None where they do not say it."""
    while error is not None:
        if isinstance(error, socket.gaierror):
            return f"the host of {address} is unknown ({error.strerror})"
        if isinstance(error, ConnectionRefusedError):
            return f"nothing listens at {address} (connection refused)"
        if isinstance(error, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(error):
            return f"{address} does not speak TLS, which the settings ask for"
        error = error.__cause__ or error.__context__
    return None


def _fault_of(address: str, protocol: Protocol, *, encrypts: bool) -> str | None:
    try:
        if encrypts:
            _speaks_tls(address)
            return None
        answer = _answer(address, protocol.greeting)
    except OSError as error:
        return fault_of_connection(address, error)
    if answer is not None and protocol.is_answer(answer):
        return None
    return _other_protocol(address, protocol, is_silent=answer is None)


def _other_protocol(address: str, protocol: Protocol, *, is_silent: bool) -> str | None:
    with suppress(OSError):
        if _speaks_tls(address):
            return f"{address} speaks TLS, and the settings do not ask for it"
    with suppress(OSError):
        if (_answer(address, _HTTP_REQUEST) or b"").startswith(b"HTTP/"):
            return f"{address} speaks HTTP, not the protocol of {protocol.name}"
    return (
        None
        if is_silent
        else f"{address} accepts connections, but does not speak the protocol of {protocol.name}"
    )


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_WAIT_S)


def _answer(address: str, request: bytes) -> bytes | None:
    """The first bytes of an answer; empty where the connection is closed instead, None where nothing comes in time."""
    with _connect(address) as connection:
        try:
            connection.sendall(request)
            return connection.recv(_ANSWER_BYTES)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""


def _speaks_tls(address: str) -> bool:
    """True after a handshake, whoever the certificate is for: nothing is sent. Raises ``OSError``."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with _connect(address) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER" in str(error):
            raise
        return "ALERT" in str(error)  # it wants a certificate of ours, or another version
