"""The topics of a bundle as columns: name, position, load.

Invariant: rows ascend by position, topics at the same position by name. A topic without statistics has no load.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.ranges import BundleRange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicLoads:
    """Topics of one bundle; n rows."""

    names: Sequence[str]
    positions: Ints
    """Hash positions, (n,), ascending."""
    messages_per_s: Floats
    """Message rate in + out, (n,)."""
    bytes_per_s: Floats
    """Throughput in + out, (n,)."""
    sessions: Ints
    """Producers and consumers that are known of, (n,): at most what there are."""

    def __len__(self) -> int:
        return len(self.names)

    def take_range(self, range_: BundleRange) -> "TopicLoads":
        """The topics whose position is in the range."""
        rows = slice(
            int(np.searchsorted(self.positions, range_.lower)),
            int(np.searchsorted(self.positions, range_.last, side="right")),
        )
        return TopicLoads(
            names=self.names[rows],
            positions=self.positions[rows],
            messages_per_s=self.messages_per_s[rows],
            bytes_per_s=self.bytes_per_s[rows],
            sessions=self.sessions[rows],
        )


def topic_loads(
    names: Sequence[str],
    *,
    positions: Ints,
    messages_per_s: Floats,
    bytes_per_s: Floats,
    sessions: Ints | None = None,
) -> TopicLoads:
    """The columns sorted by position, then name; all have the same length. Without ``sessions`` none are known of."""
    sessions = np.zeros(len(names), dtype=np.int64) if sessions is None else sessions
    order = np.argsort(positions, kind="stable")
    if (np.diff(positions[order]) == 0).any():
        where = positions.tolist()
        order = np.array(sorted(range(len(names)), key=lambda row: (where[row], names[row])), dtype=np.int64)
    return TopicLoads(
        names=[names[row] for row in order.tolist()],
        positions=positions[order],
        messages_per_s=messages_per_s[order],
        bytes_per_s=bytes_per_s[order],
        sessions=sessions[order],
    )


NO_TOPICS = topic_loads(
    (), positions=np.zeros(0, dtype=np.int64), messages_per_s=np.zeros(0), bytes_per_s=np.zeros(0)
)
