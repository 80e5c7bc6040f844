"""What is copied and not paced, and why, in words: a summary never says that nothing is copied while replicas are fetched."""

from collections.abc import Iterator

import numpy as np

from policies.throttle.copies import DISK, REASSIGNMENT, RECOVERY, Copies
from policies.throttle.rates import ThrottleSettings
from policies.wording import counted
from state.kafka.memory import KafkaMemory
from state.settings import to_ms
from state.summary import join_names

_NAMES_SHOWN = 5


def describe_unpaced(memory: KafkaMemory, copies: Copies, settings: ThrottleSettings) -> Iterator[str]:
    """A clause for each reason why some of ``copies``, none of which is paced, are not."""
    for kind, what, setting in (
        (REASSIGNMENT, "reassigned", "reassignments"),
        (DISK, "moved between disks", "disks"),
    ):
        count = int(np.count_nonzero(copies.kind == kind))
        if count:
            verb = "is" if count == 1 else "are"
            yield f"{counted(count, 'replica')} {verb} {what} unpaced: kafka.throttle.{setting} is false"
    brokers_by_reason: dict[str, list[str]] = {}
    counts_by_reason: dict[str, int] = {}
    is_pressed = copies.is_under_min_isr()[copies.destinations.rows]
    for pressed in (False, True):
        is_meant = (copies.kind == RECOVERY) & (is_pressed == pressed)
        brokers, counts = np.unique(copies.destinations.brokers[is_meant], return_counts=True)
        for broker, count in zip(brokers.tolist(), counts.tolist(), strict=True):
            why = _why(memory, broker, settings, is_pressed=pressed)
            brokers_by_reason.setdefault(why, []).append(str(broker))
            counts_by_reason[why] = counts_by_reason.get(why, 0) + count
    for why, names in brokers_by_reason.items():
        count = counts_by_reason[why]
        where = f"on broker {join_names(names, _NAMES_SHOWN)}"
        yield f"{counted(count, 'replica')} {where} {'catches' if count == 1 else 'catch'} up unpaced: {why}"


def _why(memory: KafkaMemory, broker: int, settings: ThrottleSettings, *, is_pressed: bool) -> str:
    absence = memory.absences.get(broker)
    if not settings.recoveries:
        return "kafka.throttle.recoveries is false"
    if is_pressed:
        return "under min.insync.replicas"
    if memory.live_ms is None:
        return "no report says who is alive"
    if absence is None or absence.until_ms is None:
        return "not seen to be away"
    if absence.until_ms - absence.since_ms < to_ms(settings.recovery_after_s):
        return "away for less than recovery_after_s"
    return "less is missing than recovery_min_bytes"
