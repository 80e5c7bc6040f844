"""Which replicas that are behind are recoveries: those of a broker that was away for long, or lost data, and misses enough.

A replica is out of sync for other reasons, too: its broker is slow, or was restarted a moment ago. These are left alone. Where the
memory is empty, or a gap has passed, nobody knows since when a replica is behind: its broker counts as one that was away long enough.
However short a broker was away: if it misses far more than was written meanwhile, its disks lost data, or were away for longer.

A recovery begins before its broker is back. As long as it is away, its copies are planned: the leaders' side of the throttle is set,
and holds from the first byte. What the replicas miss is not known until then. What is planned does not count as left while something
else is copied.
A replica that a reassignment removes, on a broker that is away, recovers nothing.
"""

from dataclasses import replace

import msgspec
import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.copies import DISK, LARGEST_NUMBER, REASSIGNMENT, RECOVERY, UNKNOWN, Copies
from policies.throttle.needs import total_by_broker
from policies.throttle.rates import ThrottleSettings
from state.kafka.memory import Absence, KafkaMemory
from state.kafka.snapshot import Observation
from state.kafka.unpaced import describe_unpaced
from state.settings import MS_PER_S, to_ms

_FAR_MORE = 2
"""Times what was written while a broker was away. What it misses is off by a round and the time in which its death is noticed."""


def forget_absences(memory: KafkaMemory, *, at_ms: int, gap_ms: int) -> None:
    """Forget who was well if that was seen longer than ``gap_ms`` ago: anybody may have been away since."""
    if memory.live_ms is None or at_ms - memory.live_ms <= gap_ms:
        return
    memory.live_ms = None
    memory.absences = {
        broker: absence
        for broker, absence in memory.absences.items()
        if absence.until_ms is None or absence.is_large
    }


def select_copies(memory: KafkaMemory, observation: Observation, settings: ThrottleSettings) -> Observation:
    """The observation with the copies that are to be paced. Takes into ``memory`` who is away."""
    copies = observation.copies
    if copies is None:
        return observation
    recovering = _recovering(memory, copies, observation, settings)
    is_on = {REASSIGNMENT: settings.reassignments, RECOVERY: settings.recoveries, DISK: settings.disks}
    kept = np.isin(copies.kind, [kind for kind, is_paced in is_on.items() if is_paced])
    brokers, is_recovery = copies.destinations.brokers, copies.kind == RECOVERY
    is_away = _is_away(brokers, observation)
    kept &= ~is_recovery | np.isin(brokers, sorted(recovering))
    kept &= ~(is_recovery & is_away & ~copies.target.contains(copies.destinations.keys))
    pressed: list[str] = []
    if settings.yield_under_min_isr:
        pressed = _under_min_isr(copies, is_recovery & is_away)
        kept &= ~(is_recovery & copies.is_under_min_isr()[copies.destinations.rows])
    else:
        copies = replace(copies, min_in_sync=np.full(len(copies), UNKNOWN, dtype=np.int64))
    is_copied = np.where(copies.kind == REASSIGNMENT, _moved(copies, observation), ~(is_recovery & is_away))
    unpaced = tuple(describe_unpaced(memory, copies.take_copies(is_copied & ~kept), settings))
    copies, is_away = copies.take_copies(kept), is_away[kept]
    back = sorted(broker for broker, absence in memory.absences.items() if absence.is_large)
    begun = (copies.kind == DISK) | ((copies.kind == RECOVERY) & np.isin(copies.destinations.brokers, back))
    begun |= _moved(copies, observation)
    if begun.any():
        waits = ~begun & ((copies.kind != RECOVERY) | is_away)
        copies = replace(copies, missing_bytes=np.where(waits, 0, copies.missing_bytes))
    return replace(
        observation,
        copies=copies,
        is_running=bool(begun.any()),
        begun=begun,
        under_min_isr=pressed,
        unpaced=unpaced,
    )


def _under_min_isr(copies: Copies, waits: Bools) -> list[str]:
    """The partitions that nobody can write to and of which something is fetched, whether it is paced or not; ``waits``: (k,)."""
    is_fetched = np.zeros(len(copies), dtype=np.bool_)
    is_fetched[copies.destinations.rows[~waits]] = True
    return [copies.name(row) for row in np.flatnonzero(copies.is_under_min_isr() & is_fetched).tolist()]


def _moved(copies: Copies, observation: Observation) -> Bools:
    """Which copies are of a reassignment that runs, (k,): all, where the report does not say which of them."""
    is_moved = (copies.kind == REASSIGNMENT) & observation.is_running
    is_added: Bools = is_moved & copies.adding.contains(copies.destinations.keys)
    return is_added if is_added.any() else is_moved


def _is_away(brokers: Ints, observation: Observation) -> Bools:
    """Which of the brokers are not alive, (k,); none where it is not known who is."""
    if observation.live_brokers is None:
        return np.zeros(len(brokers), dtype=np.bool_)
    return ~np.isin(brokers, sorted(observation.live_brokers))


def _recovering(
    memory: KafkaMemory, copies: Copies, observation: Observation, settings: ThrottleSettings
) -> set[int]:
    """The brokers that recover, or will when they are back. Where it is not known who is alive, those that did before."""
    live, at_ms, after_ms = observation.live_brokers, observation.at_ms, to_ms(settings.recovery_after_s)
    is_behind = copies.kind == RECOVERY
    rows, brokers = copies.destinations.rows[is_behind], copies.destinations.brokers[is_behind]
    behind = set(brokers.tolist())
    absences = {broker: absence for broker, absence in memory.absences.items() if broker in behind}
    if live is not None:
        for broker in sorted(behind):
            known = absences.get(broker)
            if broker not in live:
                well_ms = at_ms if memory.live_ms is None else memory.live_ms
                absences[broker] = (
                    Absence(at_ms, counted_ms=well_ms)
                    if known is None
                    else msgspec.structs.replace(known, until_ms=None)
                )
            elif known is None and memory.live_ms is None:
                absences[broker] = Absence(at_ms - after_ms, at_ms, counted_ms=at_ms)
            elif known is not None and known.until_ms is None:
                absences[broker] = msgspec.structs.replace(known, until_ms=at_ms)
        memory.live_ms = at_ms
    rates = np.where(copies.is_led(), copies.write_bytes_per_s, 0)  # nobody writes to one without a leader
    written, missing = total_by_broker(brokers, rates[rows]), copies.missing_bytes[is_behind]
    lacks = total_by_broker(brokers, missing)
    surely_lacks = total_by_broker(brokers, np.where(missing == UNKNOWN, 0, missing))
    for broker, absence in absences.items():
        if absence.is_large:
            continue
        counted = _count_written(absence, written[broker], at_ms=at_ms)
        far_more = _FAR_MORE * counted.written_bytes + settings.recovery_min_bytes
        if counted.until_ms is None:
            is_large = False
        elif counted.until_ms - counted.since_ms >= after_ms:
            lack = lacks[broker]
            is_large = lack is None or lack >= settings.recovery_min_bytes
        else:
            is_large = counted.counted_ms == at_ms and (surely_lacks[broker] or 0) >= far_more
        absences[broker] = msgspec.structs.replace(counted, is_large=is_large)
    memory.absences = absences
    return {
        broker
        for broker, absence in absences.items()
        if absence.is_large or (absence.until_ms is None and at_ms - absence.since_ms >= after_ms)
    }


def _count_written(absence: Absence, bytes_per_s: int | None, *, at_ms: int) -> Absence:
    """The absence with what was written since it was counted last; the same where that is not known."""
    if bytes_per_s is None:
        return absence
    more = bytes_per_s * (at_ms - absence.counted_ms) // MS_PER_S
    return msgspec.structs.replace(
        absence, counted_ms=at_ms, written_bytes=min(absence.written_bytes + more, LARGEST_NUMBER)
    )
