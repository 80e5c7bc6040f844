"""``topic_count_equally_divide``: as many topics on one side as on the other.

From Pulsar: ``TopicCountEquallyDivideBundleSplitAlgorithm``. Known to do badly: it counts topics and ignores load; and
where the two topics in the middle are direct neighbours, the boundary is the lower one's own position, so that both
end up in the upper child.
"""

from policies.splitting.cut import Cut, SplitQuestion, cut_at, no_cut

NAME = "topic_count_equally_divide"


def divide(question: SplitQuestion) -> Cut:
    """One boundary, half-way between the two topics in the middle; none with fewer than two topics."""
    where, count = question.topics.positions, len(question.topics)
    if count < 2:  # noqa: PLR2004
        return no_cut(f"{count} topic in the bundle, two are needed")
    start, end = int(where[count // 2 - 1]), int(where[count // 2])
    reason = f"half of {count} topics on each side"
    if end - start <= 1:
        reason = (
            f"the middle of {count} topics is between {start} and {end}, which leaves no room: the boundary is a "
            f"topic's own position, and that topic goes to the upper child"
        )
    return cut_at(question, [start + (end - start) // 2], reason)
