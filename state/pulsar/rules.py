"""The rules of a round, from the facts of the cluster, the guards and the ledger: see ``policies.shedding.rules``."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.columns import Bools, Ints
from policies.shedding.rules import NO_GROUP, Rules, Spread
from state.engine.ledger import Ledger
from state.facts import Facts
from state.pulsar.budgets import limits_of
from state.pulsar.fleet import Advanced
from state.pulsar.tables import Eligible
from state.settings import GuardSettings


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
        rows = bundles.rows_of(row)
        for name in leaving.get(broker, ()):
            at = bisect_left(bundles.names, name, rows.start, rows.stop)
            found[at : at + 1] |= at < rows.stop and bundles.names[at] == name
    return found


def _numbers(known: Mapping[str, int], names: Sequence[str], other: int) -> Ints:
    return np.array([known.get(name, other) for name in names], dtype=np.int64)
