"""How a policy builds its plan: the bundles it tries, heaviest first, and the choices it collects.

All of it is columns, because a thousand brokers are examined each round and only a hundred are ever shown.
"""

from dataclasses import dataclass

import numpy as np

from policies.columns import Codes, Floats, Ints, empty_rows
from policies.shedding.contract import BundleOutcome, Examined, SheddingPlan
from policies.shedding.view import NOBODY, BundleTable, RoundView

FEWEST_BROKERS = 2
"""Pulsar starts no shedder with fewer: a bundle has nowhere to go. It matters to policies that do not compare brokers."""


def examine_nothing(outcomes: tuple[str, ...], triggers: tuple[str, ...]) -> Examined:
    """What a policy examines in a fleet without brokers."""
    return Examined(
        high=empty_rows(),
        low=empty_rows(),
        outcome=np.zeros(0, dtype=np.int8),
        outcomes=outcomes,
        trigger=np.zeros(0, dtype=np.int8),
        triggers=triggers,
        evidence={},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Every bundle of the brokers that fire, broker by broker in the policy's order; t rows."""

    rows: Ints
    """Bundle rows, (t,); ascending within a broker until ``heaviest_first``."""
    examined: Ints
    """Row of ``examined`` each belongs to, ascending, (t,)."""
    ends: Ints
    """Where each broker's rows end, ascending."""

    def heaviest_first(self, traffic: Floats) -> tuple["Candidates", Floats]:
        """The same, each broker's heaviest bundle first (ties by name), with their traffic; ``traffic`` is (t,)."""
        order, lightness, start = np.empty_like(self.rows), -traffic, 0
        for end in self.ends.tolist():  # one sort per broker takes a third of the time of one over both keys
            order[start:end] = lightness[start:end].argsort(kind="stable") + start
            start = end
        return Candidates(rows=self.rows[order], examined=self.examined, ends=self.ends), traffic[order]


def candidates(bundles: BundleTable, *, fired: Ints, brokers: Ints) -> Candidates:
    """Bundles of each of ``brokers`` (rows of the table); ``fired`` are their rows of ``examined``, ascending."""
    firsts = bundles.starts[brokers]
    counts = bundles.starts[brokers + 1] - firsts
    ends = np.cumsum(counts)
    rows = np.arange(counts.sum(), dtype=np.int64) + np.repeat(firsts - (ends - counts), counts)
    return Candidates(rows=rows, examined=np.repeat(fired, counts), ends=ends)


class PlanBuilder:
    """Collects the choices of the brokers that fire, in the policy's order; not thread-safe, used once."""

    def __init__(self) -> None:
        self._tried: list[Candidates] = []
        self._outcomes: list[Codes] = []
        self._destinations: list[Ints] = []
        self._swap_groups: list[Ints] = []

    def add(
        self, tried: Candidates, *, outcomes: Codes, destinations: Ints, swap_groups: Ints | None = None
    ) -> None:
        """Take candidates in the order tried, (t,) each; those ``ACTED`` become unloads to ``destinations``.

        ``swap_groups`` are as in ``SheddingPlan.unload_swap_group``; None: each bundle is a group of its own.
        """
        self._tried.append(tried)
        self._swap_groups.append(
            (tried.rows if swap_groups is None else swap_groups)[outcomes == BundleOutcome.ACTED]
        )
        self._outcomes.append(outcomes)
        self._destinations.append(destinations[outcomes == BundleOutcome.ACTED])

    @property
    def is_empty(self) -> bool:
        """Whether nothing was chosen so far."""
        return not any(len(destinations) for destinations in self._destinations)

    def build(self, examined: Examined) -> SheddingPlan:
        """The plan of all that was added."""
        rows = np.concatenate([empty_rows(), *(tried.rows for tried in self._tried)])
        by = np.concatenate([empty_rows(), *(tried.examined for tried in self._tried)])
        outcomes = np.concatenate([np.zeros(0, dtype=np.int8), *self._outcomes])
        return SheddingPlan(
            examined=examined,
            unload_rows=rows[outcomes == BundleOutcome.ACTED],
            unload_destinations=np.concatenate([empty_rows(), *self._destinations]),
            unload_examined=by[outcomes == BundleOutcome.ACTED],
            unload_swap_group=np.concatenate([empty_rows(), *self._swap_groups]),
            tried_rows=rows,
            tried_outcomes=outcomes,
            tried_examined=by,
        )


MARGIN_RATIO = 0.05
"""Share of a broker's throughput moved beyond the excess, so that it ends clearly below the threshold.
Pulsar: ``ADDITIONAL_THRESHOLD_PERCENT_MARGIN`` of both classes."""


def choose_biggest_first(
    view: RoundView, builder: PlanBuilder, examined: Examined, to_move: Floats, fired: Ints
) -> None:
    """Pick the biggest bundles of the brokers that fired (rows of ``examined``) until ``to_move``, bytes/s by broker row, is covered.

    From Pulsar 4.2.4: the same loop stands in ThresholdShedder and OverloadShedder. At least one bundle is taken where one is
    movable, whatever its size; the last one taken may overshoot.
    """
    bundles, brokers = view.bundles, examined.high[fired]
    tried = candidates(bundles, fired=fired, brokers=brokers)
    tried, traffic = tried.heaviest_first(bundles.bytes_per_s[tried.rows])
    outcomes = np.where(bundles.movable[tried.rows], BundleOutcome.NEED_MET, BundleOutcome.MASKED).astype(
        np.int8
    )
    movable = np.flatnonzero(outcomes == BundleOutcome.NEED_MET)
    loads = traffic[movable].tolist()
    by = tried.examined[movable]
    starts, ends = np.searchsorted(by, fired, side="left"), np.searchsorted(by, fired, side="right")
    for need, start, end in zip(to_move[brokers].tolist(), starts.tolist(), ends.tolist(), strict=True):
        outcomes[movable[start : start + _needed_count(loads, start, end, need)]] = BundleOutcome.ACTED
    builder.add(tried, outcomes=outcomes, destinations=np.full(len(outcomes), NOBODY, dtype=np.int64))


def _needed_count(loads: list[float], start: int, end: int, need: float) -> int:
    """How many loads from ``start`` on, before ``end``, it takes to reach the need; at least one if there is one."""
    marked = 0.0
    for place in range(start, end):
        if place > start and not marked < need:
            return place - start
        marked += loads[place]
    return end - start
