"""Which brokers list which bundle in a round, since when, and which of them owns it."""

from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from policies.columns import Bools, Floats, Ints
from state.pulsar.memory import Fleet, WaitingReport


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
    is_as_before: bool
    """Whether the same brokers list the same bundles as in the round before, in the order of the fleet's rows."""


def listings_of(
    before: Fleet, reports: dict[str, WaitingReport], names: list[str], max_age_ms: int
) -> Listings:
    bundles: list[str] = []
    for name in names:
        bundles.extend(reports[name].report.bundles)
    counts = [len(reports[name].report.bundles) for name in names]
    times = np.array([reports[name].time_ms for name in names], dtype=np.int64)
    is_as_before = (
        names == before.brokers
        and bool((times - before.broker_last_ms <= max_age_ms).all())
        and np.array_equal(before.starts, np.cumsum([0, *counts]))
        and np.array_equal(before.listed_rows, first_rows(len(bundles)))
        and before.bundle_names.begin_with(bundles)
    )
    return Listings(
        broker=np.repeat(np.arange(len(names), dtype=np.int64), counts),
        bundles=bundles,
        run_start_ms=before.run_start_ms if is_as_before else _run_starts(before, reports, names, max_age_ms),
        time_ms=np.repeat(times, counts),
        traffic=np.concatenate([reports[name].report.traffic for name in names]),
        has_traffic=np.concatenate([reports[name].report.has_traffic for name in names]),
        counts=np.concatenate([reports[name].report.counts for name in names]),
        is_as_before=is_as_before,
    )


def first_rows(count: int) -> Ints:
    """The first ``count`` rows, in order."""
    return np.arange(count, dtype=np.int64)


def _run_starts(before: Fleet, reports: dict[str, WaitingReport], names: list[str], max_age_ms: int) -> Ints:
    """When each listing of the snapshot began."""
    known = {name: row for row, name in enumerate(before.brokers)}
    runs = []
    for name in names:
        waiting, row = reports[name], known.get(name)
        if row is not None and waiting.time_ms - int(before.broker_last_ms[row]) > max_age_ms:
            row = None
        runs.append(_run_starts_at(before, row, waiting))
    return np.concatenate(runs)


def _run_starts_at(before: Fleet, row: int | None, waiting: WaitingReport) -> Ints:
    """When each listing of a broker began: kept where its last snapshot report listed the bundle too."""
    bundles = waiting.report.bundles
    if row is None:
        return np.full(len(bundles), waiting.time_ms, dtype=np.int64)
    entries = slice(int(before.starts[row]), int(before.starts[row + 1]))
    begun = before.run_start_ms[entries]
    listed = pick(before.bundles, before.listed_rows[entries])
    if listed == bundles:
        return begun
    kept = dict(zip(listed, begun.tolist(), strict=True))
    return np.array([kept.get(bundle, waiting.time_ms) for bundle in bundles], dtype=np.int64)


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
