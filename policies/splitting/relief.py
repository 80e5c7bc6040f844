"""Which bundle puts its broker above average and is too big to be moved: it has to be cut, not shed.

Our own, beside the shedding policy: AvgShedder leaves such a bundle where it is, for ever; ThresholdShedder moves it, and
the overload with it, from broker to broker. It looks at the heaviest bundle of each broker that the policy would shed, if the
policy's other moves from that broker take no more than half of its load above the mean, and none of them waits for a later round. If
the policy finds the bundle too heavy for its goal and the other moves are many, the split takes their place: a few of its parts do more.
The bundle is cut into as few parts as possible that the idlest broker could take one by one. It is left alone where that would be
more than ``MOST_CHILDREN``: so small an imbalance is not worth so many bundles. Parts are of their bundle's namespace: a bundle that
may not leave its broker, such as one of another isolation group, is passed over, and brokers that may not receive one for
anti-affinity take no part. Known to do badly: it believes the averages of the moment, as the policies do.
"""

import math

import numpy as np

from policies.columns import Bools, Floats
from policies.shedding.contract import FIRED, BundleOutcome, SheddingPlan
from policies.shedding.view import NOBODY, RoundView
from policies.splitting.plan import BY_BROKER_BYTES, BY_BROKER_MESSAGES, Proposals

MOVES_PER_PART = 2
"""From so many moves of other bundles on, for each part that it would be cut into, a bundle is cut instead."""
MOST_CHILDREN = 4
"""Most parts that a bundle is cut into: a split cannot be undone, while an imbalance passes."""
_SHEDDING = (FIRED, "sole-bundle", "no-better-place")
"""Outcomes of a broker that has to get rid of load."""
_GOES_ON = (BundleOutcome.BUDGET, BundleOutcome.ROUND_FULL)
"""Outcomes of a bundle whose broker gives more in a later round: how much its moves help is not known before."""


def relief(view: RoundView, plan: SheddingPlan, stays: Bools | None = None) -> Proposals:
    """Bundles that put their broker above average and fit no other: by message rate or throughput, in whichever it stands out more.

    Without such a bundle its broker would have at most the mean load; any other broker that took it would be busier than its
    broker would be without it; and the other moves away from its broker, none of which waits for a later round, do not help enough. Or
    these are ``MOVES_PER_PART`` or more for each part of a bundle that is too heavy for the plan's goal, whatever waits.

    ``stays``, (m,), are bundles that may not leave their brokers, nor may their parts; None: there is none.
    """
    brokers, bundles, barred = view.brokers, view.bundles, dict[int, str]()
    may_leave = np.ones(len(bundles), dtype=np.bool_) if stays is None else ~stays
    messages, volume = brokers.messages_per_s, brokers.bytes_per_s
    proposals: dict[int, tuple[int, int, float, int]] = {}
    shedding, goes_on = _shedding_brokers(plan)
    for broker in shedding:
        rows = bundles.rows_of(broker)
        by_messages = bool(messages[broker] * volume.sum() >= volume[broker] * messages.sum())
        load = messages if by_messages else volume
        traffic = bundles.messages_per_s if by_messages else bundles.bytes_per_s
        if not may_leave[rows].any():
            continue
        row = rows.start + int(np.argmax(np.where(may_leave[rows], traffic[rows], -1.0)))
        bundle, whole, mean = float(traffic[row]), float(load[broker]), float(load.mean())
        moved = plan.unload_rows[(plan.unload_rows >= rows.start) & (plan.unload_rows < rows.stop)]
        others = moved[moved != row]
        receivers = receivers_of(view, row)
        parts = parts_count(load, receivers, broker, kept=whole, bundle=bundle)
        replaces = row in plan.too_heavy and 0 < MOVES_PER_PART * parts <= len(others)
        if not replaces:
            kept = whole - float(traffic[others].sum())
            if broker in goes_on or 2 * (kept - mean) < whole - mean or kept - bundle > mean:
                continue
            parts = parts_count(load, receivers, broker, kept=kept, bundle=bundle)
            if not parts and parts_count(load, brokers.may_receive, broker, kept=kept, bundle=bundle):
                barred[row] = _bar(view, load, row, broker)
        if parts or row in barred:
            trigger = BY_BROKER_MESSAGES if by_messages else BY_BROKER_BYTES
            proposals[row] = (trigger, max(0, parts - 1), mean, len(others) if replaces else 0)
    rows_found = sorted(proposals)
    return Proposals(
        rows=np.array(rows_found, dtype=np.int64),
        triggers=np.array([proposals[row][0] for row in rows_found], dtype=np.int8),
        boundaries_counts=np.array([proposals[row][1] for row in rows_found], dtype=np.int64),
        means_per_s=np.array([proposals[row][2] for row in rows_found], dtype=np.float64),
        replaced_counts=np.array([proposals[row][3] for row in rows_found], dtype=np.int64),
        barred=barred,
        has_counted="hit_count" in plan.examined.evidence,
    )


def receivers_of(view: RoundView, row: int) -> Bools:
    """Brokers that the rules let receive a bundle or a part of it, (n,)."""
    brokers = view.brokers
    return (
        brokers.may_receive
        if view.rules is None
        else view.rules.receivers(row, np.arange(len(brokers.names)))
    )


def _bar(view: RoundView, load: Floats, row: int, broker: int) -> str:
    """Why the idlest broker may not receive a part of a bundle."""
    others = view.brokers.may_receive & (np.arange(len(load)) != broker)
    forbidden = view.rules and view.rules.bars(row, int(np.argmin(np.where(others, load, np.inf))))
    return forbidden.detail if forbidden else ""


def _shedding_brokers(plan: SheddingPlan) -> tuple[list[int], set[int]]:
    """Brokers that have to get rid of load, and those of them whose moves go on in a later round."""
    examined = plan.examined
    codes = [code for code, name in enumerate(examined.outcomes) if name in _SHEDDING]
    high = examined.high[np.isin(examined.outcome, codes)]
    waits = plan.tried_examined[np.isin(plan.tried_outcomes, _GOES_ON)]
    return sorted(set(high[high != NOBODY].tolist())), set(examined.high[waits].tolist())


def parts_count(load: Floats, receivers: Bools, broker: int, *, kept: float, bundle: float) -> int:
    """How many parts to cut a load of ``bundle`` into, on a broker that has ``kept`` after its other moves; 0: do not cut."""
    receivers = receivers & (np.arange(len(load)) != broker)
    if not receivers.any() or kept <= float(load.mean()):
        return 0
    fits = (kept - float(load[receivers].min())) / 2
    if fits <= 0 or bundle <= fits:
        return 0
    count = max(2, math.ceil(bundle / fits))
    return count if count <= MOST_CHILDREN else 0
