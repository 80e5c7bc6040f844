"""The rules of a round, from the facts of the cluster, the guards and the ledger, and choices that they forbid again and again.

See ``policies.shedding.rules``. Pulsar's policies do not ask the rules while they plan, so their choice may be the same in each round.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.columns import Bools, Ints
from policies.shedding import fleet_planner
from policies.shedding.rules import NO_GROUP, Rules, Spread
from state.engine.ledger import Ledger
from state.engine.memory import ForbiddenRecord, Header
from state.facts import Facts
from state.outputs import Finding
from state.pulsar.actions import Admitted
from state.pulsar.budgets import limits_of
from state.pulsar.fleet import Advanced
from state.pulsar.tables import Eligible
from state.settings import GuardSettings

FORBIDDEN_ROUNDS = 10
"""Rounds over which a rule forbids the choices of a policy until that is a finding, and the most from one of them to the next: Pulsar's
avg-shedder counts 8 hits between two choices by default (``loadBalancerAvgShedderHitCountLowThreshold``), and two rounds may be held
or miss a report meanwhile."""


def with_rules(
    table: Eligible,
    advanced: Advanced,
    guards: GuardSettings,
    *,
    facts: Facts | None = None,
    ledger: Ledger | None = None,
    leaving: Mapping[str, Collection[str]] | None = None,
    drained: Iterable[str] = (),
    lifetime_s: float | None = None,
    end_ms: int = 0,
) -> tuple[Eligible, Rules]:
    """The same view with its rules, before the round's first move, and these rules.

    ``leaving`` are the bundles, by broker, that were told to leave it; ``drained`` the brokers that are drained and reported.
    ``lifetime_s`` is that of an action, for a policy that plans whole rounds.
    """
    fleet, view = advanced.fleet, table.view
    spans = {
        broker: np.arange(rows.start, rows.stop)
        for broker in drained
        if (rows := advanced.rows_of(broker)) is not None
    }
    brokers = (*view.brokers.names, *spans)
    counts = np.concatenate([table.owned_counts, [len(rows) for rows in spans.values()]]).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    told = _told_to_leave(table, leaving or {}, count=int(starts[-1]))
    groups = facts.anti_affinity if facts is not None else {}
    namespace = spread = None
    if groups or guards.max_unloads_per_namespace_count:
        namespace = fleet.namespace[np.concatenate([table.fleet_rows, *spans.values()])]
    if groups and facts is not None and namespace is not None:
        group_of = {name: number for number, names in enumerate(groups.values()) for name in names}
        domain_of = {name: at for at, names in enumerate(facts.failure_domains.values(), 1) for name in names}
        spread = Spread(
            namespace=namespace,
            starts=starts,
            group=_numbers(group_of, fleet.namespaces, NO_GROUP),
            groups=list(groups),
            domain=_numbers(domain_of, brokers, 0),
            domains=["", *facts.failure_domains],
            brokers_count=len(view.brokers),
        )
    rules = Rules(
        brokers=brokers,
        starts=starts,
        movable=view.bundles.movable,
        may_receive=view.brokers.may_receive,
        isolation=None if table.groups.is_one else table.broker_groups,
        namespace=namespace,
        spread=spread,
        limits=limits_of(
            guards,
            ledger or Ledger(),
            view.bundles,
            brokers_count=len(brokers),
            bundles_count=int(starts[-1]),
            namespaces_count=len(fleet.namespaces),
            lifetime_s=lifetime_s,
            end_ms=end_ms,
        ),
        keeps_sole=guards.keep_sole_bundle,
        leaving=told,
        staying_counts=counts
        - np.bincount(np.searchsorted(starts, np.flatnonzero(told), side="right") - 1, minlength=len(counts)),
    )
    return replace(table, view=replace(view, rules=rules)), rules


def _told_to_leave(table: Eligible, leaving: Mapping[str, Collection[str]], *, count: int) -> Bools:
    """Whether a bundle was told to leave its broker, by row of the rules, (count,)."""
    found = np.zeros(count, dtype=np.bool_)
    bundles = table.view.bundles
    for row, broker in enumerate(table.view.brokers.names if leaving else ()):
        for name in leaving.get(broker, ()):
            at = bundles.row_of(row, name)
            if at is not None:
                found[at] = True
    return found


def _numbers(known: Mapping[str, int], names: Sequence[str], other: int) -> Ints:
    return np.array([known.get(name, other) for name in names], dtype=np.int64)


def watch_forbidden(header: Header, admitted: Admitted, table: Eligible, *, number: int) -> None:
    """Remember what a rule forbids, until a bundle leaves the broker, or nothing was forbidden for too long."""
    before = {
        broker: each
        for broker, each in header.forbidden.items()
        if number - each.last_round <= FORBIDDEN_ROUNDS
    }
    found = dict(before)
    for row, hold in reversed(admitted.holds.items()):  # what the policy chose first is what is named
        if hold.reason in ("anti-affinity", "sole-bundle"):
            broker, bundle = table.broker_of(row), table.view.bundles.names[row]
            known = before.get(broker)
            since_round = known.since_round if known and known.rule == hold.reason else number
            found[broker] = ForbiddenRecord(hold.reason, bundle, hold.detail, since_round, number)
    for unload in admitted.unloads:
        found.pop(unload.source_broker, None)
    header.forbidden = found


def of_forbidden(header: Header, policy: str, *, number: int) -> list[Finding]:
    """Brokers whose unloads a rule has forbidden for ``FORBIDDEN_ROUNDS``."""
    return [
        Finding(
            kind="forbidden",
            subject=each.bundle,
            broker=broker,
            bytes_per_s=None,
            advice=f"{policy} chooses it again and again, and the rule {each.rule} forbids it since round {each.since_round}: "
            f"{each.detail}. No bundle leaves {broker} meanwhile. The {fleet_planner.NAME} asks this rule while it plans, and "
            "takes another bundle or broker where one may",
        )
        for broker, each in sorted(header.forbidden.items())
        if each.last_round - each.since_round >= FORBIDDEN_ROUNDS - 1
        and number - each.last_round <= FORBIDDEN_ROUNDS
    ]
