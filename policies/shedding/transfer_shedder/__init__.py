"""TransferShedder: transfer bundles from the busiest brokers to the idlest until their usage spreads little.

From Pulsar: class ``TransferShedder`` of 4.2.4 (PIP-220), the policy of the extensible load manager. It needs what brokers publish
there (``policies.shedding.published``): usage and throughput that the brokers smooth themselves, and their heaviest bundles.
Where one of them publishes nothing it decides nothing.

Known to do badly: one broker that was shed lately, or that has nothing published, stops the whole fleet; a broker's heaviest bundle
never leaves unless a swap makes room; the first bundle that does not fit ends the broker's turn, although a lighter swap may
exist; a broker is judged by a smoothed usage that it publishes rarely while its load is steady.

Where ours differs: if brokers are equal, the first by name is the idler; a bundle that may not move (cooldown, excluded,
not the broker's any more) is not swapped back either; a broker that may not receive gets nothing; how long ago a broker was
shed is counted from the end of the round that decided it; what swaps bring back is never subtracted from what is marked, which
Pulsar does in its debug mode only; the hit count is kept as long as all wanted unloads have to wait (for a pause or a budget).
"""

from typing import Final

import numpy as np

from policies.columns import Codes, Floats, Ints
from policies.shedding.contract import (
    Evidence,
    Examined,
    Headline,
    Proposal,
    SheddingPlan,
    SheddingPolicy,
    Stand,
)
from policies.shedding.plan import Candidates, PlanBuilder, examine_nothing
from policies.shedding.published import PublishedLoads
from policies.shedding.transfer_shedder.search import (
    FIRED,
    NO_LOAD_DATA,
    OUTCOMES,
    OVERLOADED,
    TRIGGERS,
    UNDERLOADED,
    Round,
    Spread,
    Transfer,
)
from policies.shedding.transfer_shedder.settings import TransferShedderMemory, TransferShedderSettings
from policies.shedding.transfer_shedder.words import OUTCOME_TEXTS
from policies.shedding.view import NOBODY, RoundView
from policies.wording import found_in

NAME: Final = "transfer-shedder"


def plan(
    view: RoundView, memory: TransferShedderMemory, settings: TransferShedderSettings
) -> Proposal[TransferShedderMemory]:
    """Decide one round."""
    if len(view.brokers) == 0:
        return Proposal(PlanBuilder().build(examine_nothing(OUTCOMES, TRIGGERS)), memory)
    if view.published is None:
        nobody = [Transfer(NOBODY, NOBODY, NO_LOAD_DATA)]
        return Proposal(_build(None, Spread(0.0, 0, 0.0, 0.0), nobody, memory.hit_count, settings), memory)
    round_ = Round(view, view.published, settings)
    transfers, hit_count = round_.find_transfers(memory.hit_count)
    plan_ = _build(view.published, round_.spread, transfers, hit_count, settings)
    return Proposal(plan_, TransferShedderMemory(hit_count=hit_count))


def settle(proposal: Proposal[TransferShedderMemory], fates: Codes) -> TransferShedderMemory:
    """The hit count starts anew after brokers fired, and goes on where all unloads that they want have to wait."""
    plan_ = proposal.plan
    fired = np.flatnonzero(plan_.examined.outcome == FIRED)
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
        rows = np.array(transfer.rows, dtype=np.int64)
        tried = Candidates(
            rows=rows, examined=np.full(len(rows), number, dtype=np.int64), ends=np.array([len(rows)])
        )
        builder.add(
            tried,
            outcomes=np.array(transfer.outcomes, dtype=np.int8),
            destinations=np.array(transfer.destinations, dtype=np.int64),
            sakes=np.array(transfer.sakes, dtype=np.int64),
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
    found: Floats = np.where(rows == NOBODY, 0.0, column[rows])
    return found


def _describe_spread(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} publishes a smoothed usage of {evidence['high_usage_points']:.1f} % and {partner} one of "
        f"{evidence['low_usage_points']:.1f} %; the standard deviation is {evidence['deviation_points']:.1f} points with "
        f"{evidence['target_deviation_points']:g} allowed, {found_in(int(evidence['hit_count']), int(evidence['needed_hit_count']))}"
    )


def _describe_idle_broker(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"{source} publishes {evidence['high_smoothed_bytes_per_s']:.0f} bytes/s and {partner} only "
        f"{evidence['low_smoothed_bytes_per_s']:.0f}, and a smoothed usage of {evidence['low_usage_points']:.1f} % with a mean of "
        f"{evidence['mean_usage_points']:.1f} %, {found_in(int(evidence['hit_count']), int(evidence['needed_hit_count']))}"
    )


def _hit_count_outcome(evidence: Evidence) -> str:
    return f"hit-count {evidence['hit_count']}/{evidence['needed_hit_count']}"


def _stand(evidence: Evidence) -> Stand:
    return Stand(
        difference_points=float(evidence["deviation_points"]),
        threshold_points=float(evidence["target_deviation_points"]),
        hit_count=float(evidence["hit_count"]),
        needed_hit_count=float(evidence["needed_hit_count"]),
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
    evidence=(
        "high_usage_points",
        "low_usage_points",
        "mean_usage_points",
        "deviation_points",
        "target_deviation_points",
        "high_smoothed_bytes_per_s",
        "low_smoothed_bytes_per_s",
        "to_move_bytes_per_s",
        "hit_count",
        "needed_hit_count",
    ),
    sentences={TRIGGERS[OVERLOADED]: _describe_spread, TRIGGERS[UNDERLOADED]: _describe_idle_broker},
    details={"hit-count": _hit_count_outcome},
    headline=Headline(meaning="the standard deviation of the smoothed usages", stand_of=_stand),
    reads_published=True,
)
