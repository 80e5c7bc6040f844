"""Which broker owns which bundle, and how much traffic it has: the fleet after one closed round.

A bundle has one owner: the broker that lists it. After a move both brokers report it for a while, and a report can list what its broker
never had; ``owners`` says which of several counts. Averages belong to the bundle and survive moves. All of it is columns: Python loops over brokers, but over bundles only of a broker whose listing changed.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from policies.columns import Bools, Floats, Ints, sum_runs
from state.events import LoadReport, namespace_of
from state.layouts import Names
from state.ledger import Child
from state.pulsar import groups
from state.pulsar.listings import (
    MOST_EMPTY_ROUNDS,
    Carried,
    Gaps,
    Listings,
    compare,
    completion,
    find,
    first_rows,
    listings_of,
    match,
    pick,
    without_lost,
)
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.owners import owner_rows

_AVERAGED = ("averages", "samples", "split_averages", "split_samples")
_BEGUN = ("counts", "empty_rounds", "owed_skip", "split_hits")
"""Columns of bundles that a child of a split inherits from its parent, and those that begin anew."""
_MOST_TIMES = 10.0
"""A sample is out of all proportion beyond so many times both its bundle's average and that of all bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How averages are taken."""

    samples: int
    """Samples in a bundle's running average."""
    split_samples: int
    """The same for the averages that splits are decided on; 0 where they are not wanted."""
    skip_after_move: bool
    """Leave out the first sample of a bundle's new owner."""
    skip_outliers: bool
    """Leave out a sample out of all proportion, and let the average begin anew with the next one; Pulsar takes every sample."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Advanced:
    """The fleet after a round."""

    fleet: Fleet
    """Its leading bundle rows are the bundles of the snapshot, grouped by owner in broker order and ascending within it;
    bundles that no broker lists now, but one did within ``max_report_age_ms``, follow."""
    counts: Ints
    """(owned, 2): topics and sessions of each leading row, as its owner reports them, or last reported an absent one."""
    reported: Floats
    """(owned, 4): traffic of each leading row in the round, as its owner reports it."""
    is_sampled: Bools
    """(owned,): whether that traffic counts in the running averages."""
    is_absent: Bools
    """(owned,): whether its owner's report leaves the bundle out, or all that it had, and it only stays there."""
    unreported: Mapping[str, Carried] = field(default_factory=dict)
    """By broker, what it carries that its report leaves out, by the running averages; for a policy that keeps absent bundles."""
    returned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By broker, bundles with traffic that its last report left out and that it lists again."""
    overlaps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By bundle that does not count because others whose ranges it overlaps do, these (``state.pulsar.overlaps``)."""
    uncounted_rows: Ints = field(default_factory=lambda: first_rows(0))
    """Rows of the bundles that others count instead of, ascending; for a policy that keeps absent bundles."""
    twice: Mapping[str, Carried] = field(default_factory=dict)
    """By broker, what it reports of them."""
    reporting: Collection[str] = ()
    """Brokers that reported in the round."""
    moved: Floats = field(default_factory=lambda: np.zeros((0, 4)))
    """Running averages of the bundles that came to or left each broker of the fleet since the round before, whoever moved them, (b, 4)."""

    @property
    def owned_count(self) -> int:
        """Number of leading rows."""
        return len(self.counts)

    def present_rates(self, rows: Ints) -> Floats:
        """Traffic of leading rows in the round, (k, 4); the averages where the round's does not count, 0 where others count instead."""
        is_all = len(rows) == self.owned_count and bool((rows[1:] > rows[:-1]).all())
        if is_all and self.is_sampled.all() and not len(self.uncounted_rows):
            return self.reported
        at = slice(len(rows)) if is_all else rows
        rates: Floats = np.where(self.is_sampled[at, None], self.reported[at], self.fleet.averages[at])
        rates[self.is_uncounted(rows)] = 0.0
        return rates

    def is_uncounted(self, rows: Ints) -> Bools:
        """Whether others that they overlap count instead of these leading rows, (k,)."""
        return (
            np.isin(rows, self.uncounted_rows)
            if len(self.uncounted_rows)
            else np.zeros(len(rows), dtype=np.bool_)
        )

    def owns(self, broker: str, bundle: str) -> bool:
        """Whether a broker of the round owns a bundle; quick, for callers that know where it should be."""
        return self.row_of(broker, bundle) is not None

    def row_of(self, broker: str, bundle: str) -> int | None:
        """Row of the fleet of a bundle that a broker of the round owns; None where it does not."""
        start, end = self._spans.get(broker, (0, 0))
        names = self.fleet.bundles
        row = bisect_left(names, bundle, start, end)
        return row if row < end and names[row] == bundle else None

    def rows_of(self, broker: str) -> range | None:
        """Leading rows of the bundles that a broker of the round owns; None for a broker that did not report in it."""
        if broker not in self.reporting:
            return None
        return range(*self._spans.get(broker, (0, 0)))

    def runs_begun_ms(self, broker: str) -> dict[int, int]:
        """By bundle row, when the unbroken run began in which a broker lists it."""
        fleet = self.fleet
        place = fleet.brokers.index(broker)
        entries = slice(int(fleet.starts[place]), int(fleet.starts[place + 1]))
        return dict(
            zip(fleet.listed_rows[entries].tolist(), fleet.run_start_ms[entries].tolist(), strict=True)
        )

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """By broker, its bundles' rows, ascending by name."""
        edges = np.searchsorted(self.fleet.owner[: self.owned_count], np.arange(len(self.fleet.brokers) + 1))
        return dict(zip(self.fleet.brokers, pairwise(edges.tolist()), strict=True))

    def owners_of(self, bundles: Container[str]) -> dict[str, str]:
        """Owner of each of ``bundles`` that a broker of the round lists."""
        fleet, count = self.fleet, self.owned_count
        rows = find(fleet.bundles[:count], bundles).tolist()
        return {fleet.bundles[row]: fleet.brokers[int(fleet.owner[row])] for row in rows}


def advance(
    before: Fleet,
    reports: dict[str, LoadReport],
    sampling: Sampling,
    *,
    round_end_ms: int,
    max_report_age_ms: int,
    unloads: Mapping[str, str | None],
    keeps_absent: bool,
) -> Advanced:
    """The fleet after a round whose snapshot is ``reports`` (broker id to its newest report of the round).

    ``unloads`` are those of ours that do not show in the reports yet: by bundle its destination, None where Pulsar chooses.
    """
    names = sorted(reports)
    reporting = set(names)
    gaps = Gaps(max_age_ms=max_report_age_ms, left=unloads) if keeps_absent else None
    listings = listings_of(before, reports, names, max_report_age_ms, gaps)
    rows = owner_rows(listings, before, names, unloads)
    owned = pick(listings.bundles, rows)
    absent = [
        (name, row)
        for row, name in enumerate(before.brokers)
        if name not in reporting and round_end_ms - int(before.broker_last_ms[row]) <= max_report_age_ms
    ]
    after = Fleet()
    after.brokers = sorted([*names, *(name for name, _ in absent)])
    moved_to = np.append(match(after.brokers, before.brokers), NOBODY)
    old = first_rows(len(owned)) if listings.is_as_before else match(before.bundles, owned)
    _carry_bundles(
        before,
        after,
        listings,
        rows=rows,
        owned=owned,
        old=old,
        places=match(after.brokers, names),
        moved_to=moved_to,
        round_end_ms=round_end_ms,
        max_age_ms=max_report_age_ms,
    )
    if keeps_absent:
        listings, after.empty_rounds[: len(rows)] = without_lost(listings, before, rows, old)
    has_moved = _have_moved(before, after, old=old, moved_to=moved_to)
    reported, is_sampled = _sample(
        before,
        after,
        listings,
        rows=rows,
        old=old,
        has_moved=has_moved,
        sampling=sampling,
        max_age_ms=max_report_age_ms,
    )
    _carry_brokers(before, after, listings, reports, names=names, absent=absent)
    _carry_policies(before, after, reports, max_report_age_ms)
    compared = compare(
        before,
        after,
        listings,
        rows=rows,
        old=old,
        round_end_ms=round_end_ms,
        max_age_ms=max_report_age_ms,
    )
    empty_rounds = after.empty_rounds[: len(rows)]
    is_absent = listings.is_absent[rows] | (empty_rounds > 0) & (empty_rounds <= MOST_EMPTY_ROUNDS)
    counts = listings.counts[rows]
    counts[is_absent] = before.counts[old[is_absent]]
    return Advanced(
        fleet=after,
        counts=counts,
        reported=reported,
        is_sampled=is_sampled,
        is_absent=is_absent,
        overlaps=compared.overlaps,
        returned=compared.returned,
        reporting=reporting,
        moved=_moved(before, after, rows=np.flatnonzero(has_moved), old=old, moved_to=moved_to),
        **(
            completion(after, counts, listings.has_traffic, rows, reported, compared.uncounted)
            if keeps_absent
            else {}
        ),
    )


def _have_moved(before: Fleet, after: Fleet, *, old: Ints, moved_to: Ints) -> Bools:
    """Which leading rows have another owner than in the round before, (owned,)."""
    has_moved = old >= 0
    known = np.flatnonzero(has_moved)
    has_moved[known] = moved_to[before.owner[old[known]]] != after.owner[known]
    return has_moved


def _moved(before: Fleet, after: Fleet, *, rows: Ints, old: Ints, moved_to: Ints) -> Floats:
    moved = np.zeros((len(after.brokers), 4))
    for brokers in (moved_to[before.owner[old[rows]]], after.owner[rows]):
        known = brokers != NOBODY
        np.add.at(moved, brokers[known], after.averages[rows[known]])
    return moved


def inherit(
    fleet: Fleet, splits: Sequence[tuple[str, Sequence[Child]]], listed: Callable[[str], bool]
) -> None:
    """Give the children of split bundles that are ``listed`` for the first time their share of the parent's averages.

    They become rows of ``fleet`` that the next ``advance`` treats as known: owned by the parent's owner, last listed when the parent was.
    """
    blind = {child.bundle: child.blind_cut for _, children in splits for child in children if child.blind_cut}
    fleet.blind_cuts = fleet.blind_cuts | {name: cut for name, cut in blind.items() if listed(name)}
    row_of = dict(zip(fleet.bundles, range(len(fleet.bundles)), strict=True))
    born = [
        (row_of[parent], child.bundle, child.messages_ratio, child.bytes_ratio)
        for parent, children in splits
        if parent in row_of
        for child in children
        if child.messages_ratio is not None and child.bundle not in row_of and listed(child.bundle)
    ]
    if not born:
        return
    parents = np.array([row for row, _, _, _ in born], dtype=np.int64)
    messages, volume = (np.array([child[at] for child in born]) for at in (2, 3))
    shares = np.column_stack([messages, messages, volume, volume])
    fleet.bundles = [*fleet.bundles, *(name for _, name, _, _ in born)]
    for name in ("owner", "former", "last_ms", "namespace", *_AVERAGED, *_BEGUN):
        column = getattr(fleet, name)
        inherited = np.zeros_like(column[parents]) if name in _BEGUN else column[parents]
        inherited = inherited * {"averages": shares, "split_averages": shares[:, 1:3]}.get(name, 1)
        setattr(fleet, name, np.concatenate([column, inherited]))


def _carry_bundles(
    before: Fleet,
    after: Fleet,
    listings: Listings,
    *,
    rows: Ints,
    owned: list[str],
    old: Ints,
    places: Ints,
    moved_to: Ints,
    round_end_ms: int,
    max_age_ms: int,
) -> None:
    """Names, owners and last listing of the snapshot's bundles, then of those only remembered.

    ``places`` are the rows of the brokers that reported, ``moved_to`` those of the brokers before; the last entry is for nobody.
    """
    unseen = np.ones(len(before.owner), dtype=np.bool_)
    unseen[old[old >= 0]] = False
    kept = np.flatnonzero(unseen & (round_end_ms - before.last_ms <= max_age_ms))
    if listings.is_as_before and len(owned) == len(before.owner):
        after.bundle_names = Names(owned, before.bundle_names.text)
    elif listings.is_as_before and len(owned) + len(kept) == len(before.owner):
        after.bundle_names = before.bundle_names
    else:
        after.bundles = owned + pick(before.bundles, kept)
    owner = places[listings.broker[rows]]
    after.owner = np.concatenate([owner, moved_to[before.owner[kept]]])
    was, former = (np.append(moved_to[column], NOBODY) for column in (before.owner, before.former))
    begins = listings.run_start_ms[rows] > np.append(before.last_ms, 0)[old] - max_age_ms
    left = np.where(begins, was[old], NOBODY)
    after.former = np.concatenate([np.where(was[old] == owner, former[old], left), former[kept]])
    last = listings.time_ms[rows]
    if len(rows) < len(listings.bundles):
        last = last.copy()
        at = match(owned, listings.bundles)
        np.maximum.at(last, at, listings.time_ms)
        np.copyto(last, listings.time_ms[rows], where=listings.is_absent[rows])  # of these, its owner's alone
    after.last_ms = np.concatenate([last, before.last_ms[kept]])
    for name in (*_AVERAGED, *_BEGUN):
        column = getattr(before, name)
        fresh = np.zeros((len(owned), *column.shape[1:]), dtype=column.dtype)
        setattr(after, name, np.concatenate([fresh, column[kept]]))
    _carry_namespaces(before, after, np.concatenate([old, kept]))


def _carry_namespaces(before: Fleet, after: Fleet, old: Ints) -> None:
    """Namespace of each bundle: looked up for those seen before (``old``, else -1), read off the name for new ones."""
    row_of = dict(zip(before.namespaces, range(len(before.namespaces)), strict=True))
    rows = np.full(len(old), NOBODY, dtype=np.int64)
    rows[old >= 0] = before.namespace[old[old >= 0]]
    names = after.bundles
    for row in np.flatnonzero(old < 0).tolist():
        rows[row] = row_of.setdefault(namespace_of(names[row]), len(row_of))
    used = np.bincount(rows, minlength=len(row_of)) > 0
    after.namespaces = [name for name, is_used in zip(row_of, used.tolist(), strict=True) if is_used]
    after.namespace = (np.cumsum(used) - 1)[rows]


def _sample(
    before: Fleet,
    after: Fleet,
    listings: Listings,
    *,
    rows: Ints,
    old: Ints,
    has_moved: Bools,
    sampling: Sampling,
    max_age_ms: int,
) -> tuple[Floats, Bools]:
    """Put one sample into each listed bundle's running averages, unless it is the first after a move or out of all proportion.

    Returns what was reported of each row, (owned, 4), and whether it was taken, (owned,).
    """
    count = len(rows)
    remembered = old >= 0
    if len(before.owner):
        remembered &= listings.time_ms[rows] - before.last_ms[old] <= max_age_ms
    is_whole = listings.is_as_before and bool(remembered.all())
    known, at = (slice(count),) * 2 if is_whole else (np.flatnonzero(remembered), old[remembered])
    owed = np.zeros(count, dtype=np.bool_)
    if sampling.skip_after_move:
        owed[known] = before.owed_skip[at] | has_moved[known]
    reported = listings.has_traffic[rows]
    after.owed_skip[:count] = owed & ~reported
    is_taken = reported & ~owed
    owned_traffic = listings.traffic if count == len(listings.bundles) else listings.traffic[rows]
    after.averages[known], after.samples[known] = before.averages[at], before.samples[at]
    if sampling.skip_outliers:
        is_outlier = is_taken & _are_outliers(after.averages[:count], after.samples[:count], owned_traffic)
        after.samples[:count][is_outlier] = 0
        is_taken &= ~is_outlier
    taken = slice(count) if is_taken.all() else is_taken  # a slice takes a view, no copy
    traffic = owned_traffic[taken]
    _average(after.averages[:count], after.samples[:count], taken, traffic, sampling.samples)
    if sampling.split_samples:
        after.split_averages[known] = before.split_averages[at]
        after.split_samples[known] = before.split_samples[at]
        after.split_hits[known] = before.split_hits[at]
        sums = np.column_stack([traffic[:, :2].sum(axis=1), traffic[:, 2:].sum(axis=1)])
        _average(
            after.split_averages[:count], after.split_samples[:count], taken, sums, sampling.split_samples
        )
    else:
        for column in (after.split_averages, after.split_samples, after.split_hits):
            column[:] = 0
    return owned_traffic, is_taken


def _are_outliers(averages: Floats, samples: Ints, sample: Floats) -> Bools:
    """Which samples are out of all proportion, (owned,); never the first that an average is made of, so that what lasts counts."""
    usual = sum_runs(np.array([0, len(averages)]), averages) / max(len(averages), 1)
    beyond: Bools = np.any(sample > _MOST_TIMES * np.maximum(averages, usual), axis=1)
    return beyond & (samples > 0)


def _average(averages: Floats, samples: Ints, taken: Bools | slice, sample: Floats, most: int) -> None:
    """Put a sample into the running averages of the rows ``taken``, in place: ``avg = ((n - 1) avg + x) / n``."""
    samples[taken] = np.minimum(samples[taken] + 1, most)
    weight = samples[taken, None]
    averages[taken] = ((weight - 1) * averages[taken] + sample) / weight


def _carry_brokers(
    before: Fleet,
    after: Fleet,
    listings: Listings,
    reports: dict[str, LoadReport],
    *,
    names: list[str],
    absent: list[tuple[str, int]],
) -> None:
    """Listings of the brokers that reported, and of those that are only absent for now."""
    listed = (
        first_rows(len(listings.bundles)) if listings.is_as_before else match(after.bundles, listings.bundles)
    )
    ends = np.searchsorted(listings.broker, np.arange(len(names) + 1))
    entries: dict[str, tuple[int, Ints, Ints]] = {
        name: (
            reports[name].time_ms,
            listed[ends[i] : ends[i + 1]],
            listings.run_start_ms[ends[i] : ends[i + 1]],
        )
        for i, name in enumerate(names)
    }
    if absent:
        row_of = dict(zip(after.bundles, range(len(after.bundles)), strict=True))
        for name, row in absent:
            span = slice(int(before.starts[row]), int(before.starts[row + 1]))
            its = pick(before.bundles, before.listed_rows[span])
            rows = np.array([row_of.get(bundle, NOBODY) for bundle in its], dtype=np.int64)
            is_kept = rows != NOBODY  # one that only stayed there may be gone for too long by now
            entries[name] = (
                int(before.broker_last_ms[row]),
                rows[is_kept],
                before.run_start_ms[span][is_kept],
            )
    ordered = [entries[name] for name in after.brokers]
    after.broker_last_ms = np.array([entry[0] for entry in ordered], dtype=np.int64)
    after.starts = np.concatenate([[0], np.cumsum([len(entry[1]) for entry in ordered])]).astype(np.int64)
    after.listed_rows = np.concatenate([entry[1] for entry in ordered])
    after.run_start_ms = np.concatenate([entry[2] for entry in ordered])


def _carry_policies(before: Fleet, after: Fleet, reports: dict[str, LoadReport], max_age_ms: int) -> None:
    """Keep what the policies remember about brokers that are still remembered."""
    last = dict(zip(before.brokers, before.broker_last_ms.tolist(), strict=True))
    kept = {
        name
        for name in after.brokers
        if name in last and (name not in reports or reports[name].time_ms - last[name] <= max_age_ms)
    }
    after.policies = groups.keep_brokers(before.policies, kept.__contains__)
    after.shadow, after.costs = before.shadow, before.costs
    if before.blind_cuts:
        known = set(after.bundles)
        after.blind_cuts = {name: cut for name, cut in before.blind_cuts.items() if name in known}
