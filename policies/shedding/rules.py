"""Which bundle may go to which broker, whatever the loads are: the rules of a round, asked while a plan grows and of each move again.

* A bundle stays where it is if it is not movable, if its broker would be left without a bundle, or if a budget is spent.
* A broker does not receive it if it takes nothing now, if it is of another isolation group, or if the move would gather the bundle's
  anti-affinity group: if the brokers of the destination's failure domain own bundles of more other namespaces of the group than the
  brokers of the source's domain. If the domains are the same, or have equally many, the two brokers are compared alone. Brokers
  without a domain form one together, as in Pulsar.

Anti-affinity, source: Pulsar ``LoadManagerShared.filterAntiAffinityGroupOwnedBrokers``, which looks for the best domain and then for
the best broker; here a move may go to any broker that is no worse. Pulsar obeys domains only with ``failureDomainsEnabled``; here they
count wherever they are declared. Where Pulsar chooses the destination, it spreads groups itself.

Rows are those of the view that has the rules. Brokers that are drained, and their bundles, have rows behind those: they take no part in
balancing, their bundles may leave for any broker of the view by a budget of their own, and what they own counts only for themselves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.wording import digits

NO_GROUP = -1
"""A namespace that is in no anti-affinity group."""
_NOBODY = -1  # policies.shedding.view.NOBODY, which imports this module

_ROUNDING = 1e-9
"""Shares that should add up to a limit may add up to a little more."""

Rule = Literal["other-group", "no-destination", "anti-affinity", "sole-bundle", "budget"]


class Forbidden(NamedTuple):
    """Why a bundle may not move: the rule, and a sentence with its numbers."""

    rule: Rule
    detail: str
    limit: str = ""
    """The setting whose budget is spent; empty for another rule."""


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """How much may be moved; moves add to what is spent."""

    name: str
    """Name of the setting."""
    most: float | int
    spent: Floats
    """(1,), or of each broker or namespace."""
    by: Literal["cluster", "broker", "namespace"] = "cluster"
    drains: bool | None = None
    """Whether it holds for bundles of drained brokers alone, or for all others alone; None: for both."""
    costs: Floats | None = None
    """What each bundle spends, (m,); None: one each."""
    free_count: int = 0
    """How many moves are free of it: else the few bundles of a small fleet could not move."""
    taken_count: Ints | None = None
    """(1,): how many moves have been made; None where none is free."""
    text: str = "{name} {most} is spent"
    """What is said where it holds a bundle; ``spent`` and ``cost`` may be in it, too."""

    def draft(self) -> "Limit":
        """A copy, to be spent on moves that may not happen after all."""
        taken = self.taken_count
        return replace(self, spent=self.spent.copy(), taken_count=None if taken is None else taken.copy())


@dataclass(kw_only=True, eq=False)
class Spread:
    """Which broker has which namespaces of each anti-affinity group; worked out when first asked for."""

    namespace: Ints
    """Number of each bundle's namespace."""
    starts: Ints
    """Bundle rows ``starts[b]:starts[b + 1]`` belong to broker ``b``."""
    group: Ints
    """Group of each namespace, or ``NO_GROUP``."""
    groups: Sequence[str]
    domain: Ints
    """Failure domain of each broker; 0 for none."""
    domains: Sequence[str]
    """Names of the failure domains, after an empty one for none."""
    brokers_count: int
    """How many brokers take part in balancing, the first ones; the others count in no domain."""

    @cached_property
    def place(self) -> Ints:
        """Row of ``counts`` of each namespace that is in a group."""
        is_in = self.group != NO_GROUP
        return np.where(is_in, np.cumsum(is_in) - 1, NO_GROUP)

    @cached_property
    def counts(self) -> tuple[Bools, Ints, Ints]:
        """Which brokers own a bundle of a namespace, and of how many others of its group a broker does, and a domain's brokers do.

        Rows are the places of the namespaces, columns brokers, brokers and domains.
        """
        groups = self.group[self.group != NO_GROUP]
        has = np.zeros((len(groups), len(self.domain)), dtype=np.bool_)
        rows = np.flatnonzero(self.group[self.namespace] != NO_GROUP)
        has[self.place[self.namespace[rows]], _owners(self.starts, rows)] = True
        others = np.zeros(has.shape, dtype=np.int64)
        for group in np.unique(groups).tolist():
            members = has[groups == group]
            others[groups == group] = members.sum(axis=0) - members
        taking_part = np.arange(len(self.domain)) < self.brokers_count
        apart = [
            others[:, taking_part & (self.domain == domain)].sum(axis=1)
            for domain in (range(len(self.domains)) if len(self.domains) > 1 else ())
        ]
        return has, others, np.column_stack([np.zeros((len(groups), 0), dtype=np.int64), *apart])

    def compare(
        self, namespace: Ints | int, source: Ints | int, destination: Ints | int
    ) -> tuple[Any, Any, Any]:
        """Whether the domains decide, and how many other namespaces of the group destination and source have, or their domains.

        The arguments are broadcast; each namespace is in a group.
        """
        _, others, others_in = self.counts
        place = self.place[namespace]
        there, here = others[place, destination], others[place, source]
        if len(self.domains) == 1:
            return False, there, here
        to, from_ = self.domain[destination], self.domain[source]
        there_all = others_in[place, to]
        here_all = others_in[place, from_] + np.where(source < self.brokers_count, 0, here)
        decides = (to != from_) & (there_all != here_all)
        return decides, np.where(decides, there_all, there), np.where(decides, here_all, here)

    def objection(self, namespace: int, source: int, destination: int, names: Sequence[str]) -> str | None:
        """Why a bundle of a namespace would gather its group, in words; None if it would not."""
        group = int(self.group[namespace])
        if group == NO_GROUP:
            return None
        decides, there, here = self.compare(namespace, source, destination)
        if there <= here:
            return None
        bundles = f"bundles of {there} other namespaces of anti-affinity group {self.groups[group]}"
        if not decides:
            return f"{names[destination]} owns {bundles}, {names[source]} of {here}"
        to, from_ = (self._domain_of(broker) for broker in (destination, source))
        return f"brokers of {to} own {bundles}, those of {from_} of {here}"

    def _domain_of(self, broker: int) -> str:
        domain = int(self.domain[broker])
        return f"failure domain {self.domains[domain]}" if domain else "no failure domain"

    def gather(self, namespace: int, destination: int) -> None:
        """Count a bundle at its destination; the source may own others of its namespace, so the namespace also stays there."""
        group, place, (has, others, others_in) = self.group[namespace], self.place[namespace], self.counts
        if group == NO_GROUP or has[place, destination]:
            return
        has[place, destination] = True
        kin = self.group[self.group != NO_GROUP] == group
        kin[place] = False
        others[kin, destination] += 1
        if len(self.domains) > 1:
            others_in[kin, self.domain[destination]] += 1

    def draft(self) -> "Spread":
        """A copy, to be changed by moves that may not happen after all."""
        spread = replace(self)
        if "counts" in self.__dict__:  # else nobody has asked for them, and no move has changed them
            has, others, others_in = self.counts
            spread.counts = has.copy(), others.copy(), others_in.copy()
        return spread


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rules:
    """The rules of a round, and what the moves taken so far leave of their budgets and places."""

    brokers: Sequence[str]
    """Names, those of drained brokers last."""
    starts: Ints
    """Bundle rows ``starts[b]:starts[b + 1]`` belong to broker ``b``."""
    movable: Bools
    """Whether a bundle may be chosen, (m,), without those of drained brokers."""
    may_receive: Bools
    """Whether a broker takes bundles that balance the load, (n,), without drained brokers."""
    isolation: Ints | None = None
    """Isolation group of each broker; None if there is one only."""
    namespace: Ints | None = None
    """Number of each bundle's namespace; None if no rule depends on it."""
    spread: Spread | None = None
    """None without anti-affinity groups."""
    limits: tuple[Limit, ...] = ()
    keeps_sole: bool = False
    """Whether the last bundle of a broker stays."""
    leaving: Bools
    """Whether a bundle was told to leave its broker, earlier or by a move taken, by bundle row."""
    staying_counts: Ints
    """Bundles of each broker that were not told so, busy ones of Pulsar's own included."""
    rows: tuple[Ints, Ints] | None = None
    """Rows of the brokers and bundles of a part of the view; None: it is the whole view."""

    def draft(self) -> "Rules":
        """A copy, to be changed by moves that may not happen after all."""
        return replace(
            self,
            spread=self.spread and self.spread.draft(),
            limits=tuple(limit.draft() for limit in self.limits),
            leaving=self.leaving.copy(),
            staying_counts=self.staying_counts.copy(),
        )

    def part(self, brokers: Ints, bundles: Ints) -> "Rules":
        """The same rules and counts, by the rows of a part of the view; asked of those of the whole view."""
        return replace(self, rows=(brokers, bundles))

    def allowed(self, rows: Ints, destinations: Ints) -> Bools:
        """Whether each of these bundles may go to each of these brokers now, (k, d); none of them is at a drained broker."""
        if self.rows is not None:
            destinations, rows = self.rows[0][destinations], self.rows[1][rows]
        sources = _owners(self.starts, rows)
        leaves = self.movable[rows]
        if self.keeps_sole:
            leaves &= self.staying_counts[sources] + self.leaving[rows] > 1
        for limit in self.limits:
            if not limit.drains:
                leaves &= self._fits(limit, rows, sources)
        return self._may_go(leaves, rows, sources, destinations)

    def receivers(self, row: int, destinations: Ints) -> Bools:
        """Whether each of these brokers may receive a bundle, or a part of it, whatever keeps it where it is, (d,)."""
        if self.rows is not None:
            destinations = self.rows[0][destinations]
        row, source = self._find(row)
        may_go: Bools = self._may_go(np.ones(1, np.bool_), np.array([row]), np.array([source]), destinations)[
            0
        ]
        return may_go

    def _may_go(self, leaves: Bools, rows: Ints, sources: Ints, destinations: Ints) -> Bools:
        """Whether each of the bundles that leave their sources may go to each of these brokers, (k, d), by rows of the whole view."""
        may_go: Bools = leaves[:, None] & self.may_receive[destinations]
        if self.isolation is not None:
            may_go &= self.isolation[sources][:, None] == self.isolation[destinations]
        if self.spread is not None and self.namespace is not None:
            grouped = np.flatnonzero(self.spread.group[self.namespace[rows]] != NO_GROUP)
            if len(grouped):
                namespaces, here = self.namespace[rows[grouped]], sources[grouped]
                _, theirs, ours = self.spread.compare(namespaces[:, None], here[:, None], destinations)
                may_go[grouped] &= theirs <= ours
        return may_go

    def keeps(self, row: int) -> Forbidden | None:
        """Why a bundle may not leave its broker now, wherever it would go, if so; whether it is movable is not asked."""
        row, source = self._find(row)
        is_drained = row >= len(self.movable)
        if self.keeps_sole and not is_drained:
            staying_count = int(self.staying_counts[source] + self.leaving[row])
            if staying_count <= 1:
                told = int(self.starts[source + 1] - self.starts[source]) - staying_count
                were = "was" if told == 1 else "were"
                more = f" that stays: {told} {were} told to leave" if told else ""
                return Forbidden("sole-bundle", f"{self.brokers[source]} owns no other bundle{more}")
        for limit in self._limits_of(row):
            if not self._fits(limit, row, source):
                spent = float(limit.spent[self._keys(limit, row, source)])
                cost = 1.0 if limit.costs is None else float(limit.costs[row])
                detail = limit.text.format(
                    name=limit.name, most=limit.most, spent=digits(spent, 3), cost=digits(cost, 3)
                )
                return Forbidden("budget", detail, limit.name)
        return None

    def bars(self, row: int, destination: int) -> Forbidden | None:
        """Why a broker may not receive a bundle, if so; ``NOBODY`` may."""
        if destination == _NOBODY:
            return None
        row, source = self._find(row)
        destination = self._broker(destination)
        if row < len(self.movable):
            if not self.may_receive[destination]:
                return Forbidden("no-destination", f"{self.brokers[destination]} may not receive bundles now")
            if self.isolation is not None and self.isolation[source] != self.isolation[destination]:
                return Forbidden(
                    "other-group", f"{self.brokers[destination]} is of another isolation group now"
                )
        if self.spread is None or self.namespace is None:
            return None
        detail = self.spread.objection(int(self.namespace[row]), source, destination, self.brokers)
        return None if detail is None else Forbidden("anti-affinity", detail)

    @property
    def left_count(self) -> int | None:
        """How many more moves the counts for the whole cluster leave; None: any number."""
        counts = [
            limit
            for limit in self.limits
            if limit.by == "cluster" and limit.costs is None and not limit.drains
        ]
        return min((max(0, int(limit.most - limit.spent[0])) for limit in counts), default=None)

    def first_row_of(self, broker: str) -> int:
        """Row of the first bundle of a broker, which may be drained."""
        return int(self.starts[self.brokers.index(broker)])

    def take(self, row: int, destination: int) -> None:
        """Count a move that happens; the destination is ``NOBODY`` where Pulsar chooses it."""
        self.gather(row, destination)
        row, source = self._find(row)
        for limit in self._limits_of(row):
            limit.spent[self._keys(limit, row, source)] += 1.0 if limit.costs is None else limit.costs[row]
            if limit.taken_count is not None:
                limit.taken_count[0] += 1
        if not self.leaving[row]:
            self.leaving[row] = True
            self.staying_counts[source] -= 1

    def gather(self, row: int, destination: int) -> None:
        """Count a move in its anti-affinity group only."""
        if destination != _NOBODY and self.spread is not None and self.namespace is not None:
            row = row if self.rows is None else int(self.rows[1][row])
            self.spread.gather(int(self.namespace[row]), self._broker(destination))

    def _find(self, row: int) -> tuple[int, int]:
        """A bundle and the broker that owns it, by rows of the whole view."""
        row = row if self.rows is None else int(self.rows[1][row])
        return row, int(_owners(self.starts, row))

    def _broker(self, row: int) -> int:
        """A broker by its row of the whole view."""
        return row if self.rows is None else int(self.rows[0][row])

    def _limits_of(self, row: int) -> Iterator[Limit]:
        is_drained = row >= len(self.movable)
        return (limit for limit in self.limits if limit.drains in (None, is_drained))

    def _keys(self, limit: Limit, rows: Ints | int, sources: Ints | int) -> Any:
        """Which entry of ``spent`` counts each of these bundles."""
        if limit.by == "broker":
            return sources
        return self.namespace[rows] if limit.by == "namespace" and self.namespace is not None else 0

    def _fits(self, limit: Limit, rows: Ints | int, sources: Ints | int) -> Any:
        """Whether each of these bundles is within what is left of a limit."""
        spent = limit.spent[self._keys(limit, rows, sources)]
        costs = 1.0 if limit.costs is None else limit.costs[rows]
        fits = spent + costs <= limit.most + _ROUNDING
        return fits if limit.taken_count is None else fits | (limit.taken_count[0] < limit.free_count)


def _owners(starts: Ints, rows: Ints | int) -> Any:
    return np.searchsorted(starts, rows, side="right") - 1
