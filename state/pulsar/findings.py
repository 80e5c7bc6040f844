"""Problems that a round shows and that no action of ours can solve, with what a person can do.

Those of brokers, and of whole groups, are in ``broker_findings``.
Transaction coordinators that are all at one broker are a finding, too: its restart stops every transaction client at once. They
follow the bundles of ``pulsar/system``, which no shedder moves because they carry next to no traffic; after rolling restarts all
may be at the broker that came back last (pulsar#22953).
"""

from collections import defaultdict

import numpy as np

from policies.splitting.criteria import hot_partitions
from policies.splitting.plan import NO_TOPIC, TRIGGERS, UNITS, SplitSettings, TopicTable, evidence_name
from policies.wording import counted, time_text
from state.events import Tick
from state.outputs import Finding, rfc3339
from state.pulsar.broker_findings import LASTING_ROUNDS, LASTS_MS
from state.pulsar.effects import Effects
from state.pulsar.fleet import Advanced
from state.pulsar.memory import Gathered
from state.pulsar.splits import Splits, one_topic
from state.pulsar.view import PolicyView, RoundContext
from state.summary import join_names

MANY_UNOWNED_RATIO = 0.05
"""Share of the bundles from which those without an owner are one finding: a broker that restarts, not bundles that got lost."""
_NAMED_BUNDLES = 3


def of_actions(context: RoundContext, effects: Effects) -> list[Finding]:
    """Actions without effect while their bundles rest, and unloads that landed elsewhere."""
    resting = context.ledger.ineffective(context.guards.ineffective_rest_s, end_ms=context.end_ms)
    return [
        *(
            Finding(
                kind="ineffective",
                subject=bundle,
                broker=decision.verdict.broker,
                bytes_per_s=None,
                advice=f"its {decision.kind} is said to have succeeded, {counted(decision.verdict.rounds_count, 'round')} of reports "
                f"show{'s' * (decision.verdict.rounds_count == 1)} no "
                f"effect: look for who undoes it; the bundle is left alone for ineffective_rest_s",
            )
            for bundle, decision in sorted((resting | effects.ineffective).items())
            if decision.verdict
        ),
        *(
            Finding(
                kind="landed-elsewhere",
                subject=landed.bundle,
                broker=landed.owner,
                bytes_per_s=None,
                advice=f"it was to go to {landed.destination}: Pulsar's own placement may have overruled that. "
                "After three rounds in a row no other bundle is sent there for up to an hour",
            )
            for landed in effects.elsewhere
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
    """Bundles that do not count because others whose ranges they overlap do, by name."""
    owners = advanced.owners_of(advanced.overlaps) if advanced.overlaps else {}
    return [
        Finding(
            kind="overlapping-ranges",
            subject=bundle,
            broker=owners[bundle],
            bytes_per_s=None,
            advice=f"its range overlaps {join_names(others)}, which a namespace's ranges never do: one of them is no more. Those with "
            f"traffic count, of these the finer ones, and none of them is moved or split. Compare `pulsar-admin namespaces bundles`; a broker that "
            "lists a bundle which is no more forgets it when it restarts",
        )
        for bundle, others in sorted(advanced.overlaps.items())
    ]


def of_strays(context: RoundContext) -> list[Finding]:
    """By broker, bundles that it has listed for some rounds beside their owner."""
    fleet = context.fleet
    lister = np.repeat(np.arange(len(fleet.brokers)), np.diff(fleet.starts))
    is_owner = fleet.owner[fleet.listed_rows] == lister
    if is_owner.all():
        return []
    reports = np.array([name in context.reports for name in fleet.brokers], dtype=np.bool_)
    lasts = (
        fleet.broker_last_ms[lister] - fleet.run_start_ms >= (LASTING_ROUNDS - 1) * context.header.length_ms
    )
    lasts &= reports[lister]
    is_owned = np.zeros(len(fleet.owner), dtype=np.bool_)
    is_owned[fleet.listed_rows[is_owner & lasts]] = True
    strays = defaultdict(list)
    for entry in np.flatnonzero(lasts & ~is_owner & is_owned[fleet.listed_rows]).tolist():
        strays[fleet.brokers[lister[entry]]].append(fleet.bundles[fleet.listed_rows[entry]])
    return [
        Finding(
            kind="listed-twice",
            subject=broker,
            broker=broker,
            bytes_per_s=None,
            advice=f"for {LASTING_ROUNDS} rounds or longer it has listed {join_names(bundles)}, which another broker lists, too, and counts as "
            "the owner: look up who has it (pulsar-admin topics lookup); a broker that lists a bundle which it does not have forgets "
            "it when it restarts",
        )
        for broker, bundles in sorted(strays.items())
    ]


def of_topics(table: PolicyView, topics: TopicTable, settings: SplitSettings) -> list[Finding]:
    """Topic partitions that are too hot for any split, the hottest first; as their bundle's owner reports them."""
    return [
        Finding(
            kind="hot-partition",
            subject=topics.names[row],
            broker=table.broker_of(bundle),
            bytes_per_s=float(topics.bytes_per_s[row]),
            advice=f"above hot_partition_bytes_per_s {settings.hot_partition_bytes_per_s:,.0f}: no split can help a single "
            f"topic, more partitions can",
        )
        for row, bundle in _with_bundles(topics, hot_partitions(topics, settings).tolist())
        if bundle is not None
    ]


def of_unowned(tick: Tick | None, bundles_count: int) -> list[Finding]:
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
            advice=f"no broker owns it since {time_text(rfc3339(since_ms))} although it had clients or traffic, so its topics cannot be used: look "
            f"one of them up (pulsar-admin topics lookup), which assigns it; if that fails, restart the broker that had it",
        )
        for name, since_ms in tick.unowned
    ]


def of_splits(splits: Splits) -> list[Finding]:
    """Topics that keep their bundles above a limit of splits, so that no split can help."""
    examined = splits.plan.examined
    findings = []
    for row in np.flatnonzero(examined.heaviest_topic != NO_TOPIC).tolist():
        bundle, trigger = int(examined.rows[row]), examined.trigger_of(row)
        topic, share = one_topic(splits, row)
        amount = f"{examined.evidence_of(row)[evidence_name(trigger)]:.0f} {UNITS[TRIGGERS.index(trigger)]}"
        findings.append(
            Finding(
                kind="dominant-topic",
                subject=topic,
                broker=splits.table.broker_of(bundle),
                bytes_per_s=float(splits.snapshot.topic_table.bytes_per_s[examined.heaviest_topic[row]]),
                advice=f"it carries {share:.0%} of the {amount} of {splits.snapshot.names[bundle]}, and no split can help: give it "
                f"more partitions, or raise the limit",
            )
        )
    return findings


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


_BROKERS_COUNT = 3
"""Of two brokers, one has most of them anyway."""


def watch_coordinators(context: RoundContext) -> None:
    """Count on in the fleet since when one broker has all of them."""
    context.fleet.gathered = _gathered(context)


def _gathered(context: RoundContext) -> Gathered | None:
    """The broker that alone has bundles of ``pulsar/system``, more than one, and since when; a missing report proves nothing."""
    before, reports = None if context.closing.restarted else context.before.gathered, context.reports
    counts = {
        name: len(bundles) for name, report in reports.items() if (bundles := report.report.cluster_bundles)
    }
    if before is not None and before.broker not in reports and not counts:
        return before
    [(broker, count)] = counts.items() if len(counts) == 1 else [("", 0)]
    if count <= 1:
        return None
    return before if before is not None and before.broker == broker else Gathered(broker, context.end_ms)


def find_gathered(context: RoundContext) -> list[Finding]:
    """That they have been at one of three or more brokers for a quarter of an hour; information."""
    gathered, live_count = context.fleet.gathered, len(context.live)
    if gathered is None or gathered.broker not in context.reports or live_count < _BROKERS_COUNT:
        return []
    if context.end_ms - gathered.since_ms < LASTS_MS:
        return []
    bundles = context.reports[gathered.broker].report.cluster_bundles
    return [
        Finding(
            kind="coordinators-at-one-broker",
            subject="pulsar/system",
            broker=gathered.broker,
            bytes_per_s=None,
            advice=f"all {len(bundles)} bundles of pulsar/system are at it, of {live_count} brokers: when it "
            "stops, every client of transactions waits at once. Balancing leaves them where they are",
        )
    ]
