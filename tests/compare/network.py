"""Machines on one host: each broker in a network namespace of its own, as in a container, with a network card of its own.

Brokers on one host see the host's processors, but each sees only its own card, so their bandwidth tells them apart. It needs Linux,
root and `ip` (iproute2). ZooKeeper, the bookie, the clients and trimtab stay outside, at ``HOST``.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local.processes import LocalError
from deploy.local.pulsar import Machine
from streaming.process.closeable import Closeable

HOST = "10.213.0.1"
_BRIDGE = "trimtab0"
_SUBNET_BITS = 24


class Network(Closeable):
    """A bridge at ``HOST`` and a namespace for each of ``count`` machines, numbered from 1; what an earlier run left is replaced.

    Raises ``LocalError`` where this cannot be done.
    """

    def __init__(self, count: int) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise LocalError(
                "network namespaces need root and the command `ip` (on Debian: apt-get install iproute2)"
            )
        self._numbers = range(1, count + 1)
        self.close()
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{HOST}/{_SUBNET_BITS}", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for number in self._numbers:
            self._add(number)

    @property
    def machines(self) -> dict[int, Machine]:
        """What `LocalPulsar` needs to know."""
        return {
            number: Machine(_address(number), ("ip", "netns", "exec", _namespace(number)))
            for number in self._numbers
        }

    def bytes_of(self, number: int) -> tuple[int, int]:
        """Bytes that the card of a machine has received and sent so far."""
        # what the outer end of the pair sends, the card receives
        folder = Path("/sys/class/net") / _outside(number) / "statistics"
        return int((folder / "tx_bytes").read_text()), int((folder / "rx_bytes").read_text())

    def close(self) -> None:
        """Take everything away; a namespace that is not there is no error."""
        for name in _namespaces():
            _ip("netns", "delete", name)
        with suppress(LocalError):
            _ip("link", "delete", _BRIDGE)

    def _add(self, number: int) -> None:
        namespace, outside = _namespace(number), _outside(number)
        _ip("netns", "add", namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", _BRIDGE, "up")
        _ip("-n", namespace, "addr", "add", f"{_address(number)}/{_SUBNET_BITS}", "dev", "eth0")
        for card in ("eth0", "lo"):
            _ip("-n", namespace, "link", "set", card, "up")


def _namespace(number: int) -> str:
    return f"trimtab-{number}"


def _outside(number: int) -> str:
    return f"trimtab-{number}"


def _address(number: int) -> str:
    return HOST.rpartition(".")[0] + f".{10 + number}"


def _namespaces() -> Sequence[str]:
    listed = _ip("netns", "list").split("\n")
    return [name for line in listed if (name := line.partition(" ")[0]).startswith("trimtab-")]


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
