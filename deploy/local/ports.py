"""Ports on loopback that are free now; a process that binds one later may find it taken and has to choose again."""

import secrets
import socket
from contextlib import suppress

_PORTS = range(15_000, 30_000)
"""Below the kernel's ephemeral range. A client that reconnects to a broker that is down, on an ephemeral port of
loopback, can be given that very port as its own, connect to itself, and keep the broker from binding it again."""


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nothing on loopback has bound at this moment."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return list(found)
