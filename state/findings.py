"""What a round shows that no action of ours can help, with what a person can do."""

import numpy as np

from policies.splitting.criteria import hot_partitions
from policies.splitting.plan import TopicTable
from policies.splitting.settings import SplitSettings
from state.outputs import Finding, Section
from state.summary import SHOWN_ROWS
from state.tables import Eligible


def findings(table: Eligible, topics: TopicTable, settings: SplitSettings) -> Section[Finding]:
    """Topic partitions that are too hot for any split, the hottest first; as their bundle's owner reports them."""
    found = [
        (row, bundle)
        for row, bundle in _with_bundles(topics, hot_partitions(topics, settings).tolist())
        if bundle is not None
    ]
    shown = [
        Finding(
            kind="hot-partition",
            subject=topics.names[row],
            broker=table.broker_of(bundle),
            bytes_per_s=float(topics.bytes_per_s[row]),
            advice=f"above hot_partition_bytes_per_s {settings.hot_partition_bytes_per_s:g}: no split can help a single "
            f"topic, more partitions can",
        )
        for row, bundle in found[:SHOWN_ROWS]
    ]
    outcomes = {"hot-partition": len(found)} if found else {}
    return Section(count=len(found), outcomes=outcomes, heaviest=shown)


def _with_bundles(topics: TopicTable, rows: list[int]) -> list[tuple[int, int | None]]:
    """Each topic row with the row of its bundle; None where another than its owner reports it."""
    known = np.flatnonzero(topics.ends > topics.starts)
    known = known[np.argsort(topics.starts[known])]
    if len(known) == 0:
        return [(row, None) for row in rows]
    places = np.searchsorted(topics.starts[known], rows, side="right") - 1
    return [
        (row, int(known[at]) if at >= 0 and row < topics.ends[known[at]] else None)
        for row, at in zip(rows, places.tolist(), strict=True)
    ]
