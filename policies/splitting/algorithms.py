"""The algorithms by name, and ``divide``, which runs one of them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from policies.splitting import (
    balanced_flow_divide,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from policies.splitting.cut import Cut, SplitQuestion
from policies.splitting.ranges import BadRange

Algorithm = Callable[[SplitQuestion], Cut]

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        module.NAME: module.divide
        for module in (
            balanced_flow_divide,
            flow_or_qps_equally_divide,
            range_equally_divide,
            specified_positions_divide,
            topic_count_equally_divide,
        )
    }
)
"""Every algorithm by its name; the names of the four that Pulsar ships are Pulsar's."""


class UnknownAlgorithm(ValueError):
    """No algorithm of this name; the message lists the names that exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name[:200]!r} is no split algorithm; there are {', '.join(ALGORITHMS)}")


def divide(algorithm: str, question: SplitQuestion) -> Cut:
    """Where ``algorithm`` cuts.

    Raises ``UnknownAlgorithm``, ``BadRange`` for a range of width 1 (Pulsar's ``splitBundles`` refuses it whatever the
    algorithm), and what the algorithm raises.
    """
    if algorithm not in ALGORITHMS:
        raise UnknownAlgorithm(algorithm)
    if not question.range.can_split:
        raise BadRange(f"{question.range} can't be split further: a range must be larger than 1")
    return ALGORITHMS[algorithm](question)
