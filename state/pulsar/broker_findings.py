"""Problems of single brokers, and of whole groups, that no action of ours can solve, with what a person can do.

What a broker reports for a moment is no finding: ``watch`` counts in the fleet how long it lasts. A gap changes no count: neither
a report that is missing nor a number that is not known. A broker that was away for longer than ``max_report_age_s`` begins anew.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from policies.columns import Bools, Floats, Ints, sum_runs
from policies.shedding.fleet_planner import HOT_POINTS
from policies.usage import REPORTED_COUNT, RESOURCES, compared
from policies.wording import counted, digits, time_text
from state.events import RATE_IN, RATE_OUT, SESSIONS, THROUGHPUT_IN, THROUGHPUT_OUT, TOPICS
from state.outputs import Finding, rfc3339
from state.pulsar.fleet import Advanced
from state.pulsar.listings import match
from state.pulsar.loads import Loads, mean_points
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
IDLE_RATIO = 0.02
"""Share of what the others of its group carry on average up to which a broker is idle: after a restart it soon has a new topic."""
MANY_TOPICS = 1000
"""Topics of a broker that carries something even without traffic."""
UNEVEN_RATIO = 4.0
"""How many times the bytes of the rest a broker carries that stands out by bytes; as in Pulsar's UniformLoadShedder."""
MANY_BYTES_PER_S = 25e6
"""In and out together, what is much for a broker: a tenth of a gigabit per second both ways."""
NAMED_BROKERS = 20
"""Brokers that one finding names; the others are counted."""
_BANDWIDTH = ("bandwidth-in", "bandwidth-out")
_BANDWIDTH_COLUMNS = [RESOURCES.index(name) for name in _BANDWIDTH]
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
    hot = np.zeros(len(old), dtype=np.int64)
    idle = np.full(len(old), _NEVER_MS)
    above[known] = before.above_limit_rounds[old[known]]
    unmeasured[known] = before.unmeasured_rounds[old[known]]
    hot[known] = before.hot_rounds[old[known]]
    idle[known] = before.idle_since_ms[old[known]]
    at, measured = match(fleet.brokers, loads.names), loads.measured
    above[at] = np.where(measured, _one_more(above[at], loads.percents > MOST_USAGE_POINTS), above[at])
    is_hot = 100.0 * loads.usage_ratio >= HOT_POINTS
    hot[at] = np.where(loads.is_measured, _one_more(hot[at], is_hot), hot[at])
    unmeasured[at] = _one_more(unmeasured[at], ~measured)
    carries = _carries(context)
    idle[at] = np.where(carries[at] | ~loads.included, _NEVER_MS, idle[at])
    for place in np.flatnonzero((idle[at] == _NEVER_MS) & ~carries[at] & loads.included).tolist():
        if context.reports[loads.names[place]].report.has_traffic.all():
            idle[at[place]] = context.closing.start_ms
    fleet.above_limit_rounds, fleet.unmeasured_rounds = above, unmeasured
    fleet.hot_rounds, fleet.idle_since_ms = hot, idle


def _one_more(rounds: Ints, is_so: Bools) -> Ints:
    """Rounds in a row with this one; no more than matter."""
    return np.where(is_so, np.minimum(rounds + 1, LASTING_ROUNDS), 0)


def _carries(context: RoundContext) -> Bools:
    """Whether each broker of the fleet carries more than next to nothing, by traffic, topics or clients, beside the others of its group."""
    loads, carried = context.loads, _carried(context.advanced)
    groups = context.groups.of_brokers(context.fleet.brokers)
    at = match(context.fleet.brokers, loads.names)[loads.included]
    total = np.zeros((groups.max(initial=0) + 1, carried.shape[1]))
    np.add.at(total, groups[at], carried[at])
    others = np.maximum(np.bincount(groups[at], minlength=len(total)) - 1, 1)[groups][:, None]
    more: Bools = np.any(carried > IDLE_RATIO * (total[groups] - carried) / others, axis=1)
    return more


_TRAFFIC, _TOPICS = slice(2), 2
"""Columns of what brokers carry: messages/s and bytes/s; topics."""


def _carried(advanced: Advanced) -> Floats:
    """Messages/s, bytes/s, topics and sessions of each broker of the fleet, (k, 4)."""
    owner, width = advanced.fleet.owner[: advanced.owned_count], len(advanced.fleet.brokers)
    columns = (
        advanced.reported[:, RATE_IN] + advanced.reported[:, RATE_OUT],
        advanced.reported[:, THROUGHPUT_IN] + advanced.reported[:, THROUGHPUT_OUT],
        advanced.counts[:, TOPICS],
        advanced.counts[:, SESSIONS],
    )
    return np.column_stack([np.bincount(owner, weights=column, minlength=width) for column in columns])


def of_brokers(context: RoundContext, table: PolicyView) -> list[Finding]:
    """Limits that must be wrong, resources that only others measure, groups that are full, and brokers that carry nothing."""
    loads = context.loads
    at = match(context.fleet.brokers, loads.names)
    return [
        *_above_limit(context.fleet.above_limit_rounds[at] >= LASTING_ROUNDS, loads),
        *_not_measured(context, table),
        *_uneven_bytes(context, table),
        *_every_broker_hot(context),
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


def _not_measured(context: RoundContext, table: PolicyView) -> Iterator[Finding]:
    """Brokers without a limit that others of their group have, or without what a declared one is for; one finding for those that lack the same."""
    brokers, policy = table.view.brokers, context.pulsar.policy
    lacking = _unmeasured(context, brokers.names) & (table.view.usage_weights > 0)
    known = compared(brokers.measured, np.ones(len(RESOURCES)))  # what stands for another, whatever weighs
    seen_as = (
        ", and can only be compared with others by the rest"
        if policy.plans_rounds
        else f", which {policy.name} takes for 0 %, as Pulsar does (fleet-planner does not)"
    )
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for group in np.unique(table.broker_groups[lacking.any(axis=1)]).tolist():
        rows = np.flatnonzero(table.broker_groups == group)
        group_measures = brokers.measured[rows].any(axis=0)
        missing = lacking & (group_measures | (brokers.limits > 0)) & ~known
        for row in rows[missing[rows].any(axis=1)].tolist():
            lacks = tuple(RESOURCES[at] for at in np.flatnonzero(missing[row]).tolist())
            alike[lacks].append(brokers.names[row])
    for lacks, names in alike.items():
        remedies = dict.fromkeys(_LACK_REMEDIES.get(lack, _DECLARE) for lack in lacks)
        yield Finding(
            kind="not-measured",
            subject=", ".join(lacks),
            broker=names[0] if len(names) == 1 else "",
            bytes_per_s=None,
            advice=f"{join_names(names, NAMED_BROKERS)} {'does' if len(names) == 1 else 'do'} not measure {' and '.join(lacks)}"
            f"{seen_as}: {'; '.join(remedies)}",
        )


def _unmeasured(context: RoundContext, names: Sequence[str]) -> Bools:
    """Which resources brokers have not measured for some rounds, (n, resources)."""
    fleet = context.fleet
    lasting: Bools = fleet.unmeasured_rounds[match(fleet.brokers, names)] >= LASTING_ROUNDS
    return lasting


def _uneven_bytes(context: RoundContext, table: PolicyView) -> Iterator[Finding]:
    """Groups of which no broker measures bandwidth or bytes, and one carries several times the bytes of the rest while usage does not show it."""
    view, groups = table.view, table.broker_groups
    unknown = _unmeasured(context, view.brokers.names)
    is_blind: Bools = np.all(unknown[:, [*_BANDWIDTH_COLUMNS, RESOURCES.index("bytes")]], axis=1)
    if not (view.usage_weights[_BANDWIDTH_COLUMNS] > 0).any():
        return
    carried, usage_points = (
        sum_runs(view.bundles.starts, view.bundles.bytes_per_s),
        100 * view.brokers.usage_ratio,
    )
    for group in np.unique(groups[is_blind]).tolist():
        rows = np.flatnonzero(groups == group)
        most = rows[np.argmax(carried[rows])]
        rest = rows[rows != most]
        if not len(rest) or not is_blind[rows].all():
            continue
        others_carry = mean_points(carried[rest])
        is_uneven = carried[most] >= MANY_BYTES_PER_S and carried[most] > UNEVEN_RATIO * others_carry
        if is_uneven and usage_points[most] < mean_points(usage_points[rest]) + SHOWN_POINTS:
            yield Finding(
                kind="uneven-bytes",
                subject=view.brokers.names[most],
                broker=view.brokers.names[most],
                bytes_per_s=None,
                advice=f"it carries {carried[most] / 1e6:.0f} MB/s, and the others of its group carry {others_carry / 1e6:.0f} MB/s "
                "on average, which no usage shows because none of them measures bandwidth: "
                f"{_LACK_REMEDIES['bandwidth-in']}",
            )


def _every_broker_hot(context: RoundContext) -> Iterator[Finding]:
    """Groups without room: a broker that is silent for a moment counts as before, one whose limit is wrong does not count as hot."""
    fleet, weights = context.fleet, context.loads.usage_weights[:REPORTED_COUNT]
    away = {*context.guards.excluded_brokers, *context.closing.overlay.apart}
    names = [name for name in context.live if name not in away]
    at = match(fleet.brokers, names)
    is_wrong = (fleet.above_limit_rounds[at, :REPORTED_COUNT] >= LASTING_ROUNDS) & (weights > 0)
    is_hot = (fleet.hot_rounds[at] >= LASTING_ROUNDS) & ~np.any(is_wrong, axis=1)
    groups = context.groups.of_brokers(names)
    for group in np.unique(groups).tolist():
        rows = np.flatnonzero(groups == group)
        if is_hot[rows].all():
            alone, isolation = names[rows[0]] if len(rows) == 1 else "", context.groups.name_of(group)
            whole = f"isolation group {isolation}" if isolation else "the default group"
            whole = "the cluster" if context.groups.is_one else whole
            who = (
                f"{alone}, the only broker of {whole}, has"
                if alone
                else f"all {len(rows)} brokers of {whole} have"
            )
            yield Finding(
                kind="every-broker-hot",
                subject=isolation or context.closing.cluster,
                broker=alone,
                bytes_per_s=None,
                advice=f"{who} been at {HOT_POINTS:g} % or more for {LASTING_ROUNDS} rounds or longer, and no move makes room: add a "
                f"broker to {whole}",
            )


def _idle(context: RoundContext, table: PolicyView) -> Iterator[Finding]:
    """Brokers that have carried next to nothing for a while beside others that do, and that no bundle is on its way to."""
    names, groups = table.view.brokers.names, table.broker_groups
    at = match(context.fleet.brokers, names)
    since_ms = context.fleet.idle_since_ms[at]
    idle = (since_ms != _NEVER_MS) & (context.end_ms - since_ms >= LASTS_MS)
    if not idle.any():
        return
    arriving = {there for _, there in context.fleet.shadow.values()}
    arriving.update(move.destination for move in context.ledger.unloads_on_their_way() if move.destination)
    carried = _carried(context.advanced)[at]
    busy = ~idle & (np.any(carried[:, _TRAFFIC] > 0, axis=1) | (carried[:, _TOPICS] >= MANY_TOPICS))
    usage_points = np.where(table.view.brokers.is_measured, 100 * table.view.brokers.usage_ratio, np.nan)
    for row in np.flatnonzero(idle).tolist():
        name, others = names[row], busy & (groups == groups[row])
        if name in arriving or not others.any() or not context.reports[name].report.has_traffic.all():
            continue
        below_points = float(np.mean(usage_points[others]) - usage_points[row])
        little = f"less than {100 * IDLE_RATIO:g} % of what others do"
        yield Finding(
            kind="idle-broker",
            subject=name,
            broker=name,
            bytes_per_s=None,
            advice=f"it has carried {little if carried[row].any() else 'nothing'} since {time_text(rfc3339(int(since_ms[row])))}, beside "
            f"{counted(int(np.count_nonzero(others)), 'broker')} with traffic or many topics, "
            + _way_out(
                below_points,
                has_topics=bool(np.mean(carried[others, _TOPICS]) >= MANY_TOPICS),
                plans_rounds=context.pulsar.policy.plans_rounds,
            ),
        )


def _way_out(below_points: float, *, has_topics: bool, plans_rounds: bool) -> str:
    """How an idle broker gets a share of others, whose usage is so many points above its own and who may have many topics."""
    planner = (
        ""
        if plans_rounds
        else "set shedding_policy to fleet-planner, which alone moves bundles for topics or clients, and "
    )
    by_counts = f"{planner}declare topics_count or sessions_count in [pulsar.capacity], small enough that it shows above the others' CPU"
    if not below_points >= SHOWN_POINTS:
        return f"which usage may not show: to give it a share, {by_counts}, or unload bundles by hand"
    shown = f"whose usage is {below_points:.1f} points above its own: the outcomes of this round say why nothing is moved to it"
    return f"{shown}. If their bundles have hardly any traffic, {by_counts}" if has_topics else shown
