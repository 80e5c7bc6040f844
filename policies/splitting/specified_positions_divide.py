"""``specified_positions_divide``: cut at the positions given.

From Pulsar: ``SpecifiedPositionsBundleSplitAlgorithm`` (PIP-143). It carries out a split that was worked out elsewhere.
Where ours differs: repeated positions are taken once; Pulsar never answers a request that has them.
"""

from policies.splitting.cut import Cut, SplitQuestion, cut_at, no_cut

NAME = "specified_positions_divide"


class PositionsMissing(ValueError):
    """The algorithm was called without positions."""

    def __init__(self) -> None:
        super().__init__(
            f"{NAME} needs positions: split boundaries can't be empty; give at least one position"
        )


def divide(question: SplitQuestion) -> Cut:
    """The wanted boundaries strictly inside the range; none with fewer than two topics. Raises ``PositionsMissing``."""
    if not question.positions:
        raise PositionsMissing
    count = len(question.topics)
    if count < 2:  # noqa: PLR2004
        return no_cut(f"{count} topic in the bundle, two are needed")
    inside = [at for at in question.positions if question.range.lower < at < question.range.upper]
    if not inside:
        return no_cut(f"none of the positions given is strictly inside {question.range}")
    return cut_at(question, question.positions, "cut at the positions given")
