"""An explanation for a person."""

from collections.abc import Iterator

from streaming.operators.explain import Explanation, Reason
from streaming.operators.text import table_lines

_SHOWN_HISTORY = 8


def explain_text(found: Explanation) -> str:
    """What is known, what keeps it where it is, and what would have to change."""
    return "\n".join([*_lines(found), ""])


def _lines(found: Explanation) -> Iterator[str]:
    yield f"{found.kind} {found.subject} of {found.cluster}, after round {found.round}, which ended {found.as_of}"
    yield from table_lines(found.knows)
    yield from ("", "What keeps it where it is, and what would have to change:")
    yield from table_lines([row for each in found.reasons for row in _rows(each)])
    if found.history:
        yield from ("", f"In the {found.rounds_count} rounds since {found.replayed_from}:")
        yield from table_lines(
            [(f"{count:,}", outcome) for outcome, count in list(found.history.items())[:_SHOWN_HISTORY]]
        )
    yield from (line for warning in found.warnings for line in ("", f"Note: {warning}."))


def _rows(reason: Reason) -> list[tuple[str, str]]:
    return [(reason.outcome, reason.detail), *([("", f"→ {reason.remedy}")] if reason.remedy else [])]
