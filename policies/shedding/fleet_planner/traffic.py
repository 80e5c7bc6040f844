"""Traffic as the two figures that explain each resource, and bundles on their way to another broker.

CPU and declared capacity follow messages and bytes; bandwidth follows bytes in and bytes out. Direct memory follows caches, so no
traffic explains it.
"""

from bisect import bisect_left
from typing import Final

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.shedding.view import RoundView
from policies.usage import RESOURCES

CPU: Final = RESOURCES.index("cpu")
_BY_KIND: Final = [CPU, RESOURCES.index("capacity")]
"""Resources that follow messages and bytes."""
_BY_WAY: Final = [RESOURCES.index("bandwidth-in"), RESOURCES.index("bandwidth-out")]
"""Resources that follow bytes in and bytes out."""


def figures_of(rates: Floats) -> Floats:
    """The figures, (k, resources, 2), of rates, (k, 4); sums of at most two values, so that they are the same on every processor."""
    found = np.zeros((len(rates), len(RESOURCES), 2))
    found[:, _BY_KIND, 0] = (rates[:, 0] + rates[:, 1])[:, None]
    found[:, _BY_KIND, 1] = (rates[:, 2] + rates[:, 3])[:, None]
    found[:, _BY_WAY] = rates[:, None, 2:]
    return found


def owned_rates(view: RoundView) -> Floats:
    """Running averages of the traffic of each broker's bundles, in the order of their rows, (n, 4)."""
    starts = view.bundles.starts
    found = np.zeros((len(view.brokers), 4))
    has_some = np.diff(starts) > 0
    if has_some.any():  # rows are added one after the other, so that the sum is the same on every processor
        found[has_some] = np.add.reduceat(view.bundles.rates, starts[:-1][has_some], axis=0)
    return found


def common_change(view: RoundView, owned: Floats, settling: Bools) -> Floats:
    """How the present traffic differs from the averages at the median broker, as a factor of each rate, (4,).

    Where the traffic of all brokers rises or falls at once, none stands out. If two brokers are in the middle, the one that changed
    less counts.
    """
    found = np.ones(4)
    for first, reported in ((0, view.brokers.messages_per_s), (2, view.brokers.bytes_per_s)):
        total = owned[:, first] + owned[:, first + 1]
        counts = (total > 0) & (reported > 0) & ~settling
        if not counts.any():
            continue
        factors = np.sort(reported[counts] / total[counts])
        middle = factors[[(len(factors) - 1) // 2, len(factors) // 2]]
        found[first : first + 2] = middle[np.argmin(np.maximum(middle, 1.0 / middle))]
    return found


def expect_moves(view: RoundView, rates: Floats) -> tuple[Floats, Bools]:
    """Traffic of each broker once everything in flight has arrived, (n, 4), and which brokers it concerns, (n,).

    A bundle whose destination Pulsar chooses is counted where it still is.
    """
    after, concerned = rates.copy(), np.zeros(len(rates), dtype=np.bool_)
    moves = view.in_flight()
    row_of = {name: row for row, name in enumerate(view.brokers.names)} if moves else {}
    for each in moves:
        source, destination = row_of.get(each.source), row_of.get(each.destination or "")
        for broker in (source, destination):
            if broker is not None:
                concerned[broker] = True
        if destination is None:
            continue
        bundle = None if source is None else find_bundle(view, source, each.bundle)
        if bundle is not None and source is not None:
            after[source] = np.maximum(after[source] - view.bundles.rates[bundle], 0.0)
            after[destination] += view.bundles.rates[bundle]
        elif each.traffic is not None:  # it has left its source, and its destination has not reported since
            half = np.array(each.traffic) / 2
            after[destination] += half.repeat(2)
    return after, concerned


def find_bundle(view: RoundView, broker: int, name: str) -> int | None:
    """Row of a broker's bundle; None where it is not there."""
    rows = view.bundles.rows_of(broker)
    row = bisect_left(view.bundles.names, name, rows.start, rows.stop)
    return row if row < rows.stop and view.bundles.names[row] == name else None


def movable_rows(view: RoundView, broker: int) -> Ints:
    """Bundle rows of a broker that may be moved."""
    rows = view.bundles.rows_of(broker)
    found: Ints = np.flatnonzero(view.bundles.movable[rows]) + rows.start
    return found


def present_rates(view: RoundView, rows: Ints) -> Floats:
    """Traffic of bundles in this round alone, (k, 4); averages where only these are known."""
    return view.bundles.rates[rows] if view.present_rates is None else view.present_rates(rows)
