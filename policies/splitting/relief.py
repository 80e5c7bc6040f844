"""Which bundle alone overloads its broker and is too big to be moved: it has to be cut, not shed.

Ours, beside the shedding policy: AvgShedder leaves such a bundle where it is, for ever; ThresholdShedder moves it, and
the heat with it, from broker to broker. Looked at are the brokers the policy would shed, their heaviest bundle only.
Known to do badly: it believes the averages of the moment, as the policies do.
"""

import numpy as np

from policies.shedding.plan import SheddingPlan
from policies.snapshot import Snapshot
from policies.splitting.plan import BY_BROKER_BYTES, BY_BROKER_MESSAGES, Codes, Proposals
from policies.usage import Bools, Floats

_SHEDDING = ("fired", "sole-bundle")
"""Outcomes of a broker that has to get rid of load."""


def relief(snapshot: Snapshot, plan: SheddingPlan) -> Proposals:
    """Bundles that alone overload their broker, by message rate first, throughput second.

    Without one its broker would be at most average; with it any other would be busier than its broker without it.
    """
    brokers, bundles = snapshot.brokers, snapshot.bundles
    found: dict[int, int] = {}
    for measure, of_brokers, of_bundles in (
        (BY_BROKER_MESSAGES, brokers.messages_per_s, bundles.messages_per_s),
        (BY_BROKER_BYTES, brokers.bytes_per_s, bundles.bytes_per_s),
    ):
        for broker in _shedding_brokers(plan):
            rows = bundles.rows_of(broker)
            if rows.start == rows.stop:
                continue
            row = rows.start + int(np.argmax(of_bundles[rows]))
            if _is_all(of_brokers, brokers.may_receive, broker, float(of_bundles[row])):
                found.setdefault(row, measure)
    rows_found = np.array(sorted(found), dtype=np.int64)
    triggers: Codes = np.array([found[row] for row in rows_found.tolist()], dtype=np.int8)
    return Proposals(rows=rows_found, triggers=triggers)


def _shedding_brokers(plan: SheddingPlan) -> list[int]:
    codes = [code for code, name in enumerate(plan.examined.outcomes) if name in _SHEDDING]
    return sorted(set(plan.examined.high[np.isin(plan.examined.outcome, codes)].tolist()))


def _is_all(load: Floats, may_receive: Bools, broker: int, traffic: float) -> bool:
    """Whether ``traffic`` is what makes the broker overloaded, and too much for any other."""
    mean, left = float(load.mean()), float(load[broker]) - traffic
    others = may_receive.copy()
    others[broker] = False
    if not left <= mean < load[broker]:
        return False
    return bool((load[others] + traffic > left).all())
