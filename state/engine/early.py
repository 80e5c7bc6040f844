"""Events from before a cluster's system is known: they are kept, and taken again when its first report shows the system.

Ticks, results and control events come from clusters of both systems, facts alone do not show the system either, and rounds have
another length in each. So nothing is counted before the first report: then the events are taken in the order in which they came, as if
the system had been known.

What is kept is bounded: of ticks and facts the newest of each round, results and ticks as long as some system would have their round
open, the newest facts of all that are older, ``limits.MAX_EARLY_RESULTS_COUNT`` results, and as many control events as a cluster may
have.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from state.engine import limits
from state.engine.control import MAX_WAITING_COUNT
from state.engine.memory import EarlyKind, EarlyRecord, Header
from state.events import ActionResult, ClusterFacts, Control, Event, Rejection, Tick
from state.round_settings import RoundSettings

_TYPES: dict[EarlyKind, type[Event]] = {
    "tick": Tick,
    "result": ActionResult,
    "facts": ClusterFacts,
    "control": Control,
}
Ended = Literal["used", "superseded", "late"]
_KINDS = {type_: kind for kind, type_ in _TYPES.items()}


def keep(header: Header, event: Event, rounds: Sequence[RoundSettings]) -> Ended:
    """Keep an event until the system is known; ``rounds`` are those of each system. Returns how the event ends."""
    new = record_of(event, header.newest_ms)
    if not isinstance(event, Control):
        header.newest_ms = _newest_ms(header, event)
        open_from_ms = _open_from_ms(header.newest_ms, rounds)
        if event.time_ms < open_from_ms:
            return "late"
        header.early = _without_closed(header.early, open_from_ms)
    replaced = [each for each in header.early if _is_replaced(each, new, rounds)]
    if any(each.age_key >= new.age_key for each in replaced):
        return "superseded"
    header.early = _without_surplus([*(each for each in header.early if each not in replaced), new])
    return "used"


def refuse(header: Header, result: ActionResult, rounds: Sequence[RoundSettings]) -> Rejection | None:
    """Why a result is not kept: so many others of rounds that may be open are."""
    open_from_ms = _open_from_ms(_newest_ms(header, result), rounds)
    known = [each for each in header.early if each.kind == "result" and each.time_ms >= open_from_ms]
    rejection = limits.refused_early_result(len(known))
    if rejection is None:
        return None
    new = record_of(result, None)
    return None if any(_is_replaced(each, new, rounds) for each in known) else rejection


def event_of(record: EarlyRecord) -> Event:
    """The event that was kept."""
    return msgspec.msgpack.decode(record.value, type=_TYPES[record.kind])


def controls_of(header: Header) -> list[Control]:
    """The control events that are kept."""
    events = (event_of(each) for each in header.early if each.kind == "control")
    return [event for event in events if isinstance(event, Control)]


def record_of(event: Event, clock_ms: int | None) -> EarlyRecord:
    """An event as it is kept; ``clock_ms`` is the newest event time of its cluster."""
    value = msgspec.msgpack.encode(replace(event, appended_ms=None))
    return EarlyRecord(_KINDS[type(event)], event.time_ms, event.id, clock_ms, value)


def _newest_ms(header: Header, event: Event) -> int:
    """The newest event time of the cluster once this event is taken."""
    return event.time_ms if header.newest_ms is None else max(header.newest_ms, event.time_ms)


def _open_from_ms(newest_ms: int, rounds: Sequence[RoundSettings]) -> int:
    """From when on an event is in a round that some system may have open."""
    return newest_ms - max(each.lateness_ms + each.length_ms for each in rounds)


def _is_replaced(known: EarlyRecord, new: EarlyRecord, rounds: Sequence[RoundSettings]) -> bool:
    """Whether only the newer of two events counts: one repeats the other, or both are ticks or facts of one round in any system."""
    if known.kind != new.kind:
        return False
    if new.kind in ("tick", "facts"):
        return all(known.time_ms // each.length_ms == new.time_ms // each.length_ms for each in rounds)
    return known.age_key == new.age_key and (new.kind == "control" or known.value == new.value)


def _without_closed(records: list[EarlyRecord], open_from_ms: int) -> list[EarlyRecord]:
    """Without ticks and results of rounds that every system would have closed, and their facts but for the newest."""
    closed_facts = [each.age_key for each in records if each.kind == "facts" and each.time_ms < open_from_ms]
    return [
        each
        for each in records
        if each.time_ms >= open_from_ms
        or each.kind == "control"
        or (each.kind == "facts" and each.age_key == max(closed_facts))
    ]


def _without_surplus(records: list[EarlyRecord]) -> list[EarlyRecord]:
    """Without the second oldest control event if there are too many; the oldest stays, as ``control.take`` keeps it."""
    controls = sorted((each for each in records if each.kind == "control"), key=lambda each: each.age_key)
    if len(controls) <= MAX_WAITING_COUNT:
        return records
    return [each for each in records if each != controls[1]]
