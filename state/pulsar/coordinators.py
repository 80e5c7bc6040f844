"""Transaction coordinators: whether all of them are at one broker, so that its restart stops every transaction client at once.

They follow the bundles of ``pulsar/system``, which no shedder moves because they carry next to no traffic. After rolling restarts
all may be at the broker that came back last (pulsar#22953).
"""

from collections.abc import Mapping

from state.outputs import Finding
from state.pulsar.memory import Gathered, WaitingReport

_LASTS_MS = 3_600_000
"""An hour: longer than a rolling restart of most clusters, after which they may spread by themselves."""
_BROKERS_COUNT = 3
"""Of two brokers, one has most of them anyway."""


def watch(before: Gathered | None, reports: Mapping[str, WaitingReport], *, end_ms: int) -> Gathered | None:
    """The broker that alone has bundles of ``pulsar/system``, more than one, and since when; a missing report proves nothing."""
    counts = {name: len(found) for name, each in reports.items() if (found := each.report.cluster_bundles)}
    if before is not None and before.broker not in reports and not counts:
        return before
    [(broker, count)] = counts.items() if len(counts) == 1 else [("", 0)]
    if count <= 1:
        return None
    return before if before is not None and before.broker == broker else Gathered(broker, end_ms)


def find(
    gathered: Gathered | None, reports: Mapping[str, WaitingReport], *, live_count: int, end_ms: int
) -> list[Finding]:
    """That they have been at one of three or more brokers for an hour; information."""
    if gathered is None or gathered.broker not in reports or live_count < _BROKERS_COUNT:
        return []
    if end_ms - gathered.since_ms < _LASTS_MS:
        return []
    bundles = reports[gathered.broker].report.cluster_bundles
    return [
        Finding(
            kind="coordinators-at-one-broker",
            subject="pulsar/system",
            broker=gathered.broker,
            bytes_per_s=None,
            advice=f"all {len(bundles)} bundles of pulsar/system have been at it for an hour or more, of {live_count} brokers: when it "
            "stops, every client of transactions waits at once. Balancing leaves them where they are",
        )
    ]
