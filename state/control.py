"""Which control event is in force in which round, when a cluster is forgotten, and what is kept from before its first report.

An event applies from the first round that starts at or after its time + 2 x lateness, so that the result is the same in every
replay and with any number of partitions; one that arrives after that round has closed applies from the first open round.

A cluster that is gone is forgotten by events only, not by a wall clock or a timer. A round whose first load report comes more
than ``forget_cluster_s`` after the last one starts from an empty memory; ticks, statistics, results and control events do not
count as reports. A control event may ask for it, too: then the memory is empty at the first round the event applies to. If
nothing came from the cluster for longer than ``max_report_age_s`` before the event, no round may ever close, so the memory is
removed at once and takes no bytes any more. A controller that is that far behind its input also takes a live cluster for silent,
and forgets it some rounds earlier. What stays: the control events, the clock, the open rounds and where the records come from;
what the cluster is besides its load, because an action that does not know its isolation would break it; and our own part of a Kafka
cluster's throttle that is in force, because otherwise it would stay on the brokers for ever. A cluster that is forgotten at once loses
all but the newest control event, its throttle included.

Ticks, results and control events come from clusters of both systems, facts alone do not show the system either, and rounds have
another length in each. So nothing is counted before the first report: then the events are taken in the order in which they came,
as if the system had been known. What is kept until then is bounded: of ticks and facts the newest of each round, results and
ticks as long as some system would have their round open, the newest facts of all that are older, ``MAX_EARLY_RESULTS_COUNT``
results, and as many control events as a cluster may have.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from state import memory
from state.events import ActionResult, ClusterFacts, Control, Event, Rejection, Tick
from state.memory import EarlyKind, Header, PendingEvent
from state.report_buffer import silence_ms
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
    if any(known.age_key == event.age_key for known in header.control.values()):
        return False
    since = applies_from(header, event, rounds)
    is_late = _due(event.time_ms, rounds, header.length_ms) < since
    event = msgspec.structs.replace(event, arrived_late=is_late)
    needed: dict[int, Control] = {}  # without those that are older than another one and apply no earlier
    newest_first = sorted([*header.control.items(), (since, event)], key=lambda item: item[1].age_key)[::-1]
    for number, known in newest_first:
        if not needed or number < min(needed):
            needed[number] = known
    header.control = dict(sorted(needed.items()))
    if header.control.get(since) is not event:
        return False
    if len(header.control) > MAX_WAITING_COUNT:
        # not the first: it may be in force, and stays so until another one applies
        del header.control[list(header.control)[1]]
    return True


def in_force(header: Header, number: int) -> Control | None:
    """The newest event that applies to a round; older ones are forgotten, because rounds close in order."""
    newest = max((since for since in header.control if since <= number), default=None)
    if newest is None:
        return None
    header.control = {since: event for since, event in header.control.items() if since >= newest}
    return header.control[newest]


def is_forgetting_due(header: Header, number: int, rounds: RoundSettings) -> bool:
    """Whether the memory is to be empty before this round is taken."""
    asked = any(from_ms <= number * header.length_ms for from_ms in header.forget_from_ms)
    forget_ms = rounds.forget_cluster_ms
    longest_ms = max(forget_ms, rounds.max_report_age_ms)  # below it, silence is not even a restart
    return asked or (forget_ms > 0 and silence_ms(header, number) > longest_ms)


def forget(header: Header, number: int) -> Header:
    """The header at the start of a round that is the first one remembered; it still shows the gap before it."""
    return Header(
        length_ms=header.length_ms,
        newest_ms=header.newest_ms,
        next_round=header.next_round,
        partition=header.partition,
        is_known=header.is_known,
        rounds=header.rounds,
        last_summary=header.last_summary,
        last_report_ms=header.last_report_ms,
        control=header.control,
        approvals=header.approvals,
        facts=header.facts,
        system=header.system,
        forget_from_ms=[from_ms for from_ms in header.forget_from_ms if from_ms > number * header.length_ms],
    )


def is_silent_before(header: Header, event: Control, rounds: RoundSettings) -> bool:
    """Whether nothing came from the cluster for so long before a control event that no round may close any more."""
    return header.newest_ms is None or event.time_ms - header.newest_ms > rounds.max_report_age_ms


def schedule_forgetting(header: Header, event: Control, rounds: RoundSettings) -> None:
    """Note the round that a control event empties the memory for."""
    from_ms = applies_from(header, event, rounds) * header.length_ms
    header.forget_from_ms = sorted({*header.forget_from_ms, from_ms})[-MAX_WAITING_COUNT:]


def keep_newest_control(header: Header, length_ms: int) -> Header:
    """Only the newest control event, if it changes anything; ``length_ms`` is that of the rounds of a cluster that is not known."""
    newest = max([*controls_of(header), *header.control.values()], key=lambda event: event.age_key)
    if not newest.data.changes_anything:
        return Header(length_ms=length_ms)
    kept = msgspec.structs.replace(newest, data=msgspec.structs.replace(newest.data, forget=False))
    return Header(length_ms=length_ms, early=[record_of(kept, None)])


_TYPES: dict[EarlyKind, type[Event]] = {
    "tick": Tick,
    "result": ActionResult,
    "facts": ClusterFacts,
    "control": Control,
}
Ended = Literal["used", "superseded", "late"]
_KINDS = {type_: kind for kind, type_ in _TYPES.items()}


def keep_pending(header: Header, event: Event, rounds: Sequence[RoundSettings]) -> Ended:
    """Keep an event until the system is known; ``rounds`` are those of each system. Returns how the event ends."""
    new = record_of(event, header.newest_ms)
    if not isinstance(event, Control):
        header.newest_ms = _newest_ms(header, event)
        open_from_ms = _open_from_ms(header.newest_ms, rounds)
        if event.time_ms < open_from_ms:
            return "late"
        header.early = _without_closed(header.early, open_from_ms)
    replaced = [record for record in header.early if _is_replaced(record, new, rounds)]
    if any(record.age_key >= new.age_key for record in replaced):
        return "superseded"
    header.early = _without_surplus([*(record for record in header.early if record not in replaced), new])
    return "used"


def refuse_pending(header: Header, result: ActionResult, rounds: Sequence[RoundSettings]) -> Rejection | None:
    """Why a result is not kept: so many others of rounds that may be open are."""
    open_from_ms = _open_from_ms(_newest_ms(header, result), rounds)
    known = [record for record in header.early if record.kind == "result" and record.time_ms >= open_from_ms]
    rejection = memory.refused_early_result(len(known))
    if rejection is None:
        return None
    new = record_of(result, None)
    return None if any(_is_replaced(record, new, rounds) for record in known) else rejection


def pending_event(record: PendingEvent) -> Event:
    """The event that was kept."""
    return msgspec.msgpack.decode(record.value, type=_TYPES[record.kind])


def controls_of(header: Header) -> list[Control]:
    """The control events that are kept."""
    events = (pending_event(record) for record in header.early if record.kind == "control")
    return [event for event in events if isinstance(event, Control)]


def record_of(event: Event, clock_ms: int | None) -> PendingEvent:
    """An event as it is kept; ``clock_ms`` is the newest event time of its cluster."""
    value = msgspec.msgpack.encode(event)
    return PendingEvent(_KINDS[type(event)], event.time_ms, event.id, clock_ms, value)


def _newest_ms(header: Header, event: Event) -> int:
    """The newest event time of the cluster once this event is taken."""
    return event.time_ms if header.newest_ms is None else max(header.newest_ms, event.time_ms)


def _open_from_ms(newest_ms: int, rounds: Sequence[RoundSettings]) -> int:
    """From when on an event is in a round that some system may have open."""
    return newest_ms - max(settings.lateness_ms + settings.length_ms for settings in rounds)


def _is_replaced(known: PendingEvent, new: PendingEvent, rounds: Sequence[RoundSettings]) -> bool:
    """Whether only the newer of two events counts: one repeats the other, or both are ticks or facts of one round in any system."""
    if known.kind != new.kind:
        return False
    if new.kind in ("tick", "facts"):
        return all(
            known.time_ms // settings.length_ms == new.time_ms // settings.length_ms for settings in rounds
        )
    return known.age_key == new.age_key and (new.kind == "control" or known.value == new.value)


def _without_closed(records: list[PendingEvent], open_from_ms: int) -> list[PendingEvent]:
    """Without ticks and results of rounds that every system would have closed, and their facts but for the newest."""
    closed_facts = [
        record.age_key for record in records if record.kind == "facts" and record.time_ms < open_from_ms
    ]
    return [
        record
        for record in records
        if record.time_ms >= open_from_ms
        or record.kind == "control"
        or (record.kind == "facts" and record.age_key == max(closed_facts))
    ]


def _without_surplus(records: list[PendingEvent]) -> list[PendingEvent]:
    """Without the second oldest control event if there are too many; the oldest stays, as ``control.take`` keeps it."""
    controls = sorted(
        (record for record in records if record.kind == "control"), key=lambda record: record.age_key
    )
    if len(controls) <= MAX_WAITING_COUNT:
        return records
    return [record for record in records if record != controls[1]]
