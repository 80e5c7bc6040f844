"""``range_equally_divide``: cut the hash range in the middle, whatever is in it.

From Pulsar: ``RangeEquallyDivideBundleSplitAlgorithm``. It needs no topics. Known to do badly: topics and load need not
follow the range, so one child may get everything, and several splits in a row may be wasted.
"""

from policies.splitting.cut import Cut, SplitQuestion, cut_at

NAME = "range_equally_divide"


def divide(question: SplitQuestion) -> Cut:
    """One boundary, half the range above the lower bound."""
    lower, upper = question.range.lower, question.range.upper
    return cut_at(question, [lower + (upper - lower) // 2], "the range is cut in the middle")
