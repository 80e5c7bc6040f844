"""Actions as text: two lines each as they come, and the whole story of one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from state.outputs import CandidateRow, ExaminedRow, RoundSummary
from streaming.operators.action_events import Action

_DETAILS_MAX = 20
"""Rows of a table shown of what was held back; the rest is counted, and stands on the audit topic."""


def tail_text(action: Action, *, epoch: int | None, stale: bool) -> str:
    """What an action does, and why, in two lines."""
    marks = [
        *(["dry-run"] if action.data.dry_run else []),
        *([f"epoch {epoch} is stale: not to be obeyed"] if stale else []),
    ]
    marked = f" [{', '.join(marks)}]" if marks else ""
    return (
        f"{action.time} {action.cluster} {headline(action)}{marked} ({action.id})\n    {action.data.reason}\n"
    )


def headline(action: Action) -> str:
    """Kind, target and, where the kind has them, from which broker to which."""
    data = action.data
    way = ""
    if data.source_broker is not None:
        way = f" {data.source_broker} -> {data.destination_broker or 'where placement chooses'}"
    elif data.broker is not None:
        way = f" at {data.broker}"
    return f"{action.kind} {action.subject}{way}"


def why_text(action: Action, summary: RoundSummary | None, *, missing: str) -> str:
    """The sentence, the numbers, both sides before and after, and what else was looked at.

    ``missing`` is said where the round's summary is not at hand.
    """
    data = action.data
    lines = [
        headline(action),
        data.reason,
        "",
        f"decided   in round {data.round} of {action.cluster}, which ended at {action.time}",
        f"by        {data.policy}, {data.trigger}",
        f"until     {data.expires_at}" + (" (dry-run: nobody obeys it)" if data.dry_run else ""),
        f"provided  {_pairs(data.precondition) or 'nothing'}",
        f"id        {action.id}",
        "",
        "Evidence",
        *_table([(name, _value(value)) for name, value in sorted(data.evidence.items())]),
        *_sides(action, summary),
    ]
    lines += ["", missing] if summary is None else _round(action, summary)
    return "".join(f"{line}\n" for line in lines)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} is {_value(value)}" for name, value in sorted(values.items()))


def _value(value: object) -> str:
    """A number with up to three decimals, digits in groups; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell, the last one ragged."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return ["  " + "  ".join(row).rstrip() for row in cells]


_SIDES = ("source", "destination")


def _sides(action: Action, summary: RoundSummary | None) -> Iterator[str]:
    """Load of what it concerns: of brokers before it, from the summary, and after it; of children after it."""
    brokers = {"source": action.data.source_broker, "destination": action.data.destination_broker}
    loads = {} if summary is None else {load.broker: load for load in summary.brokers}
    rows = []
    for side, expected in sorted(action.data.expected.items(), key=_side_order):
        broker = brokers.get(side)
        for name, after in sorted(expected.items()) if isinstance(expected, Mapping) else ():
            before = getattr(loads.get(broker or ""), name, None)
            shown = "" if broker is None else "unknown" if before is None else _value(before)
            rows.append((f"{side} {broker}" if broker else side, name, shown, _value(after)))
    if rows:
        yield from ("", "Load, after the round's earlier actions too")
        yield from _table([("", "", "before", "after"), *rows])


def _side_order(side: tuple[str, object]) -> tuple[int, str]:
    """Source, destination, then anything else by name."""
    name = side[0]
    return (_SIDES.index(name) if name in _SIDES else len(_SIDES), name)


def _round(action: Action, summary: RoundSummary) -> Iterator[str]:
    yield from ("", f"The round: {summary.reason}")
    facts = [
        ("mode", summary.mode + (", paused" if summary.paused else "")),
        ("brokers", f"{summary.brokers_reporting_count} reporting, {summary.brokers_missing_count} missing"),
        ("settings", summary.settings_digest),
    ]
    if summary.control is not None:
        facts.append(("control", f"{summary.control.who}: {summary.control.why}"))
    yield from _table(facts)
    yield from _examined_line(summary)
    yield from _candidates(action, summary)
    yield from _splits(action, summary)
    others = [each for each in summary.actions if each != action.id]
    yield from ("", f"Other actions of the round: {', '.join(others) or 'none'}")


def _examined_line(summary: RoundSummary) -> Iterator[str]:
    yield from ("", f"Looked at: {_counts(summary.examined.outcomes)}")
    rows = [_examined_row(row) for row in summary.examined.heaviest[:_DETAILS_MAX]]
    yield from _table(rows) if rows else ()
    yield from _more(summary.examined.count, len(rows))


def _examined_row(row: ExaminedRow) -> tuple[str, str]:
    pair = row.high_broker if row.low_broker is None else f"{row.high_broker} with {row.low_broker}"
    return (pair, row.detail)


def _candidates(action: Action, summary: RoundSummary) -> Iterator[str]:
    """Held bundles first of all: that is what one asks for."""
    yield from ("", f"Bundles of those that fired: {_counts(summary.candidates.outcomes)}")
    shown = [row for row in summary.candidates.heaviest if row.bundle != action.subject][:_DETAILS_MAX]
    yield from _table([_candidate_row(row) for row in shown]) if shown else ()
    itself = any(row.bundle == action.subject for row in summary.candidates.heaviest)
    yield from _more(summary.candidates.count, len(shown) + itself)


def _splits(action: Action, summary: RoundSummary) -> Iterator[str]:
    """Bundles that stood out for a split; nothing where none did."""
    if summary.splits.count == 0:
        return
    yield from ("", f"Bundles that stood out for a split: {_counts(summary.splits.outcomes)}")
    shown = [row for row in summary.splits.heaviest if row.bundle != action.subject][:_DETAILS_MAX]
    rows = [(row.bundle, f"at {row.broker}", row.detail) for row in shown]
    yield from _table(rows) if rows else ()
    itself = any(row.bundle == action.subject for row in summary.splits.heaviest)
    yield from _more(summary.splits.count, len(shown) + itself)


def _candidate_row(row: CandidateRow) -> tuple[str, ...]:
    traffic = f"{_value(row.messages_per_s)} messages/s, {_value(row.bytes_per_s)} bytes/s"
    return (row.bundle, f"at {row.broker}", row.detail, traffic)


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "none"


def _more(count: int, shown: int) -> Iterator[str]:
    if count > shown:
        yield f"  and {count - shown} more, counted above"
