"""Which processes of controllers beat. Pure."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from streaming.operators.doctor.facts import Process
from streaming.ports.reading import TopicRecord

__all__ = ["processes"]

_SILENT_AFTER_S = 20.0
"""A beat comes every five seconds: one that is late may be on its way, several are missing."""


class _Said(msgspec.Struct, frozen=True):
    """As much of a beat as every version writes, and what some versions do not write."""

    name: str
    instance: str
    epoch: int
    batch: int | None
    at: datetime
    version: str
    role: str = "leader"
    session_s: float = 0.0
    is_leaving: bool = False
    problem: str = ""


_decoder = msgspec.json.Decoder(_Said)


def processes(records: Iterable[TopicRecord], *, now_ms: int) -> tuple[Process, ...]:
    """By name and instance; what is no beat is passed over."""
    found: dict[tuple[str, str], Process] = {}
    for record in records:
        try:
            said = _decoder.decode(record.value or b"")
        except msgspec.MsgspecError:
            continue
        found[said.name, said.instance] = _process(said, record.timestamp, now_ms)
    return tuple(found[key] for key in sorted(found))


def _process(said: _Said, appended_ms: int, now_ms: int) -> Process:
    age_s = (now_ms - appended_ms) / 1000
    return Process(
        controller=said.name,
        instance=said.instance,
        epoch=said.epoch,
        batch=said.batch,
        version=said.version,
        role=said.role,
        problem=said.problem,
        age_s=round(age_s, 3),
        runs=not said.is_leaving and age_s <= max(said.session_s, _SILENT_AFTER_S),
        ahead_s=round(said.at.timestamp() - appended_ms / 1000, 3),
    )
