"""Which brokers list which bundle in a round, and since when; and what their reports leave out.

A bundle that the report of its owner leaves out is at first a gap in the data, and no change of the load. Where such bundles are
kept, it counts as listed there, without traffic, until another broker begins to list it, or still does after two such gaps, listed
ranges cover its own (it was split), an unload of ours takes it away, or nobody has listed it for ``max_report_age_s``. If its owner lists it again, its run
goes on. A bundle that is left out, or listed without its traffic, still loads its broker: what the brokers report is mended by
that for a policy that keeps absent bundles. What a person should know is found for all policies.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from state.events import LoadReport, namespace_of
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.overlaps import covers, find_overlaps, members_of

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
    reports: dict[str, LoadReport],
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
    listings = Listings(
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
        return listings
    known = _known_rows(before, names, times, max_age_ms)
    entries = np.concatenate(
        [
            _entries_at(before, row, reports[name].report.bundles)
            for name, row in zip(names, known, strict=True)
        ]
    )
    run_start_ms = np.where(entries == _NEW, time_ms, np.append(before.run_start_ms, 0)[entries])
    listings = replace(listings, run_start_ms=run_start_ms)
    return listings if gaps is None else _with_absent(listings, before, entries, known, gaps, times)


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
    is_again: bool
    """Whether the report before had left it out, too."""


def _with_absent(
    listings: Listings, before: Fleet, entries: Ints, known: list[int], gaps: Gaps, times: Ints
) -> Listings:
    """The listings and the bundles that stay, each at its place."""
    absent = [
        missing
        for missing in _left_out(before, entries, known, gaps, times)
        if missing.bundle not in gaps.left
    ]
    stays = sorted(_not_elsewhere(absent, listings, before, entries)) if absent else []
    if not stays:
        return listings
    bundles, starts = listings.bundles.copy(), np.searchsorted(listings.broker, np.arange(len(known) + 1))
    at = [
        bisect_left(bundles, missing.bundle, int(starts[missing.broker]), int(starts[missing.broker + 1]))
        for missing in stays
    ]
    for place, missing in zip(reversed(at), reversed(stays), strict=True):
        bundles.insert(place, missing.bundle)
    return Listings(
        broker=np.insert(listings.broker, at, [missing.broker for missing in stays]),
        bundles=bundles,
        run_start_ms=np.insert(listings.run_start_ms, at, [missing.run_start_ms for missing in stays]),
        time_ms=np.insert(listings.time_ms, at, [missing.last_ms for missing in stays]),
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
    names, was_listed = before.bundles, _was_listed(before)
    return [
        _Absent(
            int(place_of[lister[entry]]),
            names[listed[entry]],
            int(before.run_start_ms[entry]),
            int(before.last_ms[listed[entry]]),
            not was_listed[listed[entry]],
        )
        for entry in np.flatnonzero(is_left_out).tolist()
    ]


def _not_elsewhere(absent: list[_Absent], listings: Listings, before: Fleet, entries: Ints) -> list[_Absent]:
    """Those that no other broker lists in a later run, and whose range listed ranges of their namespace do not cover.

    Once two reports have left one out, any other broker that lists it counts.
    """
    listed: dict[str, dict[str, tuple[int, int]]] = {namespace_of(missing.bundle): {} for missing in absent}
    is_near = np.array([name in listed for name in before.namespaces], dtype=np.bool_)
    near = is_near[before.namespace[before.listed_rows]]
    for at in np.flatnonzero((entries == _NEW) | near[entries]).tolist():
        bundle = listings.bundles[at]
        run = (int(listings.run_start_ms[at]), int(listings.broker[at]))
        runs = listed.get(namespace_of(bundle))
        if runs is not None:
            runs[bundle] = max(run, runs.get(bundle, run))
    stays = []
    for missing in absent:
        runs = listed[namespace_of(missing.bundle)]
        other = runs.get(missing.bundle)
        is_later = other is not None and other > (missing.run_start_ms, missing.broker)
        is_elsewhere = is_later or (other is not None and missing.is_again)
        if not is_elsewhere and not covers(runs.keys() - {missing.bundle}, missing.bundle):
            stays.append(missing)
    return stays


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


MOST_EMPTY_ROUNDS = 3
"""For how many rounds in a row nothing is taken for a report that lacks the numbers: so long a bundle is kept that nobody lists."""


def without_lost(listings: Listings, before: Fleet, rows: Ints, old: Ints) -> tuple[Listings, Ints]:
    """The listings, without statistics of owned ``rows`` that lost all they had at once; and for how many rounds each is empty, (owned,).

    Clients leave one by one. A broker that has just begun to measure shows nothing of all its bundles.
    """
    shows = listings.traffic @ np.ones(4) + listings.counts[:, 0] + listings.counts[:, 1] > 0
    empty = np.flatnonzero((listings.has_traffic & ~shows)[rows])
    rounds = np.zeros(len(rows), dtype=np.int64)
    if not len(empty):
        return listings, rounds
    had = (before.samples > 0) & (before.averages.any(axis=1) | before.counts.any(axis=1))
    empty = empty[np.append(had, False)[old[empty]]]
    rounds[empty] = np.minimum(before.empty_rounds[old[empty]], MOST_EMPTY_ROUNDS) + 1
    has_traffic = listings.has_traffic.copy()
    has_traffic[rows[(rounds > 0) & (rounds <= MOST_EMPTY_ROUNDS)]] = False
    return replace(listings, has_traffic=has_traffic), rounds


class Carried(NamedTuple):
    """What some bundles carry together."""

    messages_per_s: float
    bytes_per_s: float
    topics_count: int
    sessions_count: int


def completion(
    after: Fleet,
    counts: Ints,
    has_traffic: Bools,
    rows: Ints,
    reported: Floats,
    uncounted_bundles: Collection[str],
) -> dict[str, Any]:
    """Fields of ``Advanced`` that complete the reports, for a policy that keeps absent bundles; remembers the counts for the next round."""
    count = len(rows)
    after.counts = counts if count == len(after.owner) else np.concatenate([counts, after.counts[count:]])
    silent = uncounted = first_rows(0)
    if not has_traffic.all():
        silent = np.flatnonzero(~has_traffic[rows] & (after.samples[:count] > 0))
    if uncounted_bundles:
        uncounted = find(after.bundles[:count], uncounted_bundles)
    silent = np.setdiff1d(silent, uncounted)
    return {
        "unreported": _carried(after, silent, after.averages[silent]),
        "uncounted_rows": uncounted,
        "twice": _carried(after, uncounted, reported[uncounted]),
    }


class Compared(NamedTuple):
    """What the listings of a snapshot show beside those before it."""

    overlaps: dict[str, list[str]]
    """By bundle that does not count because others that it overlaps do, these; where they overlapped before, too."""
    uncounted: Collection[str]
    """These bundles, and those that the others cover, which overlap for the first time."""
    returned: dict[str, list[str]]
    """By broker, bundles with traffic that its last report left out and that it lists again."""


def compare(
    before: Fleet,
    after: Fleet,
    listings: Listings,
    *,
    rows: Ints,
    old: Ints,
    round_end_ms: int,
    max_age_ms: int,
) -> Compared:
    """What overlaps, as it did within ``max_age_ms``, and what is back; remembers what this snapshot lists."""
    after.listed_count, after.has_absent = len(rows), bool(listings.is_absent.any())
    known = {
        name: last_ms for name, last_ms in before.overlapping.items() if round_end_ms - last_ms <= max_age_ms
    }
    if listings.is_as_before and not known:
        return Compared({}, (), {})
    was_listed, is_absent = _was_listed(before), listings.is_absent[rows]
    suspects = _suspects(after, known, ~is_absent, is_new=~was_listed[old])
    idle = suspects[~listings.traffic[rows[suspects]].any(axis=1)]
    overlaps = find_overlaps(pick(after.bundles, suspects), {*pick(after.bundles, idle)})
    after.overlapping = known | dict.fromkeys(sorted(members_of(overlaps)), round_end_ms)
    confirmed = {
        bundle: seen
        for bundle, others in overlaps.items()
        if bundle in known and (seen := [other for other in others if other in known])
    }
    covered = {bundle for bundle, others in overlaps.items() if covers(others, bundle)}
    return Compared(confirmed, covered.union(confirmed), _returned(before, after, old, was_listed, is_absent))


def _was_listed(before: Fleet) -> Bools:
    """Whether the last snapshot listed each bundle, (b + 1,); the last one stands for those that were not known."""
    count = before.listed_count
    was_listed = np.zeros(len(before.owner) + 1, dtype=np.bool_)
    was_listed[:count] = True
    if before.has_absent:
        was_listed[:count] = before.last_ms[:count] >= before.broker_last_ms[before.owner[:count]]
    return was_listed


def _returned(
    before: Fleet, after: Fleet, old: Ints, was_listed: Bools, is_absent: Bools
) -> dict[str, list[str]]:
    """By broker, bundles with traffic that its last report left out and that it lists again."""
    rows = np.flatnonzero((old >= 0) & ~was_listed[old] & ~is_absent)
    returned = defaultdict(list)
    for row, known in zip(rows.tolist(), old[rows].tolist(), strict=True):
        broker = after.brokers[int(after.owner[row])]
        owner = int(before.owner[known])
        if owner == NOBODY or before.brokers[owner] != broker or not before.averages[known].any():
            continue
        if after.bundles[row] in after.overlapping:
            continue
        if before.last_ms[known] < before.broker_last_ms[owner]:  # else the broker sent no report
            returned[broker].append(after.bundles[row])
    return returned


def _suspects(after: Fleet, overlapping: Collection[str], is_listed: Bools, *, is_new: Bools) -> Ints:
    """Rows of listed bundles that may overlap: of namespaces that had overlaps, or have bundles that the last snapshot did not list."""
    had = {namespace_of(bundle) for bundle in overlapping}
    is_suspect = np.array([name in had for name in after.namespaces], dtype=np.bool_)
    namespaces = after.namespace[: len(is_listed)]
    is_suspect[namespaces[is_new]] = True
    return np.flatnonzero(is_listed & is_suspect[namespaces])


def _carried(fleet: Fleet, rows: Ints, traffic: Floats) -> dict[str, Carried]:
    """By broker, what these rows carry with this traffic, (k, 4); the sums are the same on every processor."""
    columns = np.column_stack([traffic[:, :2].sum(axis=1), traffic[:, 2:].sum(axis=1), fleet.counts[rows]])
    sums = np.zeros((len(fleet.brokers), columns.shape[1]))
    np.add.at(sums, fleet.owner[rows], columns)
    return {
        fleet.brokers[broker]: Carried(float(messages), float(volume), int(topics), int(sessions))
        for broker in np.unique(fleet.owner[rows]).tolist()
        for messages, volume, topics, sessions in [sums[broker].tolist()]
    }
