"""Problems that a round shows and that no action of ours can solve, with what a person can do."""

from collections.abc import Mapping, Sequence

import numpy as np

from policies.splitting.criteria import hot_partitions
from policies.splitting.plan import TopicTable
from policies.splitting.settings import SplitSettings
from state.engine.ledger import Decision
from state.outputs import Finding
from state.pulsar.effects import Elsewhere
from state.pulsar.fleet import Advanced
from state.pulsar.tables import Eligible
from state.pulsar.two_balancers import join_names


def of_actions(ineffective: Mapping[str, Decision], elsewhere: Sequence[Elsewhere]) -> list[Finding]:
    """Actions without effect while their bundles rest, and unloads that landed elsewhere."""
    return [
        *(
            Finding(
                kind="ineffective",
                subject=bundle,
                broker=each.verdict.broker,
                bytes_per_s=None,
                advice=f"its {each.kind} is said to have succeeded, {each.verdict.rounds_count} rounds of reports show no "
                f"effect: look for who undoes it; the bundle is left alone for ineffective_rest_s",
            )
            for bundle, each in sorted(ineffective.items())
            if each.verdict
        ),
        *(
            Finding(
                kind="landed-elsewhere",
                subject=each.bundle,
                broker=each.owner,
                bytes_per_s=None,
                advice=f"it was to go to {each.destination}: Pulsar's own placement may have overruled that",
            )
            for each in elsewhere
        ),
    ]


def of_gaps(advanced: Advanced) -> list[Finding]:
    """Brokers whose reports leave bundles out and list them again."""
    return [
        Finding(
            kind="gaps-in-reports",
            subject=broker,
            broker=broker,
            bytes_per_s=None,
            advice=f"its last report left out {join_names(bundles)}, which it lists again: see its log for bundles that are unloaded and "
            "loaded again. Pulsar's policies take a gap for a change of the load; the fleet planner does not",
        )
        for broker, bundles in sorted(advanced.returned.items())
    ]


def of_overlaps(advanced: Advanced) -> list[Finding]:
    """Bundles whose ranges overlap finer ones of their namespace, by name."""
    owners = advanced.owners_of(advanced.overlaps) if advanced.overlaps else {}
    return [
        Finding(
            kind="overlapping-ranges",
            subject=bundle,
            broker=owners[bundle],
            bytes_per_s=None,
            advice=f"its range overlaps {join_names(finer)}, which a namespace's ranges never do: one of them is no more. The finer "
            "ones count, and none of them is moved or split. Compare `pulsar-admin namespaces bundles`; a broker that lists a "
            "bundle which is no more forgets it when it restarts",
        )
        for bundle, finer in sorted(advanced.overlaps.items())
    ]


def of_topics(table: Eligible, topics: TopicTable, settings: SplitSettings) -> list[Finding]:
    """Topic partitions that are too hot for any split, the hottest first; as their bundle's owner reports them."""
    return [
        Finding(
            kind="hot-partition",
            subject=topics.names[row],
            broker=table.broker_of(bundle),
            bytes_per_s=float(topics.bytes_per_s[row]),
            advice=f"above hot_partition_bytes_per_s {settings.hot_partition_bytes_per_s:g}: no split can help a single "
            f"topic, more partitions can",
        )
        for row, bundle in _with_bundles(topics, hot_partitions(topics, settings).tolist())
        if bundle is not None
    ]


def _with_bundles(topics: TopicTable, rows: list[int]) -> list[tuple[int, int | None]]:
    """Each topic row with the row of its bundle; None where a broker other than the bundle's owner reports it."""
    known = np.flatnonzero(topics.ends > topics.starts)
    known = known[np.argsort(topics.starts[known])]
    if len(known) == 0:
        return [(row, None) for row in rows]
    places = np.searchsorted(topics.starts[known], rows, side="right") - 1
    return [
        (row, int(known[at]) if at >= 0 and row < topics.ends[known[at]] else None)
        for row, at in zip(rows, places.tolist(), strict=True)
    ]
