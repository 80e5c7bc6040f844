"""What a policy sees: one cluster (or one group of it) in one round, as columns.

Invariants, checked where a snapshot is built: brokers are sorted by name; bundles are grouped by their broker in
broker order and sorted by name within it, so a stable sort by traffic breaks ties by name. No value is NaN or
infinite. A policy never mutates these arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.usage import Bools, Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerTable:
    """Brokers that take part in the round; n rows."""

    names: tuple[str, ...]
    """Broker ids, ascending."""
    usage_ratio: Floats
    """Weighted maximum usage, (n,), 1.0 = 100 %; from ``policies.usage.weighted_maximum_ratio``."""
    messages_per_s: Floats
    """Message rate in + out as the broker reports it, (n,)."""
    bytes_per_s: Floats
    """Throughput in + out as the broker reports it, (n,)."""
    listed_bundle_counts: Ints
    """How many bundles the broker lists, heartbeat bundles included, (n,): Pulsar's own count."""
    may_receive: Bools
    """Whether a bundle may be moved to the broker, (n,)."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleTable:
    """Bundles of those brokers, each at its owner only, protected system bundles left out; m rows."""

    names: Sequence[str]
    """Full bundle names, ascending within a broker."""
    starts: Ints
    """(n + 1,): rows ``starts[b]:starts[b + 1]`` belong to broker ``b``."""
    messages_per_s: Floats
    """Running average of the message rate in + out, (m,)."""
    bytes_per_s: Floats
    """Running average of the throughput in + out, (m,)."""
    movable: Bools
    """Whether the bundle may be chosen, (m,)."""

    def rows_of(self, broker: int) -> slice:
        """Rows of one broker."""
        return slice(int(self.starts[broker]), int(self.starts[broker + 1]))

    def __len__(self) -> int:
        return len(self.messages_per_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One group of brokers and the bundles they own, in one round."""

    brokers: BrokerTable
    bundles: BundleTable


def empty_rows() -> Ints:
    """No rows."""
    return np.zeros(0, dtype=np.int64)
