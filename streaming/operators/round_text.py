"""Rounds and rejected records as text: a line for each as it comes, and one of them with all its details."""

import base64
from collections.abc import Callable, Iterator
from typing import TypeVar

from policies.wording import counted
from state.outputs import CandidateRow, ExaminedRow, RoundSummary, Section, SplitRow
from streaming.operators.round_events import Rejected, Round
from streaming.operators.text import counts_text, table_lines, value_text
from streaming.operators.upkeep import upkeep_lines

RowT = TypeVar("RowT")
BundleRowT = TypeVar("BundleRowT", CandidateRow, SplitRow)

_ROWS_MAX = 20
"""Rows of a table that are shown; the rest is counted, and is on the audit topic."""
_HEAD_CHARACTERS = 2_000
"""Characters of a rejected record that are shown."""


def tail_round_text(data: RoundSummary) -> str:
    """A round in one line."""
    marks = [data.mode, *(["paused"] if data.paused else [])]
    actions = counted(data.actions_count, "action")
    return f"{data.end} {data.cluster} round {data.round} [{', '.join(marks)}] {data.outcome}, {actions}: {data.reason}\n"


def round_text(event: Round) -> str:
    """What a round saw, decided and held back."""
    data = event.data
    lines = [
        f"round {data.round} of {data.cluster} ({data.system}), {data.start} to {data.end}",
        f"{data.outcome}: {data.reason}",
        "",
        *circumstances_lines(data),
        *looked_at_lines(data),
        *_aftermath_lines(data),
        "",
        f"Actions of the round: {', '.join(data.actions) or 'none'}",
    ]
    return "".join(f"{line}\n" for line in lines)


def circumstances_lines(data: RoundSummary) -> list[str]:
    """Mode, brokers, settings and the control event of a round."""
    facts = [
        ("mode", data.mode + (", paused" if data.paused else "")),
        ("brokers", f"{data.brokers_reporting_count} reporting, {data.brokers_missing_count} missing"),
        ("settings", data.settings_digest),
    ]
    if data.control is not None:
        facts.append(("control", f"{data.control.who}: {data.control.why}"))
    return table_lines(facts)


def looked_at_lines(data: RoundSummary, *, but: str = "") -> Iterator[str]:
    """What the policy looked at, and bundles with what became of each; ``but`` is a bundle that is shown elsewhere."""
    yield from _section("Looked at", data.examined, _examined_row)
    yield from _section("Bundles of the brokers that fired", _drop_row(data.candidates, but), _candidate_row)
    if data.splits.count:
        yield from _section("Bundles that stood out for a split", _drop_row(data.splits, but), _split_row)


def _section(title: str, section: Section[RowT], row_of: Callable[[RowT], tuple[str, ...]]) -> Iterator[str]:
    """Title and counts, the heaviest rows, and how many are not shown."""
    yield from ("", f"{title}: {counts_text(section.outcomes)}")
    rows = [row_of(row) for row in section.heaviest[:_ROWS_MAX]]
    yield from table_lines(rows) if rows else ()
    if section.count > len(rows):
        yield f"  and {section.count - len(rows)} more, counted above"


def _drop_row(section: Section[BundleRowT], bundle: str) -> Section[BundleRowT]:
    """The section without the row of a bundle; the outcomes count it all the same."""
    rows = [row for row in section.heaviest if row.bundle != bundle]
    count = section.count - (len(rows) < len(section.heaviest))
    return Section(count=count, outcomes=section.outcomes, heaviest=rows)


def examined_text(row: ExaminedRow) -> str:
    """The pair, or the broker, that the policy looked at."""
    return row.high_broker if row.low_broker is None else f"{row.high_broker} with {row.low_broker}"


def _examined_row(row: ExaminedRow) -> tuple[str, ...]:
    numbers = (f"{name} {value_text(value)}" for name, value in row.evidence.items())
    return (examined_text(row), row.detail, ", ".join(numbers))


def _candidate_row(row: CandidateRow) -> tuple[str, ...]:
    traffic = f"{value_text(row.messages_per_s)} messages/s, {value_text(row.bytes_per_s)} bytes/s"
    return (row.bundle, f"at {row.broker}", row.detail, traffic)


def _split_row(row: SplitRow) -> tuple[str, ...]:
    return (row.bundle, f"at {row.broker}", row.detail)


def _aftermath_lines(data: RoundSummary) -> Iterator[str]:
    """Earlier actions whose effect is now known, proposals, maintenance and drains, and findings, which no action can help."""
    if data.judged is not None:
        yield from _section(
            "Earlier actions that were judged",
            data.judged,
            lambda row: (f"{row.kind} {row.bundle}", row.outcome, row.id),
        )
    if data.approval is not None:
        yield from ("", f"Proposals: {data.approval.open_count} open, {len(data.approval.expired)} expired")
        said = [
            (f"{row.verdict} by {row.who}", row.proposal_id, row.outcome, row.detail)
            for row in data.approval.answers
        ]
        yield from table_lines(said) if said else ()
    upkeep = list(upkeep_lines(data.upkeep))
    if upkeep:
        yield from ("", "Maintenance and drains", *(f"  {line}" for line in upkeep))
    if data.findings.count:
        yield from _section("Findings", data.findings, lambda each: (each.kind, each.subject, each.advice))


def place_of(event: Rejected) -> str:
    """Where the record that could not be used is: topic, partition and offset."""
    return f"{event.data.topic}/{event.data.partition}@{event.data.offset}"


def tail_rejected_text(event: Rejected) -> str:
    """A record that could not be used, in one line."""
    cluster = f" {event.cluster}" if event.cluster else ""
    return f"{event.time or 'at an unknown time'}{cluster} {place_of(event)} {event.data.reason}: {event.data.detail}\n"


def rejected_text(event: Rejected) -> str:
    """A record that could not be used, with its beginning."""
    data = event.data
    head = base64.b64decode(data.head_base64).decode(errors="backslashreplace")
    rest = "" if len(head) <= _HEAD_CHARACTERS else f"\n… {data.size_bytes} bytes in all"
    facts = [
        ("reason", data.reason),
        ("cluster", event.cluster or "not known"),
        ("time", event.time or "not known"),
        ("size", f"{data.size_bytes} bytes"),
        ("sha256", data.sha256),
        ("id", event.id),
    ]
    lines = [place_of(event), data.detail, "", *table_lines(facts), "", "It begins with", ""]
    return "".join(f"{line}\n" for line in lines) + head[:_HEAD_CHARACTERS] + rest + "\n"
