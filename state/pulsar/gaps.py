"""What the reports of a round leave out or list twice, seen against the round before.

A bundle that is left out, or listed without its traffic, still loads its broker; of ranges that overlap, only the finer ones do. What
the brokers report is mended by that for a policy that keeps absent bundles. What a person should know is found for all policies.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from policies.columns import Bools, Floats, Ints
from state.events import namespace_of
from state.pulsar.listings import Listings, find, first_rows
from state.pulsar.memory import NOBODY, Fleet
from state.pulsar.ranges import find_overlaps, members_of


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
    overlaps: Collection[str],
) -> dict[str, Any]:
    """Fields of ``Advanced`` that complete the reports, for a policy that keeps absent bundles; remembers the counts for the next round."""
    count = len(rows)
    after.counts = counts if count == len(after.owner) else np.concatenate([counts, after.counts[count:]])
    silent = uncounted = first_rows(0)
    if not has_traffic.all():
        silent = np.flatnonzero(~has_traffic[rows] & (after.samples[:count] > 0))
    if overlaps:
        uncounted = find(after.bundles[:count], overlaps)
    silent = np.setdiff1d(silent, uncounted)
    return {
        "unreported": _carried(after, silent, after.averages[silent]),
        "uncounted_rows": uncounted,
        "twice": _carried(after, uncounted, reported[uncounted]),
    }


def compare(
    before: Fleet, after: Fleet, listings: Listings, *, rows: Ints, old: Ints
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Ranges that overlap in this snapshot as in the last one, and bundles that are back; remembers what this snapshot lists."""
    after.listed_count, after.has_absent = len(rows), bool(listings.is_absent.any())
    if listings.is_as_before:
        suspects, returned = before.overlapping, {}
    else:
        was_listed, is_absent = _was_listed(before), listings.is_absent[rows]
        returned = _returned(before, after, old, was_listed, is_absent)
        suspects = _suspects(before, after, ~is_absent, is_new=~was_listed[old])
    overlaps = find_overlaps(suspects)
    after.overlapping = sorted(members_of(overlaps))
    last = set(before.overlapping)
    confirmed = {
        wide: [each for each in finer if each in last] for wide, finer in overlaps.items() if wide in last
    }
    return {wide: finer for wide, finer in confirmed.items() if finer}, returned


def _was_listed(before: Fleet) -> Bools:
    """Whether the last snapshot listed each bundle, (b + 1,); the last one stands for those that were not known."""
    count = before.listed_count
    found = np.zeros(len(before.owner) + 1, dtype=np.bool_)
    found[:count] = True
    if before.has_absent:
        found[:count] = before.last_ms[:count] >= before.broker_last_ms[before.owner[:count]]
    return found


def _returned(
    before: Fleet, after: Fleet, old: Ints, was_listed: Bools, is_absent: Bools
) -> dict[str, list[str]]:
    """By broker, bundles with traffic that its last report left out and that it lists again."""
    rows = np.flatnonzero((old >= 0) & ~was_listed[old] & ~is_absent)
    found = defaultdict(list)
    for row, known in zip(rows.tolist(), old[rows].tolist(), strict=True):
        broker = after.brokers[int(after.owner[row])]
        owner = int(before.owner[known])
        if owner == NOBODY or before.brokers[owner] != broker or not before.averages[known].any():
            continue
        if before.last_ms[known] < before.broker_last_ms[owner]:  # else the broker sent no report
            found[broker].append(after.bundles[row])
    return found


def _suspects(before: Fleet, after: Fleet, is_listed: Bools, *, is_new: Bools) -> list[str]:
    """Listed bundles that may overlap: those of namespaces that had overlaps, or have bundles that the last snapshot did not list."""
    had = {namespace_of(bundle) for bundle in before.overlapping}
    is_suspect = np.array([name in had for name in after.namespaces], dtype=np.bool_)
    namespaces = after.namespace[: len(is_listed)]
    is_suspect[namespaces[is_new]] = True
    names = after.bundles
    return [names[row] for row in np.flatnonzero(is_listed & is_suspect[namespaces]).tolist()]


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
