"""Which brokers list which bundle in a round, since when, and which of them owns it.

A bundle that the report of its owner leaves out is at first a gap in the data, and no change of the load. Where such bundles are kept,
it counts as listed there, without traffic, until another broker begins to list it, listed ranges cover its own (it was split), an
unload of ours takes it away, or nobody has listed it for ``max_report_age_s``. If its owner lists it again, its run goes on.
"""

from bisect import bisect_left
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from state.events import namespace_of
from state.pulsar.memory import Fleet, WaitingReport
from state.pulsar.ranges import covers

_NEW = -1
"""A listing that begins in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """That bundles stay which the reports of their owners leave out."""

    max_age_ms: int
    """How long after somebody last listed them, by the time of their owner's report."""
    left: Container[str]
    """Bundles that unloads of ours take away, and that do not show in the reports yet: these do not stay."""


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """Every (broker, bundle) listing of a snapshot, brokers ascending, bundles ascending within a broker."""

    broker: Ints
    bundles: list[str]
    run_start_ms: Ints
    time_ms: Ints
    traffic: Floats
    has_traffic: Bools
    counts: Ints
    is_absent: Bools
    """Whether the broker leaves the bundle out, and it only stays there; its time is that of its last listing."""
    is_as_before: bool
    """Whether the same brokers list the same bundles as in the round before, in the order of the fleet's rows."""


def listings_of(
    before: Fleet,
    reports: dict[str, WaitingReport],
    names: list[str],
    max_age_ms: int,
    gaps: Gaps | None = None,
) -> Listings:
    bundles: list[str] = []
    for name in names:
        bundles.extend(reports[name].report.bundles)
    counts = [len(reports[name].report.bundles) for name in names]
    times = np.array([reports[name].time_ms for name in names], dtype=np.int64)
    is_as_before = (
        names == before.brokers
        and not before.has_absent
        and bool((times - before.broker_last_ms <= max_age_ms).all())
        and np.array_equal(before.starts, np.cumsum([0, *counts]))
        and np.array_equal(before.listed_rows, first_rows(len(bundles)))
        and before.bundle_names.begin_with(bundles)
    )
    time_ms = np.repeat(times, counts)
    found = Listings(
        broker=np.repeat(np.arange(len(names), dtype=np.int64), counts),
        bundles=bundles,
        run_start_ms=before.run_start_ms if is_as_before else time_ms,
        time_ms=time_ms,
        traffic=np.concatenate([reports[name].report.traffic for name in names]),
        has_traffic=np.concatenate([reports[name].report.has_traffic for name in names]),
        counts=np.concatenate([reports[name].report.counts for name in names]),
        is_absent=np.zeros(len(bundles), dtype=np.bool_),
        is_as_before=is_as_before,
    )
    if is_as_before:
        return found
    known = _known_rows(before, names, times, max_age_ms)
    entries = np.concatenate(
        [
            _entries_at(before, row, reports[name].report.bundles)
            for name, row in zip(names, known, strict=True)
        ]
    )
    run_start_ms = np.where(entries == _NEW, time_ms, np.append(before.run_start_ms, 0)[entries])
    found = replace(found, run_start_ms=run_start_ms)
    return found if gaps is None else _with_absent(found, before, entries, known, gaps, times)


def first_rows(count: int) -> Ints:
    """The first ``count`` rows, in order."""
    return np.arange(count, dtype=np.int64)


def _known_rows(before: Fleet, names: list[str], times: Ints, max_age_ms: int) -> list[int]:
    """Row of each broker in the fleet before, -1 for one that it does not have or that was silent too long."""
    row_of = {name: row for row, name in enumerate(before.brokers)}
    last_ms = before.broker_last_ms.tolist()
    return [
        row if (row := row_of.get(name, -1)) >= 0 and time_ms - last_ms[row] <= max_age_ms else -1
        for name, time_ms in zip(names, times.tolist(), strict=True)
    ]


def _entries_at(before: Fleet, row: int, bundles: list[str]) -> Ints:
    """Which listing of its last snapshot report each listing of a broker goes on from; _NEW where that did not list the bundle."""
    if row < 0:
        return np.full(len(bundles), _NEW, dtype=np.int64)
    start, end = int(before.starts[row]), int(before.starts[row + 1])
    listed = pick(before.bundles, before.listed_rows[start:end])
    if listed == bundles:
        return np.arange(start, end, dtype=np.int64)
    place = dict(zip(listed, range(start, end), strict=True))
    return np.fromiter(map(place.get, bundles, repeat(_NEW)), dtype=np.int64, count=len(bundles))


class _Absent(NamedTuple):
    """A bundle that the report of its owner leaves out; the owner's place among the brokers that reported comes first."""

    broker: int
    bundle: str
    run_start_ms: int
    last_ms: int


def _with_absent(
    listings: Listings, before: Fleet, entries: Ints, known: list[int], gaps: Gaps, times: Ints
) -> Listings:
    """The listings and the bundles that stay, each at its place."""
    absent = [each for each in _left_out(before, entries, known, gaps, times) if each.bundle not in gaps.left]
    stays = sorted(_not_elsewhere(absent, listings, before, entries)) if absent else []
    if not stays:
        return listings
    bundles, starts = listings.bundles.copy(), np.searchsorted(listings.broker, np.arange(len(known) + 1))
    at = [
        bisect_left(bundles, each.bundle, int(starts[each.broker]), int(starts[each.broker + 1]))
        for each in stays
    ]
    for place, each in zip(reversed(at), reversed(stays), strict=True):
        bundles.insert(place, each.bundle)
    return Listings(
        broker=np.insert(listings.broker, at, [each.broker for each in stays]),
        bundles=bundles,
        run_start_ms=np.insert(listings.run_start_ms, at, [each.run_start_ms for each in stays]),
        time_ms=np.insert(listings.time_ms, at, [each.last_ms for each in stays]),
        traffic=np.insert(listings.traffic, at, 0.0, axis=0),
        has_traffic=np.insert(listings.has_traffic, at, False),
        counts=np.insert(listings.counts, at, 0, axis=0),
        is_absent=np.insert(listings.is_absent, at, True),
        is_as_before=False,
    )


def _left_out(before: Fleet, entries: Ints, known: list[int], gaps: Gaps, times: Ints) -> list[_Absent]:
    """Bundles that a broker listed and owned in its last snapshot report and leaves out now, and that somebody listed lately."""
    place_of = np.full(len(before.brokers), -1, dtype=np.int64)
    rows = np.array(known, dtype=np.int64)
    place_of[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    lister = np.repeat(np.arange(len(before.brokers)), np.diff(before.starts))
    listed = before.listed_rows
    is_left_out = (place_of[lister] >= 0) & (before.owner[listed] == lister)
    is_left_out &= times[place_of[lister]] - before.last_ms[listed] <= gaps.max_age_ms
    is_left_out[entries[entries != _NEW]] = False
    names = before.bundles
    return [
        _Absent(
            int(place_of[lister[entry]]),
            names[listed[entry]],
            int(before.run_start_ms[entry]),
            int(before.last_ms[listed[entry]]),
        )
        for entry in np.flatnonzero(is_left_out).tolist()
    ]


def _not_elsewhere(absent: list[_Absent], listings: Listings, before: Fleet, entries: Ints) -> list[_Absent]:
    """Those that no other broker lists in a later run, and whose range listed ranges of their namespace do not cover."""
    listed: dict[str, dict[str, tuple[int, int]]] = {namespace_of(each.bundle): {} for each in absent}
    is_near = np.array([name in listed for name in before.namespaces], dtype=np.bool_)
    near = is_near[before.namespace[before.listed_rows]]
    for at in np.flatnonzero((entries == _NEW) | near[entries]).tolist():
        bundle = listings.bundles[at]
        run = (int(listings.run_start_ms[at]), int(listings.broker[at]))
        runs = listed.get(namespace_of(bundle))
        if runs is not None:
            runs[bundle] = max(run, runs.get(bundle, run))
    found = []
    for each in absent:
        runs = listed[namespace_of(each.bundle)]
        is_later = runs.get(each.bundle, (-1, -1)) > (each.run_start_ms, each.broker)
        if not is_later and not covers(runs.keys() - {each.bundle}, each.bundle):
            found.append(each)
    return found


def match(known: Sequence[str], wanted: Sequence[str]) -> Ints:
    """Row in ``known`` of each wanted name, -1 where there is none."""
    if known[: len(wanted)] == wanted:
        return first_rows(len(wanted))
    index = dict(zip(known, range(len(known)), strict=True))
    return np.fromiter(map(index.get, wanted, repeat(_NEW)), dtype=np.int64, count=len(wanted))


def find(names: Sequence[str], wanted: Container[str]) -> Ints:
    """Rows of the names that are among ``wanted``, ascending."""
    return np.flatnonzero(np.fromiter(map(wanted.__contains__, names), dtype=np.bool_, count=len(names)))


def pick(names: list[str], rows: Ints) -> list[str]:
    """``names`` at ``rows``, in that order."""
    if len(rows) == 0:
        return []
    if int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return names[int(rows[0]) : int(rows[-1]) + 1]
    return [names[row] for row in rows.tolist()]


def owner_rows(listings: Listings) -> Ints:
    """Row of the listing that owns each bundle, ascending by (broker, bundle)."""
    count = len(listings.bundles)
    if listings.is_as_before or len(set(listings.bundles)) == count:
        return first_rows(count)
    order = np.lexsort((listings.broker, listings.run_start_ms))
    newest = dict(zip(itemgetter(*order.tolist())(listings.bundles), order.tolist(), strict=True))
    return np.sort(np.fromiter(newest.values(), dtype=np.int64, count=len(newest)))
