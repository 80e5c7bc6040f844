"""Which control event is in force in which round.

An event applies from the first round that starts at or after its time + 2 x lateness, so that the result is the same in every
replay and with any number of partitions; one that arrives after that round has closed applies from the first open round.
"""

from typing import Final

from state.engine.memory import ControlRecord, Header
from state.events import Control
from state.settings import RoundSettings

MAX_WAITING_COUNT: Final = 100
"""Most control events that are remembered of one cluster: the one in force and those that wait for their rounds. A silent
cluster closes no round, so each event would wait for ever."""


def first_round(time_ms: int, *, lateness_ms: int, length_ms: int) -> int:
    """Number of the first round that starts at or after an event's time + 2 x lateness."""
    return -(-(time_ms + 2 * lateness_ms) // length_ms)


def _due(time_ms: int, rounds: RoundSettings, length_ms: int) -> int:
    return first_round(time_ms, lateness_ms=rounds.lateness_ms, length_ms=length_ms)


def applies_from(header: Header, event: Control, rounds: RoundSettings) -> int:
    """The first round that an event applies to if it comes now."""
    due = _due(event.time_ms, rounds, header.length_ms)
    return due if header.next_round is None else max(due, header.next_round)


def take(header: Header, event: Control, rounds: RoundSettings) -> bool:
    """Remember a control event; False where a newer one already makes it pointless (or it is a repeat)."""
    since = applies_from(header, event, rounds)
    record = ControlRecord(
        time_ms=event.time_ms,
        id=event.id,
        paused=event.paused,
        mode=event.mode,
        overlay=event.overlay,
        who=event.who,
        why=event.why,
        applies_from=since,
        arrived_late=_due(event.time_ms, rounds, header.length_ms) < since,
        resumed_ms=event.resumed_ms,
        until_ms=event.until_ms,
        upkeep=event.upkeep,
        approval=event.approval,
    )
    if any(known.age_key == record.age_key for known in header.control):
        return False
    found = sorted([*header.control, record], key=lambda known: known.age_key)
    header.control = _needed(found)
    if record not in header.control:
        return False
    if len(header.control) > MAX_WAITING_COUNT:
        del header.control[1]  # not the first: it may be in force, and stays so until another one applies
    return True


def event_of(record: ControlRecord) -> Control:
    """The event that was remembered."""
    return Control(
        id=record.id,
        time_ms=record.time_ms,
        paused=record.paused,
        mode=record.mode,
        overlay=record.overlay,
        who=record.who,
        why=record.why,
        resumed_ms=record.resumed_ms,
        until_ms=record.until_ms,
        upkeep=record.upkeep,
        approval=record.approval,
    )


def _needed(records: list[ControlRecord]) -> list[ControlRecord]:
    """Events, ascending by age, without those that are older than another one and apply no earlier."""
    kept: list[ControlRecord] = []
    for record in reversed(records):
        if not kept or record.applies_from < kept[-1].applies_from:
            kept.append(record)
    return kept[::-1]


def in_force(header: Header, number: int) -> ControlRecord | None:
    """The newest event that applies to a round; older ones are forgotten, because rounds close in order."""
    applicable = (record for record in reversed(header.control) if record.applies_from <= number)
    newest = next(applicable, None)
    if newest is not None:
        header.control = [record for record in header.control if record.age_key >= newest.age_key]
    return newest
