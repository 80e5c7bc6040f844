"""A cluster that is gone is forgotten, by events only: no wall clock and no timer decides.

There are two ways. A round whose first load report comes more than ``forget_cluster_s`` after the last one starts from an empty
memory; ticks, statistics, results and control events do not count as reports. And a control event may ask for it: then the memory
is empty at the first round the event applies to. If nothing came from the cluster for longer than ``max_report_age_s`` before the
event, no round may ever close, so the memory is removed at once and takes no bytes any more. A controller that is that far behind
its input also takes a live cluster for silent, and forgets it some rounds earlier.

What stays: the control events, the clock, the open rounds and where the records come from; and our own part of a Kafka cluster's
throttle that is in force, because otherwise it would stay on the brokers for ever. A cluster that is forgotten at once loses all but
the newest control event, its throttle included.
"""

from dataclasses import replace

from state.engine import control, early
from state.engine.memory import Header
from state.engine.waiting import silence_ms
from state.events import Control
from state.round_settings import RoundSettings


def is_due(header: Header, number: int, rounds: RoundSettings) -> bool:
    """Whether the memory is to be empty before this round is taken."""
    asked = any(each <= number * header.length_ms for each in header.forget_from_ms)
    forget_ms = rounds.forget_cluster_ms
    longest_ms = max(forget_ms, rounds.max_report_age_ms)  # below it, silence is not even a restart
    return asked or (forget_ms > 0 and silence_ms(header, number) > longest_ms)


def empty(header: Header, number: int) -> Header:
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
        system=header.system,
        forget_from_ms=[each for each in header.forget_from_ms if each > number * header.length_ms],
    )


def is_silent(header: Header, event: Control, rounds: RoundSettings) -> bool:
    """Whether nothing came from the cluster for so long before a control event that no round may close any more."""
    return header.newest_ms is None or event.time_ms - header.newest_ms > rounds.max_report_age_ms


def schedule(header: Header, event: Control, rounds: RoundSettings) -> None:
    """Note the round that a control event empties the memory for."""
    from_ms = control.applies_from(header, event, rounds) * header.length_ms
    header.forget_from_ms = sorted({*header.forget_from_ms, from_ms})[-control.MAX_WAITING_COUNT :]


def keep_control(header: Header, length_ms: int) -> Header:
    """Only the newest control event, if it changes anything; ``length_ms`` is that of the rounds of a cluster that is not known."""
    events = [*early.controls_of(header), *map(control.event_of, header.control)]
    newest = max(events, key=lambda event: event.age_key)
    kept = [early.record_of(replace(newest, forget=False), None)] if newest.changes_anything else []
    return Header(length_ms=length_ms, early=kept)
