"""TransferShedder: transfer bundles from the busiest brokers to the idlest until their usage spreads little.

From Pulsar: class ``TransferShedder`` of 4.2.4 (PIP-220), the policy of the extensible load manager. It needs what brokers publish
there (``policies.shedding.view.PublishedLoads``): usage and throughput that the brokers smooth themselves, and their heaviest bundles.
Where one of them publishes nothing it decides nothing.

Known to do badly: one broker that was shed lately, or that has nothing published, stops the whole fleet; a broker's heaviest bundle
never leaves unless a swap makes room; the first bundle that does not fit ends the broker's turn, although a lighter swap may
exist; a broker is judged by a smoothed usage that it publishes rarely while its load is steady.

Where ours differs: if brokers are equal, the first by name is the idler; a bundle that may not move (cooldown, excluded,
not the broker's any more) is not swapped back either; a broker that may not receive gets nothing; how long ago a broker was
shed is counted from the end of the round that decided it; what swaps bring back is never subtracted from what is marked, which
Pulsar does in its debug mode only; the hit count is kept as long as all wanted unloads have to wait (for a pause or a budget).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.bounds import NotNegative, NotNegativeInt, check_bounds
from policies.columns import Code, Codes, Floats, Ints
from policies.shedding.contract import (
    BundleOutcome,
    Evidence,
    Examined,
    Headline,
    OutcomeText,
    Proposal,
    SheddingPlan,
    SheddingPolicy,
    count_hits,
    stand_by,
)
from policies.shedding.plan import FEWEST_BROKERS, Candidates, PlanBuilder, examine_nothing
from policies.shedding.view import NOBODY, NOT_OWNED, PublishedLoads, RoundView
from policies.wording import found_in

MOST_UNDERLOADED_RATIO = 0.5
"""A broker is underloaded below a share of the mean: half of the target, but at most this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShedderSettings:
    """When bundles are transferred, and between how many brokers."""

    target_std_ratio: NotNegative = 0.25
    """Standard deviation of the brokers' smoothed usage, 1.0 = 100 %, above which bundles are transferred.
    Pulsar: ``loadBalancerBrokerLoadTargetStd``."""
    overloaded_points: NotNegative = 85.0
    """Smoothed usage in percentage points above which one broker alone is reason enough, if it is also above the mean by
    more than the target. Pulsar: ``loadBalancerBrokerOverloadedThresholdPercentage``."""
    hit_count: NotNegativeInt = 3
    """Rounds in a row that show a reason before the next one acts. Pulsar: ``loadBalancerSheddingConditionHitCountThreshold``."""
    max_brokers_count: NotNegativeInt = 3
    """Largest number of brokers that are relieved in one round. Pulsar: ``loadBalancerMaxNumberOfBrokerSheddingPerCycle``."""
    transfer: bool = True
    """Name the destination, and swap bundles where one alone does not fit; false: a placement or Pulsar chooses.
    Pulsar: ``loadBalancerTransferEnabled``."""
    shedding_delay_s: NotNegative = 180.0
    """How much newer than its last unload a broker's load has to be; until then nothing is decided for any broker.
    Pulsar: ``loadBalanceSheddingDelayInSeconds``."""
    load_data_ttl_s: NotNegative = 1800.0
    """Age from which a broker's load is not counted any more. Pulsar: ``loadBalancerBrokerLoadDataTTLInSeconds``."""

    def __post_init__(self) -> None:
        check_bounds(self)

    @property
    def underloaded_ratio(self) -> float:
        """Share of the mean usage, or of the busiest broker's throughput, below which a broker is underloaded."""
        return min(MOST_UNDERLOADED_RATIO, max(0.0, self.target_std_ratio / 2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShedderMemory:
    """Rounds in a row that showed a reason to transfer."""

    hit_count: int = 0


OUTCOME_TEXTS: Final[Mapping[str, OutcomeText]] = {
    "below-target": OutcomeText(
        meaning="TransferShedder: the brokers' smoothed usages spread little, and no broker stands out",
        remedy="the usage of the brokers has to spread more than target_std_ratio",
    ),
    "cooldown": OutcomeText(
        meaning="TransferShedder: a broker has not published its load since `shedding_delay_s` after its last unload",
        advice="wait",
        remedy="every broker that was shed has to publish its load again, shedding_delay_s after that",
    ),
    "no-load-data": OutcomeText(
        meaning="TransferShedder: a broker has published no load, took it back after a move, or runs the modular load manager",
        advice="wait; if it lasts: is the collector's `failed` empty, and is this the right policy for the cluster?",
        remedy="every broker has to publish its load: the extensible load manager has to run at each of them",
    ),
    "outdated": OutcomeText(
        meaning="TransferShedder: what the brokers published is older than `load_data_ttl_s`",
        advice="see whether the brokers are alive",
        remedy="its broker has to publish its load again, or load_data_ttl_s has to be higher",
    ),
    "no-top-bundles": OutcomeText(
        meaning="TransferShedder: the busiest broker has published no bundle",
        remedy="its broker has to publish its heaviest bundles",
    ),
    "nothing-fits": OutcomeText(
        meaning="TransferShedder: no published bundle fits, and no swap makes room",
        advice="split its bundles, or publish more of them (`loadBalancerMaxNumberOfBundlesInBundleLoadReport`)",
        remedy="its broker has to have a bundle that fits, alone or in exchange for another",
    ),
}


class Outcome(Code):
    """What became of a row that was examined."""

    FIRED = 0
    BELOW_TARGET = 1
    HIT_COUNT = 2
    COOLDOWN = 3
    OUTDATED = 4
    NO_LOAD_DATA = 5
    NO_TOP_BUNDLES = 6
    SOLE_BUNDLE = 7
    NOTHING_FITS = 8
    SOLE_BROKER = 9


OUTCOMES = Outcome.names()

TRIGGERS = ("", "overloaded", "underloaded")
OVERLOADED, UNDERLOADED = 1, 2

SWAPPED_RATIO = 0.75
"""Share of its throughput below which the busier broker has to end for a swap to be worth it."""


@dataclass(slots=True)
class Spread:
    """Sums of the fleet's smoothed usage, as they change with every broker that is relieved."""

    squares: float
    count: int
    mean: float
    deviation: float

    @staticmethod
    def from_usage(usage: list[float]) -> "Spread":
        """The sums of these usages, added up in the order of names, in plain doubles, as Pulsar adds them up."""
        total = squares = 0.0
        for value in usage:
            total += value
            squares += value * value
        mean = total / len(usage)
        variance = squares / len(usage) - mean * mean
        return Spread(squares, len(usage), mean, math.sqrt(variance) if variance >= 0 else math.nan)

    def relieve(self, high: float, low: float, moved: float) -> None:
        self.squares -= high * high + low * low
        high, low = max(0.0, high - moved), low + moved
        self.squares += high * high + low * low
        self.deviation = math.sqrt(abs(self.squares / self.count - self.mean * self.mean))


@dataclass(slots=True)
class Transfer:
    """A broker that is relieved, the broker that takes its bundles, and the result."""

    high: int
    low: int
    outcome: int
    trigger: int = 0
    deviation: float = 0.0
    to_move: float = 0.0
    marked: float = 0.0
    tried: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Of each bundle that was tried its row, outcome and destination, and the row for whose sake it moves."""

    def note(
        self, row: int, outcome: int, destination: int = NOBODY, *, in_return_for: int | None = None
    ) -> None:
        self.tried.append((row, outcome, destination, row if in_return_for is None else in_return_for))


class Round:
    """One round's search; used once."""

    def __init__(self, view: RoundView, published: PublishedLoads, settings: TransferShedderSettings) -> None:
        self._view, self._published, self._settings = view, published, settings
        self._usage: list[float] = published.usage_ratio.tolist()
        self._smoothed: list[float] = published.bytes_per_s.tolist()
        self._volume: list[float] = view.brokers.bytes_per_s.tolist()
        self._order: list[int] = np.argsort(published.usage_ratio, kind="stable").tolist()
        fresh = published.age_s <= settings.load_data_ttl_s
        self._counted = [usage for usage, is_fresh in zip(self._usage, fresh, strict=True) if is_fresh]
        self._fresh = fresh
        self.spread = Spread.from_usage(self._counted or [0.0])

    def find_transfers(self, hit_count: int) -> tuple[list[Transfer], int]:
        """What was examined, in order, and the hit count."""
        idlest, busiest = self._order[0], self._order[-1]
        obstacle = self._obstacle()
        if obstacle is not None:
            return [self._make_empty_transfer(obstacle)], hit_count
        has_reason = self._reason(idlest, busiest) != 0
        hit_count = hit_count + 1 if has_reason else 0
        if not has_reason:
            return [self._make_empty_transfer(Outcome.BELOW_TARGET)], hit_count
        if hit_count <= self._settings.hit_count:
            return [self._make_empty_transfer(Outcome.HIT_COUNT)], hit_count
        return list(self._try_transfers()) or [self._make_empty_transfer(Outcome.HIT_COUNT)], hit_count

    def _make_empty_transfer(self, outcome: int) -> Transfer:
        idlest, busiest = self._order[0], self._order[-1]
        low = NOBODY if idlest == busiest else idlest
        return Transfer(busiest, low, outcome, deviation=self.spread.deviation)

    def _obstacle(self) -> int | None:
        """Outcome if nothing can be decided, else None; checked in Pulsar's order."""
        if len(self._usage) < FEWEST_BROKERS:
            return Outcome.SOLE_BROKER
        if self._is_cooling():
            return Outcome.COOLDOWN
        if not self._counted:
            return Outcome.OUTDATED
        return Outcome.NO_LOAD_DATA if self._view.missing else None

    def _is_cooling(self) -> bool:
        unloaded, names = self._view.unloaded_ages_s(), self._view.brokers.names
        return any(
            unloaded[name] - age_s < self._settings.shedding_delay_s
            for name, age_s, is_fresh in zip(names, self._published.age_s.tolist(), self._fresh, strict=True)
            if is_fresh and name in unloaded
        )

    def _reason(self, low: int, high: int) -> int:
        """Trigger of the idlest and the busiest broker that are left; 0 without one."""
        settings, usage, mean = self._settings, self._usage, self.spread.mean
        if self.spread.deviation > settings.target_std_ratio:
            return OVERLOADED
        share = settings.underloaded_ratio
        if usage[low] < mean * share or self._smoothed[low] < self._smoothed[high] * share:
            return UNDERLOADED
        overloaded = usage[high] > settings.overloaded_points / 100.0
        return OVERLOADED if overloaded and usage[high] > mean + settings.target_std_ratio else 0

    def _try_transfers(self) -> Iterator[Transfer]:
        """A transfer for each broker that is tried, from the busiest; the idlest broker stays the destination until it gets something."""
        first, last, relieved_count = 0, len(self._order) - 1, 0
        while relieved_count < self._settings.max_brokers_count and first < last:
            low, high = self._order[first], self._order[last]
            trigger = self._reason(low, high)
            if not trigger:
                return
            last -= 1
            transfer = self._make_transfer(high, low, trigger)
            if transfer.marked > 0:
                moved = float(_ratio(transfer.marked * self._usage[high], self._volume[high]))
                self.spread.relieve(self._usage[high], self._usage[low], moved)
                relieved_count += 1
                first += 1
            yield transfer

    def _make_transfer(self, high: int, low: int, trigger: int) -> Transfer:
        transfer = Transfer(high, low, Outcome.NOTHING_FITS, trigger, self.spread.deviation)
        excess = (self._usage[high] - self._usage[low]) / 2
        transfer.to_move = float(_ratio(self._volume[high] * excess, self._usage[high]))
        top = self._published.top_of(high)
        if len(top) <= 1:
            transfer.outcome = Outcome.SOLE_BUNDLE if top else Outcome.NO_TOP_BUNDLES
            return transfer
        self._choose(transfer, top)
        acts = any(outcome == BundleOutcome.ACTED for _, outcome, _, _ in transfer.tried)
        transfer.outcome = Outcome.FIRED if acts else Outcome.NOTHING_FITS
        return transfer

    def _choose(self, transfer: Transfer, top: list[tuple[int, float]]) -> None:
        movable, may_receive = self._view.bundles.movable, self._view.brokers.may_receive
        destination = transfer.low if self._settings.transfer else NOBODY
        back = iter(self._published.top_of(transfer.low))
        left_count, is_over = len(top), 0
        for row, volume in top:
            if row == NOT_OWNED:
                continue
            if not movable[row]:
                transfer.note(row, BundleOutcome.MASKED)
            elif not may_receive[transfer.low]:
                transfer.note(row, BundleOutcome.NO_DESTINATION)
            elif is_over:
                transfer.note(row, is_over)
            elif left_count <= 1:
                is_over = BundleOutcome.LAST_PUBLISHED
                transfer.note(row, is_over)
            elif volume == 0:
                transfer.note(row, BundleOutcome.NO_TRAFFIC)
            elif transfer.marked + volume > transfer.to_move and not self._swap(transfer, row, volume, back):
                is_over = BundleOutcome.TOO_BIG if volume > transfer.to_move else BundleOutcome.NEED_MET
                transfer.note(row, is_over)
            else:
                transfer.note(row, BundleOutcome.ACTED, destination)
                transfer.marked += volume
                left_count -= 1

    def _swap(
        self, transfer: Transfer, leaving: int, volume: float, back: Iterator[tuple[int, float]]
    ) -> bool:
        """Look for bundles that come back for row ``leaving`` of ``volume`` bytes/s, and note them; returns whether there are enough."""
        if not self._settings.transfer:
            return False
        movable, may_receive = self._view.bundles.movable, self._view.brokers.may_receive[transfer.high]
        before = self._volume[transfer.high]
        high, low = before - transfer.marked - volume, self._volume[transfer.low] + transfer.marked + volume
        taken = []
        for row, returning in back:
            if row == NOT_OWNED or not movable[row] or returning == 0 or not may_receive:
                continue
            if high + returning < before and low - returning < before:
                taken.append(row)
                high, low = high + returning, low - returning
                if low <= high < before * SWAPPED_RATIO:
                    for returned in taken:
                        transfer.note(returned, BundleOutcome.ACTED, transfer.high, in_return_for=leaving)
                    return True
        return False


def _ratio(numerator: float, denominator: float) -> np.float64:
    """The quotient as a processor divides: 0 by 0 is NaN, and nothing is greater than NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(numerator) / np.float64(denominator)


NAME: Final = "transfer-shedder"


def plan(
    view: RoundView, memory: TransferShedderMemory, settings: TransferShedderSettings
) -> Proposal[TransferShedderMemory]:
    """Decide one round."""
    if len(view.brokers) == 0:
        return Proposal(PlanBuilder().build(examine_nothing(OUTCOMES, TRIGGERS)), memory)
    if view.published is None:
        nobody = [Transfer(NOBODY, NOBODY, Outcome.NO_LOAD_DATA)]
        return Proposal(_build(None, Spread(0.0, 0, 0.0, 0.0), nobody, memory.hit_count, settings), memory)
    round_ = Round(view, view.published, settings)
    transfers, hit_count = round_.find_transfers(memory.hit_count)
    plan_ = _build(view.published, round_.spread, transfers, hit_count, settings)
    return Proposal(plan_, TransferShedderMemory(hit_count=hit_count))


def settle(proposal: Proposal[TransferShedderMemory], fates: Codes) -> TransferShedderMemory:
    """The hit count starts anew after brokers fired, and goes on where all unloads that they want have to wait."""
    plan_ = proposal.plan
    fired = np.flatnonzero(plan_.examined.outcome == Outcome.FIRED)
    if len(fired) == 0 or plan_.waits(fates)[fired].all():
        return proposal.pending
    return TransferShedderMemory()


def _build(
    published: PublishedLoads | None,
    spread: Spread,
    transfers: list[Transfer],
    hit_count: int,
    settings: TransferShedderSettings,
) -> SheddingPlan:
    builder = PlanBuilder()
    for number, transfer in enumerate(transfers):
        rows, outcomes, destinations, swap_groups = np.array(transfer.tried, dtype=np.int64).reshape(-1, 4).T
        tried = Candidates(
            rows=rows, examined=np.full(len(rows), number, dtype=np.int64), ends=np.array([len(rows)])
        )
        builder.add(
            tried, outcomes=outcomes.astype(np.int8), destinations=destinations, swap_groups=swap_groups
        )
    high, low = (
        np.array([getattr(transfer, side) for transfer in transfers], dtype=np.int64)
        for side in ("high", "low")
    )
    usage, volume = (None, None) if published is None else (published.usage_ratio, published.bytes_per_s)
    count = len(transfers)
    return builder.build(
        Examined(
            high=high,
            low=low,
            outcome=np.array([transfer.outcome for transfer in transfers], dtype=np.int8),
            outcomes=OUTCOMES,
            trigger=np.array([transfer.trigger for transfer in transfers], dtype=np.int8),
            triggers=TRIGGERS,
            evidence={
                "high_usage_points": 100.0 * _values_at(usage, high),
                "low_usage_points": 100.0 * _values_at(usage, low),
                "mean_usage_points": np.full(count, 100.0 * spread.mean),
                "deviation_points": 100.0
                * np.nan_to_num(np.array([transfer.deviation for transfer in transfers]), posinf=0.0),
                "target_deviation_points": np.full(count, 100.0 * settings.target_std_ratio),
                "high_smoothed_bytes_per_s": _values_at(volume, high),
                "low_smoothed_bytes_per_s": _values_at(volume, low),
                "to_move_bytes_per_s": np.nan_to_num(np.array([transfer.to_move for transfer in transfers])),
                "hit_count": np.full(count, hit_count),
                "needed_hit_count": np.full(count, settings.hit_count + 1),
            },
        )
    )


def _values_at(column: Floats | None, rows: Ints) -> Floats:
    """The value of each broker row, 0 where there is no broker."""
    if column is None:
        return np.zeros(len(rows))
    return np.where(rows == NOBODY, 0.0, column[rows])


def _describe_spread(source: str, partner: str | None, evidence: Evidence) -> str:
    """The standard deviation, or where that is allowed, how far an overloaded broker is above the mean."""
    deviation, target = float(evidence["deviation_points"]), float(evidence["target_deviation_points"])
    cause = (
        f"the standard deviation is {deviation:.1f} points with {target:g} allowed"
        if deviation > target
        else f"{source} is overloaded, and more than {target:g} points above the mean of {evidence['mean_usage_points']:.1f} %"
    )
    return (
        f"{source} publishes a smoothed usage of {evidence['high_usage_points']:.1f} % and {partner} one of "
        f"{evidence['low_usage_points']:.1f} %; {cause}, {found_in(int(evidence['hit_count']), int(evidence['needed_hit_count']))}"
    )


def _describe_idle_broker(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} publishes {evidence['high_smoothed_bytes_per_s']:.0f} bytes/s and {partner} "
        f"{evidence['low_smoothed_bytes_per_s']:.0f}, with a smoothed usage of {evidence['low_usage_points']:.1f} % beside a mean of "
        f"{evidence['mean_usage_points']:.1f} %: {partner} counts as idle, {found_in(int(evidence['hit_count']), int(evidence['needed_hit_count']))}"
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=TransferShedderSettings,
    memory=TransferShedderMemory,
    plan=plan,
    settle=settle,
    outcomes=OUTCOMES,
    outcome_texts=OUTCOME_TEXTS,
    calm_outcomes=("below-target", "sole-broker"),
    triggers=TRIGGERS,
    sentences={TRIGGERS[OVERLOADED]: _describe_spread, TRIGGERS[UNDERLOADED]: _describe_idle_broker},
    details={"hit-count": count_hits},
    headline=Headline(
        meaning="the standard deviation of the smoothed usages",
        stand_of=stand_by("deviation_points", "target_deviation_points", counts_hits=True),
    ),
    reads_published=True,
)
