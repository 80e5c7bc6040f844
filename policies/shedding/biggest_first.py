"""The biggest bundles of a broker, until what it should lose is covered: how ThresholdShedder and OverloadShedder pick.

From Pulsar 4.2.4: the same loop stands in both classes. At least one bundle is taken where one is movable, whatever
its size; the last one taken may overshoot.
"""

import numpy as np

from policies.columns import Floats, Ints
from policies.shedding.contract import ACTED, MASKED, NEED_MET, Examined
from policies.shedding.plan import PlanBuilder, candidates
from policies.shedding.view import NOBODY, RoundView

MARGIN_RATIO = 0.05
"""Share of a broker's throughput moved beyond the excess, so that it ends clearly below the threshold.
Pulsar: ``ADDITIONAL_THRESHOLD_PERCENT_MARGIN`` of both classes."""


def choose_biggest_first(
    view: RoundView, builder: PlanBuilder, examined: Examined, to_move: Floats, fired: Ints
) -> None:
    """Pick for the brokers that fired (rows of ``examined``); ``to_move`` is bytes/s by broker row, (n,)."""
    bundles, brokers = view.bundles, examined.high[fired]
    tried = candidates(bundles, fired=fired, brokers=brokers)
    tried, traffic = tried.heaviest_first(bundles.bytes_per_s[tried.rows])
    outcomes = np.where(bundles.movable[tried.rows], NEED_MET, MASKED).astype(np.int8)
    movable = np.flatnonzero(outcomes == NEED_MET)
    loads = traffic[movable].tolist()
    by = tried.examined[movable]
    starts, ends = np.searchsorted(by, fired, side="left"), np.searchsorted(by, fired, side="right")
    for need, start, end in zip(to_move[brokers].tolist(), starts.tolist(), ends.tolist(), strict=True):
        outcomes[movable[start : start + _needed_count(loads, start, end, need)]] = ACTED
    builder.add(tried, outcomes=outcomes, destinations=np.full(len(outcomes), NOBODY, dtype=np.int64))


def _needed_count(loads: list[float], start: int, end: int, need: float) -> int:
    """How many loads from ``start`` on, before ``end``, it takes to reach the need; at least one if there is one."""
    marked = 0.0
    for place in range(start, end):
        if place > start and not marked < need:
            return place - start
        marked += loads[place]
    return end - start
