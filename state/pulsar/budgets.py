"""The rules of a round, which say how much may move where, and choices of a policy that they forbid again and again.

They come from the facts of the cluster, the guards and the ledger. A count that is set is a hard cap for every policy. A count
that is unset is the default for Pulsar's policies, which choose few large bundles. The fleet planner weighs a plan by what it
moves, so where bundles are small its plans have many moves: for it, an unset count is the larger of the default and a share of
the cluster's bundles, and it plans no more than can be carried out before it expires. What an hour's moves carry is limited for
every policy. Drains have an hourly count of their own. Pulsar's policies do not ask the rules while they plan, so their choice
may be the same in each round.

Source: ours; ``policies.shedding.rules`` has the rules themselves.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.shedding import fleet_planner
from policies.shedding.rules import NO_GROUP, Limit, Rules, Spread
from policies.shedding.view import BundleTable, Traffic
from policies.wording import counted, digits
from state.guard_settings import (
    MOVED_PER_HOUR_RATIO,
    UNLOADS_PER_HOUR_COUNT,
    UNLOADS_PER_ROUND_COUNT,
    GuardSettings,
)
from state.memory import ForbiddenRecord
from state.outputs import Finding
from state.pulsar.shedding import Admitted
from state.pulsar.view import PolicyView, RoundContext
from state.settings import MS_PER_S

ROUND_RATIO = 0.05
"""Share of the cluster's bundles that the fleet planner may move in a round. The default, 20, is this share of ten brokers with 40
bundles each; with 650 bundles a broker a round moves as many points of usage as it does there. One of four equal brokers that is 30
points too hot has to give 7 % of the cluster's bundles: that takes two rounds."""
HOUR_RATIO = MOVED_PER_HOUR_RATIO
"""The same for an hour: ``max_moved_per_hour_ratio``, so that of equal bundles both limits allow the same. When five empty brokers join
ten, a third of the bundles has to move."""
UNLOADS_PER_S = 1.0
"""Unloads that an executor surely carries out and confirms. Derived from a real cluster of 4.0.7 (three brokers with clients on two
cores that others kept busy): eight at a time, 6 a second; at the worst 95 of 100 took less than 3.4 s each, which is 2.3 a second. Less
than half of that is the margin for brokers that answer slowly."""


def limits_of(
    context: RoundContext, bundles: BundleTable, *, brokers_count: int, bundles_count: int
) -> tuple[Limit, ...]:
    """The limits that are on, in the order in which a hold names them; the counts include drained brokers and their bundles."""
    guards, ledger, end_ms = context.guards, context.ledger, context.end_ms
    unloads, drained = (
        ledger.unloads_of_last_hour(is_drain=is_drain, end_ms=end_ms) for is_drain in (False, True)
    )
    plans_rounds = context.pulsar.policy.plans_rounds
    shared_count = bundles_count if plans_rounds else None

    def cap(name: str, spent: Floats, **fields: Any) -> Limit:
        return Limit(name, getattr(guards, name), spent, **fields)

    limits = [
        _count("max_unloads_per_round_count", guards, (UNLOADS_PER_ROUND_COUNT, ROUND_RATIO), shared_count),
        _count(
            "max_unloads_per_hour_count",
            guards,
            (UNLOADS_PER_HOUR_COUNT, HOUR_RATIO),
            shared_count,
            spent=len(unloads),
            drains=False,
        ),
        cap("max_drain_unloads_per_hour_count", _spent(len(drained)), drains=True),
        cap("max_unloads_per_broker_count", np.zeros(brokers_count), by="broker"),
        cap("max_unloads_per_namespace_count", np.zeros(len(context.fleet.namespaces)), by="namespace"),
    ]
    ratio = guards.max_moved_per_hour_ratio
    if ratio is None:
        ratio = 0.0 if guards.max_unloads_per_hour_count == 0 else MOVED_PER_HOUR_RATIO
    if ratio:
        limits.append(_moved(ratio, [unload.traffic for unload in unloads], bundles))
    if plans_rounds:
        lifetime_s = (context.closing.expires_ms - end_ms) / MS_PER_S
        most = max(1, int(UNLOADS_PER_S * lifetime_s))
        flying_count = ledger.unloads_in_flight_count(end_ms=end_ms)
        text = f"an executor carries out {counted(most, 'unload')} within {digits(lifetime_s)} s, and as many are on their way or decided"
        limits.append(Limit("action_ttl_s", most, _spent(flying_count), text=text))
    return tuple(limit for limit in limits if limit.most)


def _count(
    name: str,
    guards: GuardSettings,
    usual: tuple[int, float],
    bundles_count: int | None,
    *,
    spent: int = 0,
    drains: bool | None = None,
) -> Limit:
    """The limit of a count that may be unset: then the usual count, or a share of ``bundles_count`` if that is more."""
    count: int | None = getattr(guards, name)
    if count is not None:
        return Limit(name, count, _spent(spent), drains=drains)
    least_count, ratio = usual
    shared_count = int(ratio * (bundles_count or 0))
    if shared_count <= least_count:
        return Limit(name, least_count, _spent(spent), drains=drains)
    text = f"{name} is unset: {shared_count}, {ratio:.0%} of {bundles_count} bundles, is spent"
    return Limit(name, shared_count, _spent(spent), drains=drains, text=text)


def _moved(ratio: float, moved: Sequence[Traffic | None], bundles: BundleTable) -> Limit:
    """The limit of an hour's traffic, as a share of the fleet's. A bundle whose traffic is not known counts as one of average size."""
    known = bundles.sampled
    scale = len(known) / max(1, int(known.sum()))
    totals = [scale * float(rates[known].sum()) for rates in (bundles.messages_per_s, bundles.bytes_per_s)]
    average_ratio = 1.0 / max(1, len(known))

    def share(*rates: Floats) -> Floats:
        parts = [rate / total for rate, total in zip(rates, totals, strict=True) if total > 0]
        return np.mean(parts, axis=0) if parts else np.zeros(len(rates[0]))

    spent = share(*np.array([traffic for traffic in moved if traffic is not None]).reshape(-1, 2).T).sum()
    unknown_count = sum(traffic is None for traffic in moved)
    return Limit(
        "max_moved_per_hour_ratio",
        ratio,
        np.array([spent + average_ratio * unknown_count]),
        drains=False,
        costs=np.where(known, share(bundles.messages_per_s, bundles.bytes_per_s), average_ratio),
        free_count=UNLOADS_PER_ROUND_COUNT,
        taken_count=np.array([len(moved)]),
        text="{name} {most} is spent: {spent} of the fleet's traffic was moved within the hour, and this bundle carries {cost}",
    )


def _spent(count: int = 0) -> Floats:
    return np.array([float(count)])


FORBIDDEN_ROUNDS = 10
"""Rounds over which a rule forbids the choices of a policy until that is a finding, and the most from one of them to the next: Pulsar's
avg-shedder counts 8 hits between two choices by default (``loadBalancerAvgShedderHitCountLowThreshold``), and two rounds may be held
or miss a report meanwhile."""


def with_rules(
    context: RoundContext, table: PolicyView, leaving: Mapping[str, Collection[str]]
) -> tuple[PolicyView, Rules]:
    """The same view with its rules, before the round's first move, and these rules.

    ``leaving`` are the bundles, by broker, that were told to leave it.
    """
    fleet, view, guards = context.fleet, table.view, context.guards
    spans = {
        broker: np.arange(rows.start, rows.stop)
        for broker in context.closing.overlay.drained_brokers
        if (rows := context.advanced.rows_of(broker)) is not None
    }
    brokers = (*view.brokers.names, *spans)
    counts = np.concatenate([np.diff(view.bundles.starts), [len(rows) for rows in spans.values()]]).astype(
        np.int64
    )
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    told = _told_to_leave(table, leaving, count=int(starts[-1]))
    told_counts = np.bincount(
        np.searchsorted(starts, np.flatnonzero(told), side="right") - 1, minlength=len(counts)
    )
    busy_counts = np.array(
        [context.reports[name].report.busy_system_count for name in brokers], dtype=np.int64
    )
    groups = context.facts.anti_affinity if context.facts is not None else {}
    namespace = None
    if groups or guards.max_unloads_per_namespace_count:
        namespace = fleet.namespace[np.concatenate([table.fleet_rows, *spans.values()])]
    rules = Rules(
        brokers=brokers,
        starts=starts,
        movable=view.bundles.movable,
        may_receive=view.brokers.may_receive,
        isolation=None if context.groups.is_one else table.broker_groups,
        namespace=namespace,
        spread=None if namespace is None else _spread(context, namespace, brokers, starts, len(view.brokers)),
        limits=limits_of(context, view.bundles, brokers_count=len(brokers), bundles_count=int(starts[-1])),
        keeps_sole=guards.keep_sole_bundle,
        leaving=told,
        staying_counts=counts - told_counts + busy_counts,
    )
    return replace(table, view=replace(view, rules=rules)), rules


def _spread(
    context: RoundContext, namespace: Ints, brokers: Sequence[str], starts: Ints, brokers_count: int
) -> Spread | None:
    """Where the namespaces of anti-affinity groups are; None without such a group."""
    facts = context.facts
    if facts is None or not facts.anti_affinity:
        return None
    group_of = {name: number for number, names in enumerate(facts.anti_affinity.values()) for name in names}
    domain_of = {name: at for at, names in enumerate(facts.failure_domains.values(), 1) for name in names}
    return Spread(
        namespace=namespace,
        starts=starts,
        group=_numbers(group_of, context.fleet.namespaces, NO_GROUP),
        groups=list(facts.anti_affinity),
        domain=_numbers(domain_of, brokers, 0),
        domains=["", *facts.failure_domains],
        brokers_count=brokers_count,
    )


def _told_to_leave(table: PolicyView, leaving: Mapping[str, Collection[str]], *, count: int) -> Bools:
    """Whether a bundle was told to leave its broker, by row of the rules, (count,)."""
    told = np.zeros(count, dtype=np.bool_)
    bundles = table.view.bundles
    for row, broker in enumerate(table.view.brokers.names if leaving else ()):
        for name in leaving.get(broker, ()):
            at = bundles.row_of(row, name)
            if at is not None:
                told[at] = True
    return told


def _numbers(known: Mapping[str, int], names: Sequence[str], default: int) -> Ints:
    return np.array([known.get(name, default) for name in names], dtype=np.int64)


def watch_forbidden(context: RoundContext, table: PolicyView, admitted: Admitted) -> None:
    """Remember what a rule forbids the policy in force, until a bundle leaves the broker, or nothing was forbidden for too long.

    That a bundle is the last one while others were told to leave is no lasting state, and not remembered.
    """
    number, policy = context.number, context.pulsar.shedding_policy
    before = _still_forbidden(context)
    forbidden = dict(before)
    left = {unload.source for unload in context.ledger.unloads_on_their_way()}
    for row, hold in reversed(admitted.holds.items()):  # what the policy chose first is what is named
        if hold.reason not in ("anti-affinity", "sole-bundle"):
            continue
        broker, bundle = table.broker_of(row), table.view.bundles.names[row]
        if hold.reason == "sole-bundle" and broker in left:
            continue
        known = before.get(broker)
        since_round = known.since_round if known and known.rule == hold.reason else number
        forbidden[broker] = ForbiddenRecord(policy, hold.reason, bundle, hold.detail, since_round, number)
    for unload in admitted.unloads:
        forbidden.pop(unload.source_broker, None)
    context.header.forbidden = forbidden


def _still_forbidden(context: RoundContext) -> dict[str, ForbiddenRecord]:
    """By broker, what a rule forbade the policy in force not too long ago."""
    return {
        broker: record
        for broker, record in context.header.forbidden.items()
        if record.policy == context.pulsar.shedding_policy
        and context.number - record.last_round <= FORBIDDEN_ROUNDS
    }


def find_forbidden(context: RoundContext) -> list[Finding]:
    """Brokers whose unloads a rule has forbidden for ``FORBIDDEN_ROUNDS``."""
    return [
        Finding(
            kind="forbidden",
            subject=record.bundle,
            broker=broker,
            bytes_per_s=None,
            advice=_forbidden_text(broker, record),
        )
        for broker, record in sorted(_still_forbidden(context).items())
        if record.last_round - record.since_round >= FORBIDDEN_ROUNDS - 1
    ]


def _forbidden_text(broker: str, record: ForbiddenRecord) -> str:
    asks_rules = record.policy == fleet_planner.NAME
    wanted = (
        "its move would help most"
        if asks_rules
        else f"{record.policy} chooses it, or others of its broker, again and again"
    )
    instead = (
        ", and nothing else that may move would help"
        if asks_rules
        else f". The {fleet_planner.NAME} asks this rule while it plans, and takes another bundle or broker where one may"
    )
    return (
        f"{wanted}, and the rule {record.rule} forbids it since round {record.since_round}: {record.detail}. "
        f"No bundle leaves {broker} meanwhile{instead}"
    )
