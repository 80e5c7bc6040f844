"""Which of the brokers that list a bundle owns it.

After a move the reports of two brokers have the bundle for a while, and a report can list bundles that its broker does not have. A
broker that goes on to list a bundle with traffic stays its owner; but no bundle may stick to a broker because of what was once listed.
"""

from collections.abc import Mapping

import numpy as np

from policies.columns import Bools, Ints
from state.pulsar.listings import Listings, first_rows, match, pick
from state.pulsar.memory import NOBODY, Fleet


def owner_rows(
    listings: Listings, before: Fleet, names: list[str], destinations: Mapping[str, str | None]
) -> Ints:
    """Row of the listing that owns each bundle, ascending by (broker, bundle).

    Of the brokers ``names`` that list the same bundle, the first of these owns it: the destination of an unload of ours that begins to
    list it; one that has traffic of it; one that has topics or clients of it; its present owner, or one that began to list it later
    but not in this round; the one that began last, with the greater id.
    """
    count = len(listings.bundles)
    rows = first_rows(count)
    if listings.is_as_before or len(set(listings.bundles)) == count:
        return rows
    last_row = dict(zip(listings.bundles, range(count), strict=True))
    last = np.fromiter(map(last_row.__getitem__, listings.bundles), dtype=np.int64, count=count)
    is_contested = np.zeros(count, dtype=np.bool_)
    is_contested[last[last != rows]] = True
    is_contested = is_contested[last]
    contested = rows[is_contested]
    claims = _claims(listings, contested, before, names, destinations)
    order = contested[np.lexsort((*claims, last[contested]))]
    is_best = np.append(last[order[1:]] != last[order[:-1]], True)
    return np.sort(np.concatenate([rows[~is_contested], order[is_best]]))


def _claims(
    listings: Listings,
    rows: Ints,
    before: Fleet,
    names: list[str],
    destinations: Mapping[str, str | None],
) -> tuple[Ints | Bools, ...]:
    """What speaks for each of these listings to own its bundle, the weightiest last.

    A former owner that lists the bundle again has to wait until the present one lists it no more, or without traffic. A listing
    without statistics is one with traffic where the present owner had some.
    """
    bundles, broker, run_start_ms = (
        pick(listings.bundles, rows),
        listings.broker[rows],
        listings.run_start_ms[rows],
    )
    old, places = match(before.bundles, bundles), np.append(match(names, before.brokers), NOBODY)
    owner, former = (places[np.append(column, NOBODY)[old]] for column in (before.owner, before.former))
    is_owner, is_new = broker == owner, run_start_ms == listings.time_ms[rows]
    had_traffic = np.append(before.averages.any(axis=1), False)[old]
    has_traffic = np.where(
        listings.has_traffic[rows], listings.traffic[rows].any(axis=1), is_owner & had_traffic
    )
    carries = np.where(has_traffic, 2, listings.counts[rows].any(axis=1))
    is_settled = is_owner | (~is_new & (broker != former) & (carries > 0))
    awaited = match(names, [destinations.get(bundle) or "" for bundle in bundles])
    return broker, run_start_ms, is_settled, carries, is_new & (broker == awaited)
