"""What rounds say of one broker or bundle: its outcomes with their numbers, what held it, and what would have to change."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from state.outputs import CandidateRow, JudgedRow, LeftRow, RoundSummary, Section, SplitRow
from streaming.operators.action_events import UnreadableEvent, epoch_of
from streaming.operators.remedies import examined_remedy_of, remedy_of
from streaming.operators.round_events import Round, read_round
from streaming.operators.round_text import looked_at_lines, tail_round_text
from streaming.operators.text import table_lines, value_text
from streaming.transport.side import TopicRecord

RowT = TypeVar("RowT", bound=msgspec.Struct)
NEWEST_COUNT = 5
"""Rounds that are shown."""


def newest_about(records: Iterable[TopicRecord], subject: str, *, is_bundle: bool) -> list[Round]:
    """The newest rounds that name a broker or bundle, with only what they say of it; the newest comes first.

    What a controller wrote that another one had replaced does not count, nor what cannot be read.
    """
    found: deque[Round] = deque(maxlen=NEWEST_COUNT)
    epochs: dict[str, int] = {}
    named = subject.encode()
    for record in records:
        if record.value is None or named not in record.value:
            continue
        try:
            event = read_round(record.value)
        except UnreadableEvent:
            continue
        epoch = epoch_of(record.headers) or 0
        if epoch < epochs.get(event.source, 0):
            continue
        epochs[event.source] = epoch
        data = _about(event.data, subject, is_bundle=is_bundle)
        if data is not None:
            found.append(msgspec.structs.replace(event, data=data))
    return list(reversed(found))


def _about(data: RoundSummary, subject: str, *, is_bundle: bool) -> RoundSummary | None:
    """The summary with only what it says of a broker or bundle, and of the bundle's broker; None where that is nothing."""

    def is_named(row: CandidateRow | SplitRow | LeftRow) -> bool:
        return subject == (row.bundle if is_bundle else row.broker)

    candidates, splits = _keep(data.candidates, is_named), _keep(data.splits, is_named)
    left = data.upkeep and _keep(data.upkeep.left, is_named)
    judged = data.judged and _keep(data.judged, lambda row: subject in {row.bundle, *row.brokers.values()})
    named = [row.broker for section in (candidates, splits, left) if section for row in section.heaviest]
    brokers = {*named} if is_bundle else {subject}
    loads = [row for row in data.brokers if row.broker in brokers]
    missing = [name for name in data.brokers_missing if name in brokers]
    if not (named or (judged and judged.heaviest) or (loads and not is_bundle) or missing):
        return None
    return msgspec.structs.replace(
        data,
        brokers=loads,
        brokers_missing=missing,
        brokers_failed={name: why for name, why in data.brokers_failed.items() if name in brokers},
        examined=_keep(data.examined, lambda row: bool({row.high_broker, row.low_broker} & brokers)),
        candidates=candidates,
        splits=splits,
        judged=judged,
        upkeep=data.upkeep and left and msgspec.structs.replace(data.upkeep, left=left),
    )


def _keep(section: Section[RowT], is_named: Callable[[RowT], bool]) -> Section[RowT]:
    rows = [row for row in section.heaviest if is_named(row)]
    return Section(count=len(rows), outcomes=dict(Counter(row.outcome for row in rows)), heaviest=rows)  # type: ignore[attr-defined]


def about_text(rounds: Sequence[RoundSummary]) -> str:
    """What rounds say of a broker or bundle, and what would have to change since the newest of them."""
    lines = [line for data in rounds for line in _round_lines(data)]
    remedies = dict(_remedies(rounds[0]))
    if remedies:
        lines += ["What would have to change:", *table_lines(list(remedies.items()))]
    return "".join(f"{line}\n" for line in lines)


def _round_lines(data: RoundSummary) -> Iterator[str]:
    yield tail_round_text(data).rstrip("\n")
    for load in data.brokers:
        measured = (
            f"{name} {value_text(value)}" for name, value in load.resources.items() if value != "not-measured"
        )
        mean = "" if data.usage is None else f", the mean is {data.usage.mean_points:.1f}"
        yield f"  {load.broker} is at {load.usage_points:.1f} %{mean}: {', '.join(measured)}; {load.bundles_count} bundles"
    for name in data.brokers_missing:
        yield f"  {name} did not report: {data.brokers_failed.get(name, 'the reason is not known')}"
    yield from looked_at_lines(data)
    yield from _rows("Earlier actions that were judged", data.judged, _judged_row)
    yield from _rows("Left at drained brokers", data.upkeep.left if data.upkeep else None, _left_row)
    yield ""


def _rows(
    title: str, section: Section[RowT] | None, row_of: Callable[[RowT], tuple[str, ...]]
) -> Iterator[str]:
    if section is not None and section.heaviest:
        yield from ("", f"{title}:", *table_lines([row_of(row) for row in section.heaviest]))


def _judged_row(row: JudgedRow) -> tuple[str, ...]:
    return (f"{row.kind} {row.bundle}", row.outcome, row.id)


def _left_row(row: LeftRow) -> tuple[str, ...]:
    return (row.bundle, f"at {row.broker}", row.detail)


def _remedies(data: RoundSummary) -> Iterator[tuple[str, str]]:
    """By outcome what would have to change, those of the whole cluster first."""
    if data.paused:
        yield "paused", remedy_of("paused")
    if data.failing_since is not None:
        yield "failing", remedy_of("failing")
    if data.mode == "dry-run":
        yield "dry-run", 'mode has to be "act": `trimtab mode act`'
    found = [(outcome, examined_remedy_of(outcome, data.policy)) for outcome in data.examined.outcomes]
    held = (*data.candidates.outcomes, *(data.upkeep.left.outcomes if data.upkeep else ()))
    found += [(outcome, remedy_of(outcome)) for outcome in held]
    yield from ((outcome, remedy) for outcome, remedy in found if remedy)
