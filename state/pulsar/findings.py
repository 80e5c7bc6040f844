"""Problems that a round shows and that no action of ours can solve, with what a person can do."""

from collections.abc import Mapping, Sequence

import numpy as np

from policies.splitting.criteria import hot_partitions
from policies.splitting.plan import NO_TOPIC, TRIGGERS, UNITS, TopicTable, evidence_name
from policies.splitting.settings import SplitSettings
from state.engine.ledger import Decision
from state.engine.memory import TickRecord
from state.outputs import Finding, rfc3339
from state.pulsar.effects import Elsewhere
from state.pulsar.splits import Splits, one_topic
from state.pulsar.tables import Eligible

MANY_UNOWNED_RATIO = 0.05
"""Share of the bundles from which those without an owner are one finding: a broker that restarts, not bundles that got lost."""
_NAMED_BUNDLES = 3


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


def of_unowned(tick: TickRecord | None, bundles_count: int) -> list[Finding]:
    """Bundles that nobody owns although they are used; many at once are one finding. ``bundles_count`` are those of the cluster."""
    count = 0 if tick is None else tick.unowned_count
    if tick is None or count == 0:
        return []
    if count > 1 and count > MANY_UNOWNED_RATIO * max(bundles_count, count):
        first = ", ".join(name for name, _ in tick.unowned[:_NAMED_BUNDLES])
        advice = (
            f"{count} of {bundles_count} bundles with clients or traffic have no owner, such as {first}: so many at once are brokers "
            f"that restart, or reports that do not arrive; if it lasts, look at the brokers and their metadata store"
        )
        return [Finding(kind="unowned", subject="", broker="", bytes_per_s=None, advice=advice)]
    return [
        Finding(
            kind="unowned",
            subject=name,
            broker="",
            bytes_per_s=None,
            advice=f"no broker owns it since {rfc3339(since_ms)} although it had clients or traffic, so its topics cannot be used: look "
            f"one of them up (pulsar-admin topics lookup), which assigns it; if that fails, restart the broker that had it",
        )
        for name, since_ms in tick.unowned
    ]


def of_splits(splits: Splits) -> list[Finding]:
    """Topics that keep their bundles above a limit of splits, so that no split can help."""
    examined = splits.plan.examined
    found = []
    for row in np.flatnonzero(examined.heaviest_topic != NO_TOPIC).tolist():
        bundle, trigger = int(examined.rows[row]), examined.trigger_of(row)
        topic, share = one_topic(splits, row)
        amount = f"{examined.evidence_of(row)[evidence_name(trigger)]:.0f} {UNITS[TRIGGERS.index(trigger)]}"
        found.append(
            Finding(
                kind="one-topic",
                subject=topic,
                broker=splits.broker_of(bundle),
                bytes_per_s=float(splits.snapshot.topic_table.bytes_per_s[examined.heaviest_topic[row]]),
                advice=f"it carries {share:.0%} of the {amount} of {splits.snapshot.names[bundle]}, and no split can help: give it "
                f"more partitions, or raise the limit",
            )
        )
    return found


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
