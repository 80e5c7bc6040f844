"""Versions of the layout of a cluster's stored memory: what an older trimtab wrote is upgraded, what a newer one wrote is refused.

Every stored value begins with one byte, the version of its layout. ``VERSION`` rises with every change of a layout, a
field added at the end included: an older trimtab would drop it silently when it writes the value back. Each rise brings
an upgrade from the version before it. A version without an upgrade is refused, and the message says what to do.

Invariant: a value is read under the version that it was written with, or not at all.

What a released trimtab can have stored lies in ``tests/state/golden_state``, with a description of the layouts. As long as
a version is not released, its layouts may still change: the fields change under the same number, and
``python -m tests.state.golden_state`` writes the recorded values anew (on a conflict in them, take either side and run it).
``--release`` freezes them; from then on the same
command refuses, and a test fails until ``VERSION`` has been raised.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from state.engine.upgrade_early import with_early
from state.engine.upgrade_kafka import with_move_table, with_replica_table, with_throttle_configs
from state.engine.upgrade_ledger import with_ledger
from state.engine.upgrade_rounds import with_senders

VERSION = 3
"""Version of every layout. 2 is that of trimtab 0.1.0; 1 stood for many layouts before it, which cannot be told apart."""

FRESH = (
    "--fresh, which forgets every cluster's averages, hit counts, cooldowns, budgets and actions in flight"
)
"""For messages that recommend it: the option of a start that begins without the memory, and what is lost by it."""

Kind = Literal["header", "fleet", "kafka", "report", "topics", "logs", "moves", "batch"]
"""What a stored value is."""

Upgrade = Callable[[Kind, Any], Any]
"""Makes a decoded body (lists, dicts and plain values) into one of the next version."""


def _from_2(kind: Kind, body: Any) -> Any:
    """Version 3 keeps decisions in one ledger, who waits in the header, early events as they came, a policy's memory under its name.

    Kafka's reports and throttle are in other fields.
    """
    match kind:
        case "header":
            return with_early(with_senders(with_ledger(body)))
        case "logs":
            return with_replica_table(body)
        case "kafka":
            return with_throttle_configs(body)
        case "moves":
            return with_move_table(body)
        case "fleet":
            return _with_memory_by_policy(body)
    return body


def _with_memory_by_policy(body: Any) -> Any:
    low_hits, high_hits, history_ratio = body[11:14]
    policies = {
        "avg-shedder": {"low_hits": low_hits, "high_hits": high_hits},
        "threshold-shedder": {"history_ratio": history_ratio},
    }
    return [*body[:11], policies, *body[14:]]


UPGRADES: dict[int, Upgrade] = {2: _from_2}
"""Upgrades by the version that each one starts from."""

_encoder = msgspec.msgpack.Encoder()


class NewerStateError(Exception):
    """The memory was written by a newer trimtab."""


class OlderStateError(Exception):
    """The memory was written by a trimtab so old that nothing upgrades it."""


def seal(body: Any) -> bytes:
    """A value with its version before it."""
    return bytes([VERSION]) + _encoder.encode(body)


def unseal(kind: Kind, value: bytes) -> bytes | memoryview:
    """The encoded body of a value, in today's layout. Raises ``NewerStateError`` and ``OlderStateError``."""
    version = value[0]
    if version == VERSION:
        return memoryview(value)[1:]
    refuse_version(version, "the memory in the checkpoint")
    body = msgspec.msgpack.decode(memoryview(value)[1:])
    for each in range(version, VERSION):
        body = UPGRADES[each](kind, body)
    return _encoder.encode(body)


def refuse_version(version: int, name: str) -> None:
    """Raise ``NewerStateError`` or ``OlderStateError`` where memory of this version cannot be read; ``name`` says what has it."""
    if version > VERSION:
        raise NewerStateError(
            f"{name} was written by a newer trimtab (memory version {version}, this one knows {VERSION}): "
            f"run the trimtab that wrote it or a newer one, or start over with {FRESH}"
        )
    if any(each not in UPGRADES for each in range(version, VERSION)):
        raise OlderStateError(
            f"{name} was written by a trimtab from before 0.1.0 (memory version {version}), whose memory this one cannot "
            f"read: start over with {FRESH}"
        )
