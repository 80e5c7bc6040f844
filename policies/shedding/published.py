"""What brokers publish about themselves where Pulsar's extensible load manager (PIP-192) runs: smoothed load, heaviest bundles."""

from dataclasses import dataclass

import numpy as np

from policies.columns import Floats, Ints

NOT_OWNED = -1
"""Row of a published bundle that its publisher does not own any more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedLoads:
    """One row for each broker of a view, n rows; k heaviest bundles in all.

    Source: Pulsar ``BrokerLoadData`` and ``TopBundlesLoadData``.
    """

    usage_ratio: Floats
    """Weighted maximum usage as the broker smooths it, 1.0 = 100 %, (n,). Pulsar: ``weightedMaxEMA``."""
    bytes_per_s: Floats
    """Throughput in + out as the broker smooths it, (n,). Pulsar: ``msgThroughputEMA``."""
    age_s: Floats
    """Seconds from the broker's last update to the end of the round, (n,). Pulsar: ``updatedAt``."""
    top_starts: Ints
    """(n + 1,): entries ``top_starts[b]:top_starts[b + 1]`` of the two columns below are broker b's heaviest bundles, in its
    order: the lightest first."""
    top_rows: Ints
    """Bundle row of each, ``NOT_OWNED`` where the broker does not own it, (k,)."""
    top_bytes_per_s: Floats
    """Throughput in + out of each, not averaged, (k,)."""

    def top_of(self, broker: int) -> list[tuple[int, float]]:
        """Bundle row and bytes/s of each of a broker's heaviest bundles, the lightest first."""
        entries = slice(int(self.top_starts[broker]), int(self.top_starts[broker + 1]))
        return list(zip(self.top_rows[entries].tolist(), self.top_bytes_per_s[entries].tolist(), strict=True))

    def part(self, brokers: Ints, bundles: Ints, *, bundles_count: int) -> "PublishedLoads":
        """The loads of some brokers (ascending rows); the bundle rows ``bundles`` of ``bundles_count`` are numbered anew."""
        place = np.full(bundles_count + 1, NOT_OWNED, dtype=np.int64)
        place[bundles] = np.arange(len(bundles))
        counts = np.diff(self.top_starts)[brokers]
        taken = np.concatenate(
            [np.arange(self.top_starts[row], self.top_starts[row + 1]) for row in brokers.tolist()]
        ).astype(np.int64)
        return PublishedLoads(
            usage_ratio=self.usage_ratio[brokers],
            bytes_per_s=self.bytes_per_s[brokers],
            age_s=self.age_s[brokers],
            top_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            top_rows=place[self.top_rows[taken]],
            top_bytes_per_s=self.top_bytes_per_s[taken],
        )
