"""UniformLoadShedder: bring the broker with the most traffic closer to the one with the least, by rates alone.

From Pulsar: class ``UniformLoadShedder`` of 4.2.4. It looks at no resource, so it also works where CPU and bandwidth
are those of a host that several brokers share. It has no memory and names no destination: a placement chooses.

Known to do badly: one broker a round sheds; whether 50 % more is much depends on the idlest broker alone, so an empty
one keeps it busy; a rate difference too small to be worth a move hides a throughput difference that would be; bundles
without traffic always fit, so all of them move unless ``max_unload_bundles_count`` says otherwise; and above
2147483647 (of messages/s or bytes/s) on every broker the idlest is assumed to be at that value, so that a balanced fleet
can fire.

Where ours differs: among equal brokers and among equal bundles the first by name is taken; with one broker nothing is
shed (Pulsar does not start a shedder then).
"""

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from annotated_types import Predicate

from policies.bounds import NotNegative, OffAtZero, Ratio, check_bounds
from policies.columns import Codes, Floats
from policies.shedding.contract import (
    BundleOutcome,
    Evidence,
    Examined,
    Headline,
    NoMemory,
    OutcomeText,
    Proposal,
    SheddingPolicy,
    keep_pending,
)
from policies.shedding.plan import FEWEST_BROKERS, PlanBuilder, candidates, examine_nothing
from policies.shedding.view import NOBODY, BrokerTable, RoundView

NAME: Final = "uniform-load-shedder"

OUTCOMES = ("fired", "below-threshold", "below-min-traffic", "sole-bundle", "not-busiest", "sole-broker")
FIRED, BELOW_THRESHOLD, BELOW_MIN_TRAFFIC, SOLE_BUNDLE, NOT_BUSIEST, SOLE_BROKER = range(len(OUTCOMES))
TRIGGERS = ("", "rate-difference", "throughput-multiple")
BY_RATE, BY_THROUGHPUT = 1, 2

LARGEST_INT = 2147483647.0
"""Where Pulsar's search for the idlest begins (``Integer.MAX_VALUE``), and the most it can ask a broker to lose."""
NEXT_TO_NOTHING = 1e-6
"""Traffic at or below which the idlest broker counts as carrying 1, because loads are divided by it. Pulsar: ``EPS``."""
NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLoadShedderSettings:
    """When the busiest broker sheds, and how much then moves."""

    rate_difference_percent: OffAtZero = 50.0
    """Message rate of the busiest broker above the idlest's, in percent of the idlest's, from which it sheds
    (strictly above). 0 = off. Pulsar: ``loadBalancerMsgRateDifferenceShedderThreshold``."""
    throughput_multiple: OffAtZero = 4.0
    """Throughput of the busiest broker as a multiple of the idlest's from which it sheds (strictly above); looked at
    only where the rates do not differ enough. 0 = off.
    Pulsar: ``loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold``."""
    max_unload_ratio: Ratio = 0.2
    """Share of the difference to move in one round; above a half the two change places.
    Pulsar: ``maxUnloadPercentage`` (0.5 from 5.0)."""
    max_unload_bundles_count: Annotated[
        int, Predicate(lambda count: count == NO_LIMIT or count >= 1), f"1 or more, or {NO_LIMIT} (no limit)"
    ] = NO_LIMIT
    """Largest number of bundles of one round; -1 = no limit. Pulsar: ``maxUnloadBundleNumPerShedding``."""
    min_unload_messages_per_s: NotNegative = 1000.0
    """Smallest move by message rate that is worth a reconnect. Pulsar: ``minUnloadMessage``."""
    min_unload_bytes_per_s: NotNegative = 1048576.0
    """The same for throughput. Pulsar: ``minUnloadMessageThroughput``."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """One measure of every broker's traffic, and the two ends that are compared."""

    load: Floats
    busiest: int
    idlest: int
    lowest: float
    """Traffic of the idlest as it is compared: at most ``LARGEST_INT``, 1 for next to nothing."""

    @property
    def difference_percent(self) -> Floats:
        """How far each broker stands above the idlest, in percent of it, (n,)."""
        return (self.load - self.lowest) * 100.0 / self.lowest

    @property
    def multiple(self) -> Floats:
        """Each broker's traffic as a multiple of the idlest's, (n,)."""
        return self.load / self.lowest

    def excess_load(self, ratio: float) -> Floats:
        """What each broker would lose, whole units as in Pulsar, (n,)."""
        whole: Floats = np.trunc(np.minimum((self.load - self.lowest) * ratio, LARGEST_INT))
        return whole + 0.0  # no -0.0 in the evidence


@dataclass(frozen=True, slots=True, eq=False)
class _Finding:
    """Which measure makes the busiest broker shed, if any; without one the message rate is shown."""

    trigger: int
    spread: _Spread
    traffic: Floats
    """The same measure of every bundle, (m,)."""
    minimum: float


def plan(view: RoundView, memory: NoMemory, settings: UniformLoadShedderSettings) -> Proposal[NoMemory]:
    """Decide one round."""
    brokers, builder = view.brokers, PlanBuilder()
    if len(brokers) == 0:
        return Proposal(builder.build(examine_nothing(OUTCOMES, TRIGGERS)), memory)
    rate, volume = _spread(brokers.messages_per_s), _spread(brokers.bytes_per_s)
    finding = _find(view, rate, volume, settings)
    examined = _examine(brokers, rate, volume, finding, settings)
    if examined.outcome[0] == FIRED:
        need = int(finding.spread.excess_load(settings.max_unload_ratio)[finding.spread.busiest])
        _choose(view, builder, examined, finding.traffic, need, settings.max_unload_bundles_count)
    return Proposal(builder.build(examined), memory)


def _spread(load: Floats) -> _Spread:
    idlest = int(np.argmin(load))
    lowest = min(float(load[idlest]), LARGEST_INT)
    return _Spread(
        load=load,
        busiest=int(np.argmax(load)),
        idlest=idlest,
        lowest=1.0 if abs(lowest) <= NEXT_TO_NOTHING else lowest,
    )


def _find(view: RoundView, rate: _Spread, volume: _Spread, settings: UniformLoadShedderSettings) -> _Finding:
    """The rate comes first; once it has decided, throughput is not looked at, however little the rate would move."""
    by_rate = 0 < settings.rate_difference_percent < rate.difference_percent[rate.busiest]
    by_volume = 0 < settings.throughput_multiple < volume.multiple[volume.busiest]
    if by_volume and not by_rate:
        return _Finding(BY_THROUGHPUT, volume, view.bundles.bytes_per_s, settings.min_unload_bytes_per_s)
    trigger = BY_RATE if by_rate else 0
    return _Finding(trigger, rate, view.bundles.messages_per_s, settings.min_unload_messages_per_s)


def _examine(
    brokers: BrokerTable,
    rate: _Spread,
    volume: _Spread,
    finding: _Finding,
    settings: UniformLoadShedderSettings,
) -> Examined:
    """Every broker, the busiest first; it alone is compared, and its partner is the idlest other."""
    spread, count = finding.spread, len(brokers)
    order = np.argsort(-spread.load, kind="stable")
    low = np.full(count, NOBODY, dtype=np.int64)
    low[0] = spread.idlest if spread.idlest != spread.busiest else NOBODY
    outcome = _outcome(brokers, finding, settings)[order]
    trigger = np.zeros(count, dtype=np.int8)
    trigger[0] = finding.trigger
    return Examined(
        high=order,
        low=low,
        outcome=outcome,
        outcomes=OUTCOMES,
        trigger=trigger,
        triggers=TRIGGERS,
        evidence={
            "broker_messages_per_s": rate.load[order],
            "lowest_messages_per_s": np.full(count, rate.lowest),
            "difference_percent": rate.difference_percent[order],
            "allowed_difference_percent": np.full(count, settings.rate_difference_percent),
            "to_move_messages_per_s": rate.excess_load(settings.max_unload_ratio)[order],
            "broker_bytes_per_s": volume.load[order],
            "lowest_bytes_per_s": np.full(count, volume.lowest),
            "throughput_multiple": volume.multiple[order],
            "allowed_throughput_multiple": np.full(count, settings.throughput_multiple),
            "to_move_bytes_per_s": volume.excess_load(settings.max_unload_ratio)[order],
        },
    )


def _outcome(brokers: BrokerTable, finding: _Finding, settings: UniformLoadShedderSettings) -> Codes:
    """Outcome of each broker row, (n,)."""
    count, spread = len(brokers), finding.spread
    if count < FEWEST_BROKERS:
        return np.full(count, SOLE_BROKER, dtype=np.int8)
    if not finding.trigger:
        return np.full(count, BELOW_THRESHOLD, dtype=np.int8)
    outcome = np.full(count, NOT_BUSIEST, dtype=np.int8)
    busiest = spread.busiest
    if spread.excess_load(settings.max_unload_ratio)[busiest] < finding.minimum:
        outcome[busiest] = BELOW_MIN_TRAFFIC
    elif brokers.listed_bundle_counts[busiest] <= 1:
        outcome[busiest] = SOLE_BUNDLE
    else:
        outcome[busiest] = FIRED
    return outcome


def _choose(
    view: RoundView,
    builder: PlanBuilder,
    examined: Examined,
    traffic: Floats,
    need: int,
    limit: int,
) -> None:
    """Pick the bundles of the busiest broker, the first row examined, each from the biggest that still fits."""
    bundles = view.bundles
    tried = candidates(bundles, fired=np.zeros(1, dtype=np.int64), brokers=examined.high[:1])
    tried, loads = tried.heaviest_first(traffic[tried.rows])
    outcomes = _fit(loads.tolist(), bundles.movable[tried.rows].tolist(), need, limit)
    builder.add(tried, outcomes=outcomes, destinations=np.full(len(outcomes), NOBODY, dtype=np.int64))


def _fit(loads: list[float], movable: list[bool], need: int, limit: int) -> Codes:
    """Outcome of each bundle of one broker, heaviest first; whole units are subtracted, as in Pulsar."""
    outcomes = np.empty(len(loads), dtype=np.int8)
    left, taken_count = need, 0
    for place, load in enumerate(loads):
        if not movable[place]:
            outcomes[place] = BundleOutcome.MASKED
        elif taken_count == limit:
            outcomes[place] = BundleOutcome.BUNDLE_LIMIT
        elif load <= left:
            outcomes[place] = BundleOutcome.ACTED
            left -= int(load)
            taken_count += 1
        else:
            outcomes[place] = BundleOutcome.TOO_BIG if load > need else BundleOutcome.NEED_MET
    return outcomes


def _describe_rates(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} carries {evidence['broker_messages_per_s']:.0f} messages/s, "
        f"{evidence['difference_percent']:.1f} % above the {evidence['lowest_messages_per_s']:.0f} of {partner} with "
        f"{evidence['allowed_difference_percent']:g} % allowed"
    )


def _describe_throughputs(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} carries {evidence['broker_bytes_per_s']:.0f} bytes/s, "
        f"{evidence['throughput_multiple']:.1f} times the {evidence['lowest_bytes_per_s']:.0f} of {partner} with "
        f"{evidence['allowed_throughput_multiple']:g} times allowed"
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=UniformLoadShedderSettings,
    memory=NoMemory,
    plan=plan,
    settle=keep_pending,
    outcomes=OUTCOMES,
    outcome_texts={
        "not-busiest": OutcomeText(
            meaning="another broker has more traffic, and the policy looks only at the busiest",
            remedy="its broker has to have the most traffic",
        )
    },
    calm_outcomes=("below-threshold", "not-busiest", "sole-broker"),
    triggers=TRIGGERS,
    sentences={TRIGGERS[BY_RATE]: _describe_rates, TRIGGERS[BY_THROUGHPUT]: _describe_throughputs},
    headline=Headline(meaning="which compares rates"),
)
