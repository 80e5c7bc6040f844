"""ThresholdShedder: shed a broker whose weighted usage, smoothed over rounds, stands above the mean of all.

From Pulsar: class ``ThresholdShedder`` of 4.2.4, with its optional lower-boundary step (PIP-220's cases). It names no
destination: a placement chooses.

Known to do badly: smoothed history can point at a broker that has already recovered (#18173; see
``require_current_above_mean``); it does not see one cold broker among warm ones without lower-boundary shedding
(#18215); and because it always takes at least one bundle, a single hot bundle wanders (#12604).

Where ours differs: brokers are taken from the highest usage, ties by name, and the mean is an exactly rounded sum,
so nothing depends on a hash map's order. With one broker nothing is shed (Pulsar does not start a shedder then), but its
history moves on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.bounds import NotNegative, Ratio, check_bounds
from policies.columns import Bools, Code, Codes, Floats, Ints, first_code
from policies.shedding.contract import (
    Evidence,
    Examined,
    Headline,
    OutcomeText,
    Proposal,
    SheddingPolicy,
    Stand,
    keep_pending,
)
from policies.shedding.plan import (
    FEWEST_BROKERS,
    MARGIN_RATIO,
    PlanBuilder,
    choose_biggest_first,
    examine_nothing,
)
from policies.shedding.view import NOBODY, BrokerTable, RoundView

NAME: Final = "threshold-shedder"


class Outcome(Code):
    """What became of a row that was examined."""

    FIRED = 0
    BELOW_THRESHOLD = 1
    BELOW_MIN_TRAFFIC = 2
    SOLE_BUNDLE = 3
    ALREADY_RECOVERED = 4
    CLUSTER_IDLE = 5
    SOLE_BROKER = 6


OUTCOMES = Outcome.names()

TRIGGERS = ("", "upper-boundary", "lower-boundary")
UPPER, LOWER = 1, 2

LOWER_BOUNDARY_MARGIN_RATIO = 0.5
"""Share of the threshold moved by the lower-boundary step. Pulsar: ``LOWER_BOUNDARY_THRESHOLD_MARGIN``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdShedderSettings:
    """When a broker is shed, and how much then moves."""

    threshold_points: NotNegative = 10.0
    """Percentage points above the mean from which a broker is shed.
    Pulsar: ``loadBalancerBrokerThresholdShedderPercentage``."""
    history_ratio: Ratio = 0.9
    """Weight of the past in the smoothed usage, one step a round: 80 then 50 gives 77.
    Pulsar: ``loadBalancerHistoryResourcePercentage``."""
    min_unload_bytes_per_s: NotNegative = 10485760.0
    """Throughput below which a move is not worth a reconnect.
    Pulsar: ``loadBalancerBundleUnloadMinThroughputThreshold`` (there in MiB/s)."""
    lower_boundary_shedding: bool = False
    """When no broker stands above the mean but one is far below it, shed the busiest broker a little.
    Pulsar: ``lowerBoundarySheddingEnabled``."""
    require_current_above_mean: bool = False
    """Shed a broker only while its present usage, without history, exceeds the mean of present usages.
    Not in Pulsar; off, so that decisions are the same as Pulsar's."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdShedderMemory:
    """Smoothed usage ratio of each broker, by name."""

    history_ratio: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Usage:
    """Smoothed usage of the brokers present and its mean."""

    history: Floats
    mean: float


def plan(
    view: RoundView, memory: ThresholdShedderMemory, settings: ThresholdShedderSettings
) -> Proposal[ThresholdShedderMemory]:
    """Decide one round; brokers that are not in the view keep their history."""
    brokers = view.brokers
    if len(brokers) == 0:
        return Proposal(PlanBuilder().build(examine_nothing(OUTCOMES, TRIGGERS)), memory)
    before = np.array([memory.history_ratio.get(name, math.nan) for name in brokers.names])
    usage = _smooth(before, brokers.usage_ratio, settings.history_ratio)
    builder = PlanBuilder()
    examined = _shed_above_mean(view, usage, settings, builder)
    if settings.lower_boundary_shedding and builder.is_empty and usage.mean != 0:
        usage = _smooth(usage.history, brokers.usage_ratio, settings.history_ratio)
        examined = _shed_busiest(view, usage, settings, examined, builder)
    remembered = dict(memory.history_ratio)
    remembered.update(zip(brokers.names, usage.history.tolist(), strict=True))
    return Proposal(builder.build(examined), ThresholdShedderMemory(history_ratio=remembered))


def _smooth(before: Floats, current: Floats, history_ratio: float) -> _Usage:
    after = np.where(np.isnan(before), current, before * history_ratio + (1 - history_ratio) * current)
    return _Usage(after, math.fsum(after.tolist()) / len(after))


def _shed_above_mean(
    view: RoundView, usage: _Usage, settings: ThresholdShedderSettings, builder: PlanBuilder
) -> Examined:
    brokers = view.brokers
    threshold = settings.threshold_points / 100.0
    to_move = brokers.bytes_per_s * (usage.history - usage.mean - threshold + MARGIN_RATIO)
    tests = [
        (np.full(len(brokers), len(brokers) < FEWEST_BROKERS), Outcome.SOLE_BROKER),
        (np.full(len(brokers), usage.mean == 0), Outcome.CLUSTER_IDLE),
        (usage.history < usage.mean + threshold, Outcome.BELOW_THRESHOLD),
        (~_is_current_above_mean(brokers, settings), Outcome.ALREADY_RECOVERED),
        (to_move < settings.min_unload_bytes_per_s, Outcome.BELOW_MIN_TRAFFIC),
        (brokers.listed_bundle_counts <= 1, Outcome.SOLE_BUNDLE),
    ]
    outcome = first_code(tests, Outcome.FIRED)
    order = np.argsort(-usage.history, kind="stable")
    trigger = np.where(outcome == Outcome.FIRED, UPPER, 0).astype(np.int8)
    examined = _examine(
        brokers, usage, settings, order=order, outcome=outcome, trigger=trigger, to_move=to_move
    )
    choose_biggest_first(view, builder, examined, to_move, np.flatnonzero(examined.outcome == Outcome.FIRED))
    return examined


def _shed_busiest(
    view: RoundView,
    usage: _Usage,
    settings: ThresholdShedderSettings,
    first: Examined,
    builder: PlanBuilder,
) -> Examined:
    """The lower-boundary step: returns the explanation that replaces ``first`` where it acted or came close.

    It keeps the order of ``first``, which the bundles tried so far point into. If the busiest broker has fired already, it
    had nothing movable, so there is nothing to try again.
    """
    brokers = view.brokers
    threshold = settings.threshold_points / 100.0
    floor = usage.mean - threshold
    sheddable = (usage.history > floor) & (brokers.listed_bundle_counts > 1)
    if not sheddable.any() or not (usage.history < floor).any():
        return first
    busiest = int(np.argmax(np.where(sheddable, usage.history, -np.inf)))
    if not _is_current_above_mean(brokers, settings)[busiest]:
        return first
    outcome, trigger = np.empty_like(first.outcome), np.empty_like(first.trigger)
    outcome[first.high], trigger[first.high] = first.outcome, first.trigger
    if outcome[busiest] == Outcome.FIRED:
        return first
    to_move = brokers.bytes_per_s * threshold * LOWER_BOUNDARY_MARGIN_RATIO
    fires = not settings.min_unload_bytes_per_s > to_move[busiest]
    outcome[busiest] = Outcome.FIRED if fires else Outcome.BELOW_MIN_TRAFFIC
    trigger[busiest] = LOWER
    examined = _examine(
        brokers, usage, settings, order=first.high, outcome=outcome, trigger=trigger, to_move=to_move
    )
    if fires:
        choose_biggest_first(view, builder, examined, to_move, np.flatnonzero(first.high == busiest))
    return examined


def _is_current_above_mean(brokers: BrokerTable, settings: ThresholdShedderSettings) -> Bools:
    if not settings.require_current_above_mean:
        return np.ones(len(brokers), dtype=np.bool_)
    mean = math.fsum(brokers.usage_ratio.tolist()) / len(brokers)
    return brokers.usage_ratio > mean


def _examine(
    brokers: BrokerTable,
    usage: _Usage,
    settings: ThresholdShedderSettings,
    *,
    order: Ints,
    outcome: Codes,
    trigger: Codes,
    to_move: Floats,
) -> Examined:
    count = len(order)
    return Examined(
        high=order,
        low=np.full(count, NOBODY, dtype=np.int64),
        outcome=outcome[order],
        outcomes=OUTCOMES,
        trigger=trigger[order],
        triggers=TRIGGERS,
        evidence={
            "usage_points": 100.0 * brokers.usage_ratio[order],
            "history_points": 100.0 * usage.history[order],
            "mean_points": np.full(count, 100.0 * usage.mean),
            "threshold_points": np.full(count, settings.threshold_points),
            "broker_bytes_per_s": brokers.bytes_per_s[order],
            "to_move_bytes_per_s": to_move[order],
        },
    )


def _describe_source(source: str, partner: str | None, evidence: Evidence) -> str:  # noqa: ARG001  compared with the mean
    return (
        f"{source} is at {evidence['history_points']:.1f} % over time ({evidence['usage_points']:.1f} % now) and the "
        f"mean is {evidence['mean_points']:.1f} %, with {evidence['threshold_points']:g} points allowed"
    )


def _stand(evidence: Evidence) -> Stand:
    return Stand(
        difference_points=float(evidence["history_points"]) - float(evidence["mean_points"]),
        threshold_points=float(evidence["threshold_points"]),
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=ThresholdShedderSettings,
    memory=ThresholdShedderMemory,
    plan=plan,
    settle=keep_pending,
    outcomes=OUTCOMES,
    outcome_texts={
        "already-recovered": OutcomeText(
            meaning="history is high, the present is not",
            remedy="its history is high and the present is not: nothing has to move",
        )
    },
    calm_outcomes=("below-threshold", "already-recovered", "cluster-idle", "sole-broker"),
    triggers=TRIGGERS,
    sentences={TRIGGERS[UPPER]: _describe_source, TRIGGERS[LOWER]: _describe_source},
    headline=Headline(meaning="its smoothed usage less the mean", stand_of=_stand),
)
