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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints

NO_GROUP = -1
"""A namespace that is in no anti-affinity group."""
_NOBODY = -1  # policies.shedding.view.NOBODY, which imports this module

Rule = Literal["other-group", "no-destination", "anti-affinity", "sole-bundle", "budget"]


class Forbidden(NamedTuple):
    """Why a bundle may not move: the rule, and a sentence with its numbers."""

    rule: Rule
    detail: str


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


class Spread:
    """Which broker has which namespaces of each anti-affinity group; worked out when first asked for."""

    def __init__(
        self,
        *,
        namespace: Ints,
        starts: Ints,
        group: Ints,
        groups: Sequence[str],
        domain: Ints,
        domains: Sequence[str],
        brokers_count: int,
    ) -> None:
        """``group`` is that of each namespace, NO_GROUP for none; ``domain`` that of each broker, 0 for none; ``domains`` has no first.

        The first ``brokers_count`` brokers take part in balancing; ``starts`` says which bundles a broker owns.
        """
        self.namespace, self.group, self.groups = namespace, group, groups
        self.domain, self.domains, self.brokers_count = domain, domains, brokers_count
        self._starts = starts

    @cached_property
    def has(self) -> Bools:
        """Whether a broker owns a bundle of a namespace, by place of the namespace and broker."""
        rows = np.flatnonzero(self.group[self.namespace] != NO_GROUP)
        found = np.zeros((int(self.place.max(initial=NO_GROUP)) + 1, len(self.domain)), dtype=np.bool_)
        found[self.place[self.namespace[rows]], np.searchsorted(self._starts, rows, side="right") - 1] = True
        return found

    @cached_property
    def place(self) -> Ints:
        """Row of ``has`` of each namespace that is in a group."""
        is_in = self.group != NO_GROUP
        return np.where(is_in, np.cumsum(is_in) - 1, NO_GROUP)

    @cached_property
    def kin(self) -> Ints:
        """Namespaces of each group of which a broker owns a bundle, (groups, brokers)."""
        found = np.zeros((len(self.groups), len(self.domain)), dtype=np.int64)
        np.add.at(found, self.group[self.group != NO_GROUP], self.has)
        return found

    @cached_property
    def sums(self) -> tuple[Ints, Ints]:
        """``has`` and ``kin``, added up over the brokers of each domain that take part."""
        belongs = np.zeros((len(self.domain), len(self.domains)), dtype=np.int64)
        taking_part = np.arange(self.brokers_count)
        belongs[taking_part, self.domain[taking_part]] = 1
        return self.has @ belongs, self.kin @ belongs

    def compare(self, namespace: Ints, source: Ints, destination: Ints) -> tuple[Bools, Ints, Ints]:
        """Whether the domains decide, and how many other namespaces of the group destination and source have, or their domains.

        The arguments are broadcast; each namespace is in a group.
        """
        place, group = self.place[namespace], self.group[namespace]
        there = self.kin[group, destination] - self.has[place, destination]
        here = self.kin[group, source] - self.has[place, source]
        if len(self.domains) == 1:
            return np.zeros(np.broadcast(here, there).shape, dtype=np.bool_), there, here
        has, kin = self.sums
        to, from_ = self.domain[destination], self.domain[source]
        there_all = kin[group, to] - has[place, to]
        here_all = kin[group, from_] - has[place, from_] + np.where(source < self.brokers_count, 0, here)
        decides = (to != from_) & (there_all != here_all)
        return decides, np.where(decides, there_all, there), np.where(decides, here_all, here)

    def objection(self, namespace: int, source: int, destination: int, names: Sequence[str]) -> str | None:
        """Why a bundle of a namespace would gather its group, in words; None if it would not."""
        group = int(self.group[namespace])
        if group == NO_GROUP:
            return None
        decides, there, here = self.compare(*map(np.array, ([namespace], [source], [destination])))
        if there[0] <= here[0]:
            return None
        others = f"bundles of {there[0]} other namespaces of anti-affinity group {self.groups[group]}"
        if not decides[0]:
            return f"{names[destination]} owns {others}, {names[source]} of {here[0]}"
        to, from_ = (self._domain_of(broker) for broker in (destination, source))
        return f"brokers of {to} own {others}, those of {from_} of {here[0]}"

    def _domain_of(self, broker: int) -> str:
        domain = int(self.domain[broker])
        return f"failure domain {self.domains[domain]}" if domain else "no failure domain"

    def gather(self, namespace: int, destination: int) -> None:
        """Count a bundle at its destination; the source may own others of its namespace, so the namespace also stays there."""
        group, place, (has, kin) = self.group[namespace], self.place[namespace], self.sums
        if group != NO_GROUP and not self.has[place, destination]:
            domain = self.domain[destination]
            self.has[place, destination] = True
            self.kin[group, destination] += 1
            has[place, domain] += 1
            kin[group, domain] += 1

    def draft(self) -> "Spread":
        """A copy, to be changed by moves that may not happen after all."""
        found = Spread.__new__(Spread)
        found.__dict__ |= self.__dict__ | {
            "has": self.has.copy(),
            "kin": self.kin.copy(),
            "sums": tuple(each.copy() for each in self.sums),
        }
        return found


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
    """Bundles of each broker that were not told so."""
    rows: tuple[Ints, Ints] | None = None
    """Rows of the brokers and bundles of a part of the view; None: it is the whole view."""

    def draft(self) -> "Rules":
        """A copy, to be changed by moves that may not happen after all."""
        return replace(
            self,
            spread=self.spread and self.spread.draft(),
            limits=tuple(replace(each, spent=each.spent.copy()) for each in self.limits),
            leaving=self.leaving.copy(),
            staying_counts=self.staying_counts.copy(),
        )

    def part(self, brokers: Ints, bundles: Ints) -> "Rules":
        """The same rules and counts, by the rows of a part of the view."""
        if self.rows is not None:
            brokers, bundles = self.rows[0][brokers], self.rows[1][bundles]
        return replace(self, rows=(brokers, bundles))

    def allowed(self, rows: Ints, destinations: Ints) -> Bools:
        """Whether each of these bundles may go to each of these brokers now, (k, d); none of them is at a drained broker."""
        if self.rows is not None:
            destinations, rows = self.rows[0][destinations], self.rows[1][rows]
        sources = self._owners_of(rows)
        leaves = self.movable[rows]
        if self.keeps_sole:
            leaves &= self.staying_counts[sources] + self.leaving[rows] > 1
        for limit in self.limits:
            if not limit.drains:
                leaves = leaves & self._fits(limit, rows, sources)
        found: Bools = leaves[:, None] & self.may_receive[destinations]
        if self.isolation is not None:
            found &= self.isolation[sources][:, None] == self.isolation[destinations]
        if self.spread is not None and self.namespace is not None:
            grouped = np.flatnonzero(self.spread.group[self.namespace[rows]] != NO_GROUP)
            if len(grouped):
                namespaces, here = self.namespace[rows[grouped]], sources[grouped]
                _, theirs, ours = self.spread.compare(namespaces[:, None], here[:, None], destinations)
                found[grouped] &= theirs <= ours
        return found

    def keeps(self, row: int) -> Forbidden | None:
        """Why a bundle may not leave its broker now, wherever it would go, if so; whether it is movable is not asked."""
        _, row, sources = self._find(row)
        is_drained = row >= len(self.movable)
        broker = int(sources[0])
        if self.keeps_sole and not is_drained:
            staying_count = int(self.staying_counts[broker] + self.leaving[row])
            if staying_count <= 1:
                told = int(self.starts[broker + 1] - self.starts[broker]) - staying_count
                more = f" that stays: {told} were told to leave" if told else ""
                return Forbidden("sole-bundle", f"{self.brokers[broker]} owns no other bundle{more}")
        for limit in self.limits:
            if limit.drains in (None, is_drained) and not np.all(self._fits(limit, np.array([row]), sources)):
                return Forbidden("budget", f"{limit.name} {limit.most} is spent")
        return None

    def bars(self, row: int, destination: int) -> Forbidden | None:
        """Why a broker may not receive a bundle, if so; ``NOBODY`` may."""
        if destination == _NOBODY:
            return None
        destination, row, sources = self._find(row, destination)
        if row < len(self.movable):
            if not self.may_receive[destination]:
                return Forbidden("no-destination", f"{self.brokers[destination]} may not receive bundles now")
            if self.isolation is not None and self.isolation[sources[0]] != self.isolation[destination]:
                return Forbidden(
                    "other-group", f"{self.brokers[destination]} is of another isolation group now"
                )
        if self.spread is None or self.namespace is None:
            return None
        detail = self.spread.objection(int(self.namespace[row]), int(sources[0]), destination, self.brokers)
        return None if detail is None else Forbidden("anti-affinity", detail)

    def first_row_of(self, broker: str) -> int:
        """Row of the first bundle of a broker, which may be drained."""
        return int(self.starts[self.brokers.index(broker)])

    def take(self, row: int, destination: int) -> None:
        """Count a move that happens; the destination is ``NOBODY`` where Pulsar chooses it."""
        self.gather(row, destination)
        _, row, sources = self._find(row)
        for limit in self.limits:
            if limit.drains in (None, row >= len(self.movable)):
                cost = 1.0 if limit.costs is None else limit.costs[row]
                limit.spent[self._keys(limit, np.array([row]), sources)] += cost
        if not self.leaving[row]:
            self.leaving[row] = True
            self.staying_counts[sources] -= 1

    def gather(self, row: int, destination: int) -> None:
        """Count a move in its anti-affinity group only."""
        destination, row, _ = self._find(row, destination)
        if destination != _NOBODY and self.spread is not None and self.namespace is not None:
            self.spread.gather(int(self.namespace[row]), destination)

    def _find(self, row: int, destination: int = _NOBODY) -> tuple[int, int, Ints]:
        """Destination, bundle, and the broker that owns it, (1,), by rows of the whole view."""
        if self.rows is not None:
            row = int(self.rows[1][row])
            destination = destination if destination == _NOBODY else int(self.rows[0][destination])
        return destination, row, self._owners_of(np.array([row]))

    def _owners_of(self, rows: Ints) -> Ints:
        owners: Ints = np.searchsorted(self.starts, rows, side="right") - 1
        return owners

    def _keys(self, limit: Limit, rows: Ints, sources: Ints) -> Ints:
        """Which entry of ``spent`` counts each of these bundles."""
        if limit.by == "broker":
            return sources
        if limit.by == "namespace" and self.namespace is not None:
            return self.namespace[rows]
        return np.zeros(1, dtype=np.int64)

    def _fits(self, limit: Limit, rows: Ints, sources: Ints) -> Bools:
        """Whether each of these bundles is within what is left of a limit, (k,) or (1,)."""
        costs = 1.0 if limit.costs is None else limit.costs[rows]
        fits: Bools = limit.spent[self._keys(limit, rows, sources)] + costs <= limit.most
        return fits
