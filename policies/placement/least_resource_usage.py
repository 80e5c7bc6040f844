"""The broker with the lowest weighted maximum usage.

From Pulsar 4.2.4: class ``LeastResourceUsageWithWeight``. Resource usage is that of the round, without Pulsar's history, which
changes with every lookup and cannot be followed from outside. The least used broker is taken; Pulsar takes one of those 10 points
below the mean. A broker that measures no resource does not count as idle. A bundle that leaves lowers its broker's usage at once,
where Pulsar waits for the next report: a bundle with a fifth of its broker's throughput takes a fifth of its usage along, as
ThresholdShedder and OverloadShedder also assume. It is known to do badly where usage is not in proportion to throughput.
"""

from typing import Final

import numpy as np

from policies.columns import Ints
from policies.placement.contract import Loads, Placement
from policies.shedding.contract import Evidence
from policies.shedding.view import RoundView


def loads(view: RoundView, rows: Ints, sources: Ints, overloaded_ratio: float) -> Loads:  # noqa: ARG001
    """Brokers that measured a resource are candidates."""
    brokers = view.brokers
    all_of_it = brokers.bytes_per_s[sources]
    flowing = all_of_it > 0
    with np.errstate(over="ignore"):
        share = view.bundles.bytes_per_s[rows] / np.where(flowing, all_of_it, 1.0)
    return Loads(
        cost=np.where(brokers.may_receive & brokers.is_measured, brokers.usage_ratio, np.inf),
        moved=np.where(flowing, np.minimum(share, 1.0), 0.0) * brokers.usage_ratio[sources],
    )


def _sentence(destination: str, evidence: Evidence) -> str:
    return f" to {destination}, the least used at {evidence['destination_usage_points']:.1f} %"


PLACEMENT: Final = Placement(
    name="least-resource-usage",
    loads=loads,
    evidence="destination_usage_points",
    evidence_factor=100.0,
    sentence=_sentence,
)
