"""``flow_or_qps_equally_divide``: cut wherever the running rate or throughput would pass the bundle's limit.

From Pulsar: ``FlowOrQpsEquallyDivideBundleSplitAlgorithm`` (PIP-169); it decides exactly as 4.2.4 does. The proposal's own
boundary, without the added 1, is ``boundary = "proposal"``. Known to do badly: despite its name it equalises nothing,
the last child may hold next to nothing; it fills children up to the limit, so they soon pass it again; and it may
give several boundaries, which Pulsar's extensible load manager refuses (#22254).

If several topics are at one position, each keeps its place in the walk, but all count with the load of the last by name.
Pulsar does the same, because it keeps the loads in a map by position.
"""

import math
from collections.abc import Sequence

import numpy as np

from policies.splitting.cut import Boundary, BundleLimits, Cut, SplitQuestion, cut_at, no_cut

NAME = "flow_or_qps_equally_divide"


def divide(question: SplitQuestion) -> Cut:
    """Any number of boundaries; none while the bundle is below its limits plus the difference threshold."""
    topics, limits = question.topics, question.limits
    if len(topics) <= 1:
        return no_cut(f"{len(topics)} topic in the bundle, two are needed")
    loaded = np.flatnonzero((topics.messages_per_s > 0) | (topics.bytes_per_s > 0))
    positions, messages, volume = (
        column[loaded] for column in (topics.positions, topics.messages_per_s, topics.bytes_per_s)
    )
    stands_for = np.searchsorted(positions, positions, side="right") - 1
    if len(np.unique(positions)) < 2:  # noqa: PLR2004
        return no_cut("the topics with traffic are at fewer than two positions")
    allowed = 1 + question.difference_threshold_percent / 100.0
    totals = math.fsum(messages.tolist()), math.fsum(volume.tolist())
    if totals[0] < limits.messages_per_s * allowed and totals[1] < limits.bytes_per_s * allowed:
        return no_cut(
            f"{totals[0]:g} messages/s and {totals[1]:g} bytes/s are below the limits of "
            f"{limits.messages_per_s:g} and {limits.bytes_per_s:g} and {question.difference_threshold_percent:g} %"
        )
    wanted = _walk(
        positions.tolist(),
        messages[stands_for].tolist(),
        volume[stands_for].tolist(),
        limits,
        question.boundary,
    )
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
