"""A network that can be cut, held up and slowed."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from deploy.local.processes import free_ports
from tests.faults.proxy import DELAY_S, Proxy


@contextmanager
def echoing() -> Iterator[tuple[Proxy, int]]:
    """A proxy before a server that sends everything back, and the proxy's port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                while data := connection.recv(100):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        (port,) = free_ports(1)
        with closing(Proxy(port, server.getsockname()[1])) as proxy:
            yield proxy, port


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def said_back(connection: socket.socket) -> float:
    """Seconds until a word came back."""
    began_s = time.monotonic()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    return time.monotonic() - began_s


def test_what_is_cut_is_reset_at_once_and_new_connections_too_until_it_is_open_again():
    with echoing() as (proxy, port):
        with connected(port) as connection:
            said_back(connection)
            proxy.set("cut")
            with pytest.raises((OSError, AssertionError)):
                said_back(connection)
        with pytest.raises((OSError, AssertionError)), connected(port) as refused:
            said_back(refused)
        proxy.set("open")
        with connected(port) as connection:
            said_back(connection)


def test_what_is_held_arrives_when_it_is_over_and_what_is_slow_arrives_late():
    with echoing() as (proxy, port), connected(port) as connection:
        said_back(connection)
        proxy.set("hold")
        connection.sendall(b"x")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        proxy.set("slow")
        assert connection.recv(1) == b"x"
        assert said_back(connection) >= 2 * DELAY_S
