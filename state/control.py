"""Which control event is in force in which round.

An event applies from the first round that starts at or after its time + 2 x lateness, so that every replay and every
number of partitions agrees; one that arrives after that round has closed applies from the first open round.
"""

from state.events import Control
from state.memory import ControlRecord, Header
from state.settings import RoundSettings


def first_round(time_ms: int, *, lateness_ms: int, length_ms: int) -> int:
    """Number of the first round that starts at or after an event's time + 2 x lateness."""
    return -(-(time_ms + 2 * lateness_ms) // length_ms)


def take(header: Header, event: Control, rounds: RoundSettings) -> bool:
    """Remember a control event; False where a newer one already makes it pointless (or it is a repeat)."""
    due = first_round(event.time_ms, lateness_ms=rounds.lateness_ms, length_ms=header.length_ms)
    first_open = header.next_round if header.next_round is not None else due
    record = ControlRecord(
        time_ms=event.time_ms,
        id=event.id,
        paused=event.paused,
        mode=event.mode,
        overlay=event.overlay,
        who=event.who,
        why=event.why,
        applies_from=max(due, first_open),
        arrived_late=due < first_open,
        resumed_ms=event.resumed_ms,
    )
    if any(
        known.age_key >= record.age_key and known.applies_from <= record.applies_from
        for known in header.control
    ):
        return False
    kept = [
        known
        for known in header.control
        if not (known.age_key < record.age_key and known.applies_from >= record.applies_from)
    ]
    header.control = sorted([*kept, record], key=lambda known: known.age_key)
    return True


def in_force(header: Header, number: int) -> ControlRecord | None:
    """The newest event that applies to a round; older ones are forgotten, for rounds close in order."""
    applicable = [record for record in header.control if record.applies_from <= number]
    if not applicable:
        return None
    newest = applicable[-1]
    header.control = [record for record in header.control if record.age_key >= newest.age_key]
    return newest
