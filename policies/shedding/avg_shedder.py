"""AvgShedder: pair the busiest broker with the idlest, and move half the difference once the finding persists.

From Pulsar: PIP-364, class ``AvgShedder`` of 4.2.4. Scores have no history; a pair must stand out for several rounds
(``low_hit_count``) unless the difference is glaring (``high_hit_count``). The counters belong to a broker, not to a
pair: when a broker is found over- or under-loaded again, its count goes on, whatever its partner was.

Known to do badly: it never looks at the middle of the fleet, so two warm brokers beside one cold one take turns;
a bundle above half the difference is never moved; a pair that fires and moves nothing has to collect all its hits again.

Where ours differs: brokers with equal scores are taken by name, bundles with equal traffic by name, and the
destination belongs to the bundle (up to 4.2.4 Pulsar keys it by the bundle's numbers, so equal bundles share one).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.bounds import NotNegative, NotNegativeInt, Ratio, check_bounds
from policies.columns import Bools, Codes, Floats, Ints, first_code
from policies.shedding.contract import (
    BundleOutcome,
    Evidence,
    Examined,
    Headline,
    Proposal,
    SheddingPolicy,
    count_hits,
    stand_by,
)
from policies.shedding.plan import Candidates, PlanBuilder, candidates
from policies.shedding.view import RoundView
from policies.wording import found_in

NAME: Final = "avg-shedder"

OUTCOMES = ("fired", "hit-count", "below-threshold", "below-min-traffic")
FIRED, HIT_COUNT, BELOW_THRESHOLD, BELOW_MIN_TRAFFIC = range(len(OUTCOMES))
TRIGGERS = ("", "low-threshold", "high-threshold")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgShedderSettings:
    """When a pair of brokers fires, and how much then moves."""

    low_threshold_points: NotNegative = 15.0
    """Difference in percentage points from which a pair counts towards ``low_hit_count``.
    Pulsar: ``loadBalancerAvgShedderLowThreshold``."""
    high_threshold_points: NotNegative = 40.0
    """Difference in percentage points from which it also counts towards ``high_hit_count``.
    Pulsar: ``loadBalancerAvgShedderHighThreshold``."""
    low_hit_count: NotNegativeInt = 8
    """Rounds a broker must stand out by the low threshold; enough to wait until a burst is over.
    Pulsar: ``loadBalancerAvgShedderHitCountLowThreshold``."""
    high_hit_count: NotNegativeInt = 2
    """Rounds a broker must stand out by the high threshold; few, because such a difference hurts.
    Pulsar: ``loadBalancerAvgShedderHitCountHighThreshold``."""
    min_unload_messages_per_s: NotNegative = 1000.0
    """Half the difference must exceed this for message rate to guide the move; smaller moves are not worth a
    reconnect. Pulsar: ``minUnloadMessage``."""
    min_unload_bytes_per_s: NotNegative = 1048576.0
    """The same for throughput, tried second. Pulsar: ``minUnloadMessageThroughput``."""
    max_unload_ratio: Ratio = 0.5
    """Share of the pair's difference to move; half makes them equal. Pulsar: ``maxUnloadPercentage``
    (0.2 before 5.0, which needs several rounds for one imbalance)."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.low_threshold_points > self.high_threshold_points:
            raise ValueError(
                f"low_threshold_points is {self.low_threshold_points}, above high_threshold_points "
                f"{self.high_threshold_points}; the low threshold must not exceed the high one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgShedderMemory:
    """Hits of each broker, by name; a broker without hits is absent."""

    low_hits: Mapping[str, int] = field(default_factory=dict)
    high_hits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Broker rows paired from the outside in, with the difference between them in points."""

    low: Ints
    high: Ints
    difference: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """Hits of a round before those that fired are spent."""

    before: AvgShedderMemory
    names: tuple[str, ...]
    low_hits: Ints
    """Hits of each broker, this round's included, (n,)."""
    high_hits: Ints
    pairs: _Pairs
    fires: Bools
    """Whether the pair has enough hits, (k,)."""
    stands_out: bool
    """Whether any pair stands out."""


def plan(view: RoundView, memory: AvgShedderMemory, settings: AvgShedderSettings) -> Proposal[_Pending]:
    """Decide one round."""
    score = 100.0 * view.brokers.usage_ratio
    pairs = _pair(score)
    low_hits, high_hits = _count_hits(view.brokers.names, pairs, memory, settings)
    stands_out = pairs.difference >= settings.low_threshold_points
    glaring = pairs.difference >= settings.high_threshold_points
    most_low = np.maximum(low_hits[pairs.low], low_hits[pairs.high])
    most_high = np.maximum(high_hits[pairs.low], high_hits[pairs.high])
    by_high = stands_out & (most_high >= settings.high_hit_count)
    fires = stands_out & (by_high | (most_low >= settings.low_hit_count))

    shows_high = glaring & (by_high | ~fires)
    needs = _needs(view, pairs, settings)
    tests = [(~stands_out, BELOW_THRESHOLD), (~fires, HIT_COUNT), (needs.is_nothing, BELOW_MIN_TRAFFIC)]
    outcome = first_code(tests, FIRED)
    examined = Examined(
        high=pairs.high,
        low=pairs.low,
        outcome=outcome,
        outcomes=OUTCOMES,
        trigger=np.select([by_high, fires], [2, 1], 0).astype(np.int8),
        triggers=TRIGGERS,
        # the count shown is the one that decided, else the one that will decide first
        evidence={
            "high_usage_points": score[pairs.high],
            "low_usage_points": score[pairs.low],
            "difference_points": pairs.difference,
            "threshold_points": np.where(
                shows_high, settings.high_threshold_points, settings.low_threshold_points
            ),
            "hit_count": np.where(shows_high, most_high, most_low),
            "needed_hit_count": np.where(shows_high, settings.high_hit_count, settings.low_hit_count),
            "to_move_messages_per_s": needs.messages_per_s,
            "to_move_bytes_per_s": needs.bytes_per_s,
        },
    )
    builder = PlanBuilder()
    fired = np.flatnonzero(outcome == FIRED)
    if len(fired):
        _choose(view, builder, examined, needs, fired)
    pending = _Pending(
        memory, view.brokers.names, low_hits, high_hits, pairs, fires=fires, stands_out=bool(stands_out.any())
    )
    return Proposal(builder.build(examined), pending)


def settle(proposal: Proposal[_Pending], fates: Codes) -> AvgShedderMemory:
    """Hits after the round: a pair that fired loses its hits, unless all the unloads that it wants have to wait.

    Brokers that were not in the view keep their hits, unless no pair at all stands out: that clears every hit, as in
    Pulsar.
    """
    pending = proposal.pending
    if not pending.stands_out:
        return AvgShedderMemory()
    spends = pending.fires & ~proposal.plan.waits(fates)
    spent = np.concatenate([pending.pairs.low[spends], pending.pairs.high[spends]])
    return AvgShedderMemory(
        low_hits=_merge(pending.before.low_hits, pending.names, pending.low_hits, spent),
        high_hits=_merge(pending.before.high_hits, pending.names, pending.high_hits, spent),
    )


def _pair(score: Floats) -> _Pairs:
    """Highest with lowest, inwards; in a fleet of odd size the broker in the middle pairs with itself, which clears its hits."""
    order = np.argsort(score, kind="stable")
    count = (len(order) + 1) // 2
    low, high = order[:count], order[::-1][:count]
    return _Pairs(low, high, score[high] - score[low])


def _count_hits(
    names: tuple[str, ...], pairs: _Pairs, memory: AvgShedderMemory, settings: AvgShedderSettings
) -> tuple[Ints, Ints]:
    low_hits, high_hits = _column(memory.low_hits, names), _column(memory.high_hits, names)
    for hits, threshold in (
        (low_hits, settings.low_threshold_points),
        (high_hits, settings.high_threshold_points),
    ):
        hit = pairs.difference >= threshold
        for side in (pairs.low, pairs.high):
            hits[side[~hit]] = 0
        for side in (pairs.low, pairs.high):
            hits[side[hit]] += 1
    return low_hits, high_hits


def _column(hits: Mapping[str, int], names: tuple[str, ...]) -> Ints:
    if not hits:
        return np.zeros(len(names), dtype=np.int64)
    return np.fromiter((hits.get(name, 0) for name in names), dtype=np.int64, count=len(names))


def _merge(before: Mapping[str, int], names: tuple[str, ...], hits: Ints, spent: Ints) -> dict[str, int]:
    """Hits of the brokers seen now, and of those only remembered; those of ``spent`` rows and zeros are left out."""
    hits = hits.copy()
    hits[spent] = 0
    present = set(names) if before else set()
    after = {name: count for name, count in before.items() if name not in present}
    for row in np.flatnonzero(hits).tolist():
        after[names[row]] = int(hits[row])
    return after


@dataclass(frozen=True, slots=True, eq=False)
class _Needs:
    """Traffic each pair should exchange, in both measures, and which measure guides the choice."""

    messages_per_s: Floats
    bytes_per_s: Floats
    by_messages: Bools
    is_nothing: Bools


def _needs(view: RoundView, pairs: _Pairs, settings: AvgShedderSettings) -> _Needs:
    brokers = view.brokers
    messages = (
        brokers.messages_per_s[pairs.high] - brokers.messages_per_s[pairs.low]
    ) * settings.max_unload_ratio
    volume = (brokers.bytes_per_s[pairs.high] - brokers.bytes_per_s[pairs.low]) * settings.max_unload_ratio
    by_messages = messages > settings.min_unload_messages_per_s
    return _Needs(messages, volume, by_messages, ~by_messages & ~(volume > settings.min_unload_bytes_per_s))


def _choose(view: RoundView, builder: PlanBuilder, examined: Examined, needs: _Needs, fired: Ints) -> None:
    """Pick the bundles of the pairs that fired, each from the biggest that still fits."""
    bundles = view.bundles
    tried = candidates(bundles, fired=fired, brokers=examined.high[fired])
    traffic = np.where(
        needs.by_messages[tried.examined], bundles.messages_per_s[tried.rows], bundles.bytes_per_s[tried.rows]
    )
    tried, traffic = tried.heaviest_first(traffic)
    need = np.where(needs.by_messages, needs.messages_per_s, needs.bytes_per_s)
    outcomes = _fit(tried, traffic, bundles.movable[tried.rows], need)
    destinations = examined.low[tried.examined]
    outcomes[(outcomes == BundleOutcome.ACTED) & ~view.brokers.may_receive[destinations]] = (
        BundleOutcome.NO_DESTINATION
    )
    builder.add(tried, outcomes=outcomes, destinations=destinations)


def _fit(tried: Candidates, traffic: Floats, movable: Bools, need: Floats) -> Codes:
    """Outcome of each bundle: taken, heaviest first, while it fits into what is left of its pair's ``need``."""
    outcomes = np.full(len(traffic), BundleOutcome.NEED_MET, dtype=np.int8)
    outcomes[traffic > need[tried.examined]] = BundleOutcome.TOO_BIG
    outcomes[traffic <= 0] = BundleOutcome.NO_TRAFFIC
    outcomes[~movable] = BundleOutcome.MASKED
    fitting = np.flatnonzero(outcomes == BundleOutcome.NEED_MET)
    loads = traffic[fitting].tolist()
    pairs, starts = np.unique(tried.examined[fitting], return_index=True)
    ends = np.append(starts, len(loads))[1:]
    taken: list[int] = []
    for left, start, end in zip(need[pairs].tolist(), starts.tolist(), ends.tolist(), strict=True):
        taken.extend(_take(loads, start, end, left))
    outcomes[fitting[np.array(taken, dtype=np.int64)]] = BundleOutcome.ACTED
    return outcomes


def _take(loads: list[float], start: int, end: int, left: float) -> Iterator[int]:
    """Places from ``start`` to ``end`` whose loads, descending, fit one after the other into ``left``."""
    lightest = loads[end - 1]
    for place in range(start, end):
        if loads[place] <= left:
            left -= loads[place]
            yield place
        if left < lightest:
            return


def _describe_pair(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} is at {evidence['high_usage_points']:.1f} % and {partner} at "
        f"{evidence['low_usage_points']:.1f} %, {evidence['difference_points']:.1f} points apart with "
        f"{evidence['threshold_points']:g} allowed, {found_in(int(evidence['hit_count']), int(evidence['needed_hit_count']))}"
    )


POLICY: Final = SheddingPolicy(
    name=NAME,
    settings=AvgShedderSettings,
    memory=AvgShedderMemory,
    plan=plan,
    settle=settle,
    outcomes=OUTCOMES,
    calm_outcomes=("below-threshold",),
    triggers=TRIGGERS,
    sentences=dict.fromkeys(TRIGGERS[1:], _describe_pair),
    details={"hit-count": count_hits},
    headline=Headline(
        meaning="the busiest broker less the idlest",
        stand_of=stand_by("difference_points", "threshold_points", counts_hits=True),
    ),
)
