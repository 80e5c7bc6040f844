"""The split algorithms by name, and ``divide``, which runs one of them.

Four are Pulsar's and decide as 4.2.4 does, faults included; ``balanced_flow_divide``, in a module of its own, is ours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from policies.splitting.balanced_flow_divide import BALANCED_FLOW_DIVIDE, balanced_flow_divide
from policies.splitting.cut import Boundary, BundleLimits, Cut, SplitQuestion, cut_at, no_cut
from policies.splitting.ranges import BadRange
from policies.wording import counted, digits

RANGE_EQUALLY_DIVIDE = "range_equally_divide"
TOPIC_COUNT_EQUALLY_DIVIDE = "topic_count_equally_divide"
SPECIFIED_POSITIONS_DIVIDE = "specified_positions_divide"
FLOW_OR_QPS_EQUALLY_DIVIDE = "flow_or_qps_equally_divide"
_FEWEST_TOPICS = 2


def range_equally_divide(question: SplitQuestion) -> Cut:
    """One boundary in the middle of the hash range, whatever is in it.

    From Pulsar: ``RangeEquallyDivideBundleSplitAlgorithm``. It needs no topics. Known to do badly: topics and load need not
    follow the range, so one child may get everything, and several splits in a row may be wasted.
    """
    lower, upper = question.range.lower, question.range.upper
    return cut_at(question, [lower + (upper - lower) // 2], "the range is cut in the middle")


def topic_count_equally_divide(question: SplitQuestion) -> Cut:
    """One boundary, half-way between the two topics in the middle; none with fewer than two topics.

    From Pulsar: ``TopicCountEquallyDivideBundleSplitAlgorithm``. Known to do badly: it counts topics and ignores load; and
    where the two topics in the middle are direct neighbours, the boundary is the lower one's own position, so that both
    end up in the upper child.
    """
    where, count = question.topics.positions, len(question.topics)
    if count < _FEWEST_TOPICS:
        return no_cut(f"{counted(count, 'topic')} in the bundle, two are needed")
    start, end = int(where[count // 2 - 1]), int(where[count // 2])
    reason = f"half of {count} topics on each side"
    if end - start <= 1:
        reason = (
            f"the middle of {count} topics is between {start} and {end}, which leaves no room: the boundary is a "
            f"topic's own position, and that topic goes to the upper child"
        )
    return cut_at(question, [start + (end - start) // 2], reason)


class PositionsMissing(ValueError):
    """The algorithm was called without positions."""

    def __init__(self) -> None:
        super().__init__(
            f"{SPECIFIED_POSITIONS_DIVIDE} needs positions: split boundaries can't be empty; give at least one position"
        )


def specified_positions_divide(question: SplitQuestion) -> Cut:
    """The wanted boundaries strictly inside the range; none with fewer than two topics. Raises ``PositionsMissing``.

    From Pulsar: ``SpecifiedPositionsBundleSplitAlgorithm`` (PIP-143). It carries out a split that was worked out elsewhere.
    Where ours differs: repeated positions are taken once; Pulsar never answers a request that has them.
    """
    if not question.positions:
        raise PositionsMissing
    count = len(question.topics)
    if count < _FEWEST_TOPICS:
        return no_cut(f"{counted(count, 'topic')} in the bundle, two are needed")
    inside = [at for at in question.positions if question.range.lower < at < question.range.upper]
    if not inside:
        return no_cut(f"none of the positions given is strictly inside {question.range}")
    return cut_at(question, question.positions, "cut at the positions given")


def flow_or_qps_equally_divide(question: SplitQuestion) -> Cut:
    """A boundary wherever the running rate or throughput would pass the limit; none below the limits plus the difference threshold.

    From Pulsar: ``FlowOrQpsEquallyDivideBundleSplitAlgorithm`` (PIP-169). The proposal's own boundary, without the added 1, is
    ``boundary = "proposal"``. Known to do badly: despite its name it equalises nothing, the last child may hold next to nothing;
    it fills children up to the limit, so they soon pass it again; and it may give several boundaries, which Pulsar's
    extensible load manager refuses (#22254).

    If several topics are at one position, each keeps its place in the walk, but all count with the load of the last by name.
    Pulsar does the same, because it keeps the loads in a map by position.
    """
    topics, limits = question.topics, question.limits
    if len(topics) <= 1:
        return no_cut(f"{counted(len(topics), 'topic')} in the bundle, two are needed")
    loaded = np.flatnonzero((topics.messages_per_s > 0) | (topics.bytes_per_s > 0))
    positions, messages, volume = (
        column[loaded] for column in (topics.positions, topics.messages_per_s, topics.bytes_per_s)
    )
    stands_for = np.searchsorted(positions, positions, side="right") - 1
    if len(np.unique(positions)) < _FEWEST_TOPICS:
        return no_cut("the topics with traffic are at fewer than two positions")
    allowed = 1 + question.difference_threshold_percent / 100.0
    totals = math.fsum(messages.tolist()), math.fsum(volume.tolist())
    if totals[0] < limits.messages_per_s * allowed and totals[1] < limits.bytes_per_s * allowed:
        return no_cut(
            f"{digits(totals[0], 3)} messages/s and {digits(totals[1], 3)} bytes/s are below the limits of "
            f"{digits(limits.messages_per_s)} and {digits(limits.bytes_per_s)} and {digits(question.difference_threshold_percent)} %"
        )
    loads = messages[stands_for].tolist(), volume[stands_for].tolist()
    wanted = _walk(positions.tolist(), *loads, limits, question.boundary)
    if not wanted:
        return no_cut("the running totals nowhere pass a limit")
    return cut_at(question, wanted, "cut wherever the running total would pass a limit")


def _walk(
    positions: Sequence[int],
    messages: Sequence[float],
    volume: Sequence[float],
    limits: BundleLimits,
    boundary: Boundary,
) -> list[int]:
    """A boundary before each topic that no longer fits in with the topics since the last boundary."""
    added = 1 if boundary == "shipped" else 0
    wanted = []
    running_messages, running_volume = messages[0], volume[0]
    for row in range(1, len(positions)):
        running_messages += messages[row]
        running_volume += volume[row]
        if running_messages > limits.messages_per_s or running_volume > limits.bytes_per_s:
            before = positions[row - 1]
            wanted.append(before + (positions[row] - before) // 2 + added)
            running_messages, running_volume = messages[row], volume[row]
    return wanted


Algorithm = Callable[[SplitQuestion], Cut]

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        BALANCED_FLOW_DIVIDE: balanced_flow_divide,
        FLOW_OR_QPS_EQUALLY_DIVIDE: flow_or_qps_equally_divide,
        RANGE_EQUALLY_DIVIDE: range_equally_divide,
        SPECIFIED_POSITIONS_DIVIDE: specified_positions_divide,
        TOPIC_COUNT_EQUALLY_DIVIDE: topic_count_equally_divide,
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
