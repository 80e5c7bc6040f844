"""Machines on one host: each broker in a network namespace of its own, as in a container, with a network card of its own.

Brokers on one host see the host's processors, but each sees only its own card, so their bandwidth tells them apart. It needs Linux,
root, `ip` and `tc` (iproute2). What runs beside the machines is at ``HOST``.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local.processes import LocalError, Machine
from streaming.process.closeable import Closeable

HOST = "10.213.0.1"
IS_POSSIBLE = os.geteuid() == 0 and all(map(shutil.which, ("ip", "tc")))
_BRIDGE = "trimtab0"
_SUBNET_BITS = 24
_QUEUE = ("burst", "64kb", "latency", "200ms")
"""What a limited card lets pass at once, and how long at most a packet waits before it is dropped."""


class Network(Closeable):
    """A bridge at ``HOST`` and a namespace for each of ``count`` machines, numbered from 1; what an earlier run left is replaced.

    A card carries ``card_bytes_per_s`` each way, or what the host can. Raises ``LocalError`` where this cannot be done.
    """

    def __init__(self, count: int, *, card_bytes_per_s: int | None = None) -> None:
        if not IS_POSSIBLE:
            raise LocalError(
                "network namespaces need root, `ip` and `tc` (on Debian: apt-get install iproute2)"
            )
        self._numbers = range(1, count + 1)
        self._card_bytes_per_s = card_bytes_per_s
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
        for card in (
            _BRIDGE,
            *map(_outside, self._numbers),
        ):  # a card outlives its namespace while a process is in it
            with suppress(LocalError):
                _ip("link", "delete", card)

    def _add(self, number: int) -> None:
        namespace, outside = _namespace(number), _outside(number)
        _ip("netns", "add", namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", _BRIDGE, "up")
        _ip("-n", namespace, "addr", "add", f"{_address(number)}/{_SUBNET_BITS}", "dev", "eth0")
        for card in ("eth0", "lo"):
            _ip("-n", namespace, "link", "set", card, "up")
        if self._card_bytes_per_s is not None:
            limit = ("root", "tbf", "rate", f"{8 * self._card_bytes_per_s}bit", *_QUEUE)
            _run("tc", "qdisc", "add", "dev", outside, *limit)
            _run("tc", "-n", namespace, "qdisc", "add", "dev", "eth0", *limit)


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
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
