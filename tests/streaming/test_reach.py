"""What is said of an address that does not answer: only what is certain."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from streaming.transport.reach import Protocol, faults_of

PROTOCOL = Protocol("Kafka", greeting=b"hello?", is_answer=lambda answer: answer == b"hello!")


@contextmanager
def listening(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """A server that answers once on each connection; None: it says nothing until the client goes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(5)
                        said = answer(connection.recv(4096))
                        connection.sendall(said) if said is not None else connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def http(request: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\n\r\n" if request.startswith(b"GET") else b"what?"


@pytest.mark.parametrize(
    ("answer", "encrypts", "fault"),
    [
        (lambda _: b"hello!", False, None),
        (lambda _: None, False, None),
        (http, False, "speaks HTTP, not the protocol of Kafka"),
        (lambda _: b"", False, "accepts connections, but does not speak the protocol of Kafka"),
        (lambda _: b"what?", True, "does not speak TLS, which the settings ask for"),
        (lambda _: None, True, None),
    ],
    ids=["ours", "busy", "http", "closed at once", "plain where TLS is asked for", "busy, with TLS"],
)
def test_what_listens_is_told_where_it_is_certain(
    answer: Callable[[bytes], bytes | None], fault: str | None, *, encrypts: bool
):
    with listening(answer) as address:
        found = faults_of([address], PROTOCOL, encrypts=encrypts)
    assert found == (None if fault is None else f"{address} {fault}")


def test_a_closed_port_and_an_unknown_host_are_told_unless_another_address_may_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    refused = f"nothing listens at {closed} (connection refused)"
    unknown = "no-such-host.invalid:9092"
    assert faults_of([closed], PROTOCOL, encrypts=False) == refused
    assert (found := faults_of([closed, unknown], PROTOCOL, encrypts=True)) is not None
    assert found.startswith(f"{refused}; the host of {unknown} is unknown")
    with listening(lambda _: None) as busy:
        assert faults_of([closed, busy], PROTOCOL, encrypts=False) is None


def test_a_port_with_tls_is_told_where_the_settings_do_not_ask_for_it(monkeypatch: pytest.MonkeyPatch):
    def shake_hands(_: ssl.SSLContext, plain: socket.socket) -> socket.socket:
        return plain

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", shake_hands)
    with listening(lambda _: b"") as address:
        found = faults_of([address], PROTOCOL, encrypts=False)
    assert found == f"{address} speaks TLS, and the settings do not ask for it"
