"""Problems that a round shows and that no action of ours can solve, with what a person can do.

What a broker reports for a moment is no finding: ``watch`` counts in the fleet how long it lasts. A gap changes no count: neither
a report that is missing nor a number that is not known. A broker that was away for longer than ``max_report_age_s`` begins anew.
Transaction coordinators that are all at one broker are a finding, too: its restart stops every transaction client at once. They
follow the bundles of ``pulsar/system``, which no shedder moves because they carry next to no traffic; after rolling restarts all
may be at the broker that came back last (pulsar#22953).
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from policies.columns import Bools
from policies.splitting.criteria import hot_partitions
from policies.splitting.plan import NO_TOPIC, TRIGGERS, UNITS, SplitSettings, TopicTable, evidence_name
from policies.usage import RESOURCES
from policies.wording import counted, digits, time_text
from state.events import SESSIONS, TOPICS, Tick
from state.outputs import Finding, rfc3339
from state.pulsar.effects import Effects
from state.pulsar.fleet import Advanced
from state.pulsar.listings import match
from state.pulsar.loads import Loads
from state.pulsar.memory import Fleet, Gathered
from state.pulsar.splits import Splits, one_topic
from state.pulsar.view import PolicyView, RoundContext
from state.summary import join_names

LASTING_ROUNDS = 3
"""Rounds in a row after which a usage or a missing limit is no accident."""
MOST_USAGE_POINTS = 105.0
"""Highest usage that a right limit can show: usage and limit are not read at the same moment."""
LASTS_MS = 900_000
"""How long a broker has to carry nothing, or to have all coordinators: longer than it takes to come back from a restart and get a share."""
SHOWN_POINTS = 15.0
"""How far an idle broker's usage has to be below that of the others for policies to see it: the least that one allows by default."""
MANY_TOPICS = 1000
"""Topics of a broker that carries something even without traffic."""
NAMED_BROKERS = 20
"""Brokers that one finding names; the others are counted."""
MANY_UNOWNED_RATIO = 0.05
"""Share of the bundles from which those without an owner are one finding: a broker that restarts, not bundles that got lost."""
_NAMED_BUNDLES = 3

_BANDWIDTH = ("bandwidth-in", "bandwidth-out")
_LIMIT_REMEDIES = {
    "cpu": "let the broker's JVM count the CPUs that its usage counts (-XX:ActiveProcessorCount), or set cpu_weight = 0 and "
    "declare [pulsar.capacity]",
    **dict.fromkeys(
        _BANDWIDTH,
        "set loadBalancerOverrideBrokerNicSpeedGbps at the broker, or the weight of bandwidth to 0 and declare [pulsar.capacity]",
    ),
    "direct-memory": "see -XX:MaxDirectMemorySize of the broker's JVM, or set direct_memory_weight = 0",
}
"""By resource that a broker measures against a limit of its machine, how a wrong limit is mended."""
_DECLARE = "declare what a broker can carry in [pulsar.capacity.brokers]"
_LACK_REMEDIES = {
    "cpu": f"set cpu_weight = 0 in [pulsar.usage], and {_DECLARE}",
    **dict.fromkeys(
        _BANDWIDTH, f"{_DECLARE} (bytes_per_s), or set loadBalancerOverrideBrokerNicSpeedGbps at the broker"
    ),
    "direct-memory": "set direct_memory_weight = 0 in [pulsar.usage]",
    **dict.fromkeys(
        ("topics", "sessions"),
        f'{_DECLARE}, and with the extensible load manager let the collector read all statistics (topic_stats = "all")',
    ),
}
"""By resource that only others measure, the setting that mends it; of every other resource, the capacity is not declared."""
_NEVER_MS = -1


def watch(context: RoundContext) -> None:
    """Count on in the fleet, for each broker of the round, what lasts."""
    before, fleet, loads = context.before, context.fleet, context.loads
    old = match(before.brokers, fleet.brokers)
    known = np.flatnonzero(old >= 0)
    silent_ms = fleet.broker_last_ms[known] - before.broker_last_ms[old[known]]
    known = known[silent_ms <= context.max_report_age_ms]
    above, unmeasured = (np.zeros((len(old), len(RESOURCES)), dtype=np.int64) for _ in range(2))
    idle = np.full(len(old), _NEVER_MS)
    above[known] = before.above_limit_rounds[old[known]]
    unmeasured[known] = before.unmeasured_rounds[old[known]]
    idle[known] = before.idle_since_ms[old[known]]
    at, measured = match(fleet.brokers, loads.names), loads.measured
    one_more = np.where(loads.percents > MOST_USAGE_POINTS, np.minimum(above[at] + 1, LASTING_ROUNDS), 0)
    above[at] = np.where(measured, one_more, above[at])
    unmeasured[at] = np.where(measured, 0, np.minimum(unmeasured[at] + 1, LASTING_ROUNDS))
    carries, _ = _carried(context.advanced)
    idle[at] = np.where(carries[at] | ~loads.included, _NEVER_MS, idle[at])
    for place in np.flatnonzero((idle[at] == _NEVER_MS) & ~carries[at] & loads.included).tolist():
        if context.reports[loads.names[place]].report.has_traffic.all():
            idle[at[place]] = context.closing.start_ms
    fleet.above_limit_rounds, fleet.unmeasured_rounds, fleet.idle_since_ms = above, unmeasured, idle
    fleet.gathered = _watch_coordinators(context)


def _carried(advanced: Advanced) -> tuple[Bools, Bools]:
    """Whether each broker of the fleet has a topic, a client or traffic, and whether it has traffic or many topics."""
    fleet = advanced.fleet
    owner, width = fleet.owner[: advanced.owned_count], len(fleet.brokers)
    traffic = np.bincount(owner, weights=advanced.reported @ np.ones(4), minlength=width)
    topics = np.bincount(owner, weights=advanced.counts[:, TOPICS], minlength=width)
    sessions = np.bincount(owner, weights=advanced.counts[:, SESSIONS], minlength=width)
    return traffic + topics + sessions > 0, (traffic > 0) | (topics >= MANY_TOPICS)


def of_brokers(context: RoundContext, table: PolicyView) -> list[Finding]:
    """Limits that must be wrong, resources that only others measure, and brokers that carry nothing beside others that do."""
    loads = context.loads
    at = match(context.fleet.brokers, loads.names)
    return [
        *_above_limit(context.fleet.above_limit_rounds[at] >= LASTING_ROUNDS, loads),
        *_not_measured(context.fleet, table, loads),
        *_idle(context, table),
    ]


def _above_limit(lasting: Bools, loads: Loads) -> Iterator[Finding]:
    for row, column in np.argwhere(lasting & loads.measured).tolist():
        resource = RESOURCES[column]
        if resource in _LIMIT_REMEDIES:
            yield Finding(
                kind="above-limit",
                subject=resource,
                broker=loads.names[row],
                bytes_per_s=None,
                advice=f"the {resource} of {loads.names[row]} is at {loads.percents[row, column]:.1f} % of its limit "
                f"{digits(loads.limits[row, column])}, and above {MOST_USAGE_POINTS:g} % for {LASTING_ROUNDS} rounds or longer: the limit is "
                f"wrong; {_LIMIT_REMEDIES[resource]}",
            )


def _not_measured(fleet: Fleet, table: PolicyView, loads: Loads) -> Iterator[Finding]:
    """Brokers without a limit that others of their group have, or without what a declared one is for; one finding for those that lack the same."""
    brokers, counts = table.view.brokers, fleet.unmeasured_rounds
    lacking = counts[match(fleet.brokers, brokers.names)] >= LASTING_ROUNDS
    lacking &= loads.usage_weights > 0
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for group in np.unique(table.broker_groups[lacking.any(axis=1)]).tolist():
        rows = np.flatnonzero(table.broker_groups == group)
        group_measures = brokers.measured[rows].any(axis=0)
        wanted = lacking & (group_measures | (brokers.limits > 0))
        for row in rows[wanted[rows].any(axis=1)].tolist():
            measured = {RESOURCES[at] for at in np.flatnonzero(brokers.measured[row]).tolist()}
            missing = {RESOURCES[at] for at in np.flatnonzero(wanted[row]).tolist()}
            if "bytes" in measured:
                missing.difference_update(_BANDWIDTH)
            if measured.issuperset(_BANDWIDTH):
                missing.discard("bytes")
            alike[tuple(name for name in RESOURCES if name in missing)].append(brokers.names[row])
    for lacks, names in alike.items():
        if lacks:
            remedies = dict.fromkeys(_LACK_REMEDIES.get(lack, _DECLARE) for lack in lacks)
            yield Finding(
                kind="not-measured",
                subject=", ".join(lacks),
                broker=names[0] if len(names) == 1 else "",
                bytes_per_s=None,
                advice=f"{join_names(names, NAMED_BROKERS)} {'does' if len(names) == 1 else 'do'} not measure {' and '.join(lacks)}, and "
                f"can only be compared with others by the rest: {'; '.join(remedies)}",
            )


def _idle(context: RoundContext, table: PolicyView) -> Iterator[Finding]:
    names, groups = table.view.brokers.names, table.broker_groups
    at = match(context.fleet.brokers, names)
    since_ms = context.fleet.idle_since_ms[at]
    idle = (since_ms != _NEVER_MS) & (context.end_ms - since_ms >= LASTS_MS)
    if not idle.any():
        return
    busy = _carried(context.advanced)[1][at]
    usage_points = np.where(table.view.brokers.is_measured, 100 * table.view.brokers.usage_ratio, np.nan)
    for row in np.flatnonzero(idle).tolist():
        others = busy & (groups == groups[row])
        if others.any() and context.reports[names[row]].report.has_traffic.all():
            below_points = float(np.mean(usage_points[others]) - usage_points[row])
            why = (
                f"whose usage is {below_points:.1f} points above its own: the outcomes of this round say why nothing is moved to it"
                if below_points >= SHOWN_POINTS
                else "which usage may not show: to give it a share, declare topics_count or sessions_count in "
                "[pulsar.capacity], or less where they are declared, or unload bundles by hand"
            )
            yield Finding(
                kind="idle-broker",
                subject=names[row],
                broker=names[row],
                bytes_per_s=None,
                advice=f"it has carried nothing since {time_text(rfc3339(int(since_ms[row])))}, beside "
                f"{counted(int(np.count_nonzero(others)), 'broker')} with traffic or many topics, {why}",
            )


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
                advice=f"it was to go to {landed.destination}: Pulsar's own placement may have overruled that",
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


def _watch_coordinators(context: RoundContext) -> Gathered | None:
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
