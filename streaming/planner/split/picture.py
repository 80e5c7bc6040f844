"""A split plan drawn for a terminal: the bundle as a bar, its topics' load above it, the cuts in it, its children below.

The bar is true to scale: a column is a sixty-fourth of the range. Several cuts in one column look like one; the table of
children tells them apart.
"""

import numpy as np

from policies.columns import Ints
from policies.splitting.cut import ChildLoad
from streaming.planner.split.plan import Plan

_WIDTH = 64
_BAR_WIDTH = 20
_LEVELS = " ▁▂▃▄▅▆▇█"
_IDLE = "·"
"""A column with topics and no load."""


def draw(plan: Plan) -> str:
    """The picture as several lines, each with a line break at its end."""
    lines = [
        f"{plan.bundle}  {plan.algorithm}",
        f"{'' if plan.cut.boundaries else 'no split: '}{plan.cut.reason}",
        "",
        *bar(plan),
        f"0x{plan.bundle.range.lower:08x}{f'0x{plan.bundle.range.upper:08x}':>{_WIDTH - 8}}",
        *_children(plan),
        *(f"warning: {text}" for text in plan.warnings),
    ]
    return "\n".join([*lines, ""])


def bar(plan: Plan) -> tuple[str, str]:
    """The load of the topics where they are, and below it the bundle with its cuts; 66 columns at most."""
    return f" {_loads(plan)}".rstrip(), _bar(plan)


def _columns(plan: Plan, positions: Ints) -> Ints:
    """Column of each position, (n,)."""
    range_ = plan.bundle.range
    return np.minimum((positions - range_.lower) * _WIDTH // (range_.upper - range_.lower), _WIDTH - 1)


def _loads(plan: Plan) -> str:
    topics, limits = plan.question.topics, plan.question.limits
    load = np.maximum(topics.messages_per_s / limits.messages_per_s, topics.bytes_per_s / limits.bytes_per_s)
    where = _columns(plan, topics.positions)
    loads = np.bincount(where, weights=load, minlength=_WIDTH)
    counts = np.bincount(where, minlength=_WIDTH)
    most = loads.max()
    steps = (
        np.ceil(loads / most * (len(_LEVELS) - 1)).astype(int) if most > 0 else np.zeros(_WIDTH, dtype=int)
    )
    return "".join(
        _LEVELS[step] if step or not count else _IDLE
        for step, count in zip(steps.tolist(), counts.tolist(), strict=True)
    )


def _bar(plan: Plan) -> str:
    cells = ["─"] * _WIDTH
    for column in _columns(plan, np.array(plan.cut.boundaries, dtype=np.int64)).tolist():
        cells[column] = "┼"
    return f"├{''.join(cells)}┤"


def _children(plan: Plan) -> list[str]:
    if not plan.children:
        return []
    limits = plan.question.limits
    ratios = [limits.ratio(child.messages_per_s, child.bytes_per_s) for child in plan.children]
    most = max(ratios) or 1.0
    head = f"{'child':<22}{'topics':>8}{'messages/s':>14}{'bytes/s':>18}  of the limits"
    rows = [_row(child, ratio, ratio / most) for child, ratio in zip(plan.children, ratios, strict=True)]
    return ["", head, *rows]


def _row(child: ChildLoad, ratio: float, share: float) -> str:
    numbers = f"{child.topics_count:>8,}{child.messages_per_s:>14,.1f}{child.bytes_per_s:>18,.0f}"
    return f"{child.range!s:<22}{numbers}  {ratio:>6.2f} {'█' * round(share * _BAR_WIDTH)}".rstrip()
