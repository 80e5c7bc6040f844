"""TransferShedder's search: whether the fleet is spread out, which brokers are relieved, and of which bundles."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from policies.shedding.contract import (
    ACTED,
    BUNDLE_LIMIT,
    MASKED,
    NEED_MET,
    NO_DESTINATION,
    NO_TRAFFIC,
    TOO_BIG,
)
from policies.shedding.plan import FEWEST_BROKERS
from policies.shedding.published import NOT_OWNED, PublishedLoads
from policies.shedding.transfer_shedder.settings import TransferShedderSettings
from policies.shedding.view import NOBODY, RoundView

OUTCOMES = (
    "fired",
    "below-target",
    "hit-count",
    "cooldown",
    "outdated",
    "no-load-data",
    "no-top-bundles",
    "sole-bundle",
    "nothing-fits",
    "sole-broker",
)
(
    FIRED,
    BELOW_TARGET,
    HIT_COUNT,
    COOLDOWN,
    OUTDATED,
    NO_LOAD_DATA,
    NO_TOP_BUNDLES,
    SOLE_BUNDLE,
    NOTHING_FITS,
    SOLE_BROKER,
) = range(len(OUTCOMES))
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
    def of(usage: list[float]) -> "Spread":
        """The sums of these usages, added up in the order of names, in plain doubles, as Pulsar adds them up."""
        total = squares = 0.0
        for each in usage:
            total += each
            squares += each * each
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
    rows: list[int] = field(default_factory=list)
    outcomes: list[int] = field(default_factory=list)
    destinations: list[int] = field(default_factory=list)
    sakes: list[int] = field(default_factory=list)

    def note(
        self, row: int, outcome: int, destination: int = NOBODY, *, in_return_for: int | None = None
    ) -> None:
        self.rows.append(row)
        self.outcomes.append(outcome)
        self.destinations.append(destination)
        self.sakes.append(row if in_return_for is None else in_return_for)


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
        self.spread = Spread.of(self._counted or [0.0])

    def find_transfers(self, hit_count: int) -> tuple[list[Transfer], int]:
        """What was examined, in order, and the hit count."""
        idlest, busiest = self._order[0], self._order[-1]
        obstacle = self._obstacle()
        if obstacle is not None:
            return [self._make_empty_transfer(obstacle)], hit_count
        has_reason = self._reason(idlest, busiest) != 0
        hit_count = hit_count + 1 if has_reason else 0
        if not has_reason:
            return [self._make_empty_transfer(BELOW_TARGET)], hit_count
        if hit_count <= self._settings.hit_count:
            return [self._make_empty_transfer(HIT_COUNT)], hit_count
        return list(self._try_transfers()) or [self._make_empty_transfer(HIT_COUNT)], hit_count

    def _make_empty_transfer(self, outcome: int) -> Transfer:
        idlest, busiest = self._order[0], self._order[-1]
        low = NOBODY if idlest == busiest else idlest
        return Transfer(busiest, low, outcome, deviation=self.spread.deviation)

    def _obstacle(self) -> int | None:
        """Outcome if nothing can be decided, else None; checked in Pulsar's order."""
        if len(self._usage) < FEWEST_BROKERS:
            return SOLE_BROKER
        if self._is_cooling():
            return COOLDOWN
        if not self._counted:
            return OUTDATED
        return NO_LOAD_DATA if self._view.missing else None

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
        transfer = Transfer(high, low, NOTHING_FITS, trigger, self.spread.deviation)
        excess = (self._usage[high] - self._usage[low]) / 2
        transfer.to_move = float(_ratio(self._volume[high] * excess, self._usage[high]))
        top = self._published.top_of(high)
        if len(top) <= 1:
            transfer.outcome = SOLE_BUNDLE if top else NO_TOP_BUNDLES
            return transfer
        self._choose(transfer, top)
        transfer.outcome = FIRED if ACTED in transfer.outcomes else NOTHING_FITS
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
                transfer.note(row, MASKED)
            elif not may_receive[transfer.low]:
                transfer.note(row, NO_DESTINATION)
            elif is_over:
                transfer.note(row, is_over)
            elif left_count <= 1:
                is_over = BUNDLE_LIMIT
                transfer.note(row, is_over)
            elif volume == 0:
                transfer.note(row, NO_TRAFFIC)
            elif transfer.marked + volume > transfer.to_move and not self._swap(transfer, row, volume, back):
                is_over = TOO_BIG if volume > transfer.to_move else NEED_MET
                transfer.note(row, is_over)
            else:
                transfer.note(row, ACTED, destination)
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
                    for each in taken:
                        transfer.note(each, ACTED, transfer.high, in_return_for=leaving)
                    return True
        return False


def _ratio(numerator: float, denominator: float) -> np.float64:
    """The quotient as a processor divides: 0 by 0 is NaN, and nothing is greater than NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.float64(numerator) / np.float64(denominator)
