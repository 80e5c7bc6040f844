"""The picture of a split that was decided: the cuts of the action in the topics as their broker reported them.

The loads are the fleet's newest, so they may differ a little from those the controller saw when it decided.
"""

from collections.abc import Mapping

import numpy as np

from policies.columns import Floats
from policies.splitting.cut import BundleLimits, Cut, SplitQuestion, children
from policies.splitting.positions import positions_of
from policies.splitting.ranges import Bundle
from policies.splitting.topics import topic_loads
from state.outputs import Split
from streaming.contract.messages import Traffic
from streaming.planner.split import Plan


def plan_cut(split: Split, topics: Mapping[str, Traffic], limits: BundleLimits) -> Plan:
    """The split as a plan over these topics of its bundle, for ``streaming.planner.split`` to draw."""
    bundle = Bundle.parse(split.bundle)
    loads = topic_loads(
        list(topics),
        positions=positions_of(topics),
        messages_per_s=_sums(topics, "msgRateIn", "msgRateOut"),
        bytes_per_s=_sums(topics, "msgThroughputIn", "msgThroughputOut"),
    )
    question = SplitQuestion(range=bundle.range, topics=loads, limits=limits)
    cut = Cut(boundaries=tuple(split.boundaries), reason=split.reason)
    return Plan(
        bundle=bundle,
        algorithm=split.algorithm,
        question=question,
        cut=cut,
        children=children(question, cut.boundaries),
        warnings=(),
    )


def _sums(topics: Mapping[str, Traffic], *rates: str) -> Floats:
    """The sum of these rates for each topic, (n,)."""
    return np.array([sum(getattr(traffic, rate) for rate in rates) for traffic in topics.values()])
