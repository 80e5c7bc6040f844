"""Which processes of controllers beat. Pure."""

from collections.abc import Iterable
from datetime import datetime

from streaming.contract.beat import Beat
from streaming.operators.beats import aged_beats, is_silent
from streaming.operators.doctor.facts import Process
from streaming.transport.side import TopicRecord


def processes(records: Iterable[TopicRecord], *, now_ms: int) -> tuple[Process, ...]:
    """The newest beat of each process, by name and instance; other records are skipped."""
    found = {
        (beat.name, beat.instance): _process(beat, age_s, now_ms)
        for beat, age_s in aged_beats(records, now_ms=now_ms)
    }
    return tuple(found[key] for key in sorted(found))


def _process(beat: Beat, age_s: float, now_ms: int) -> Process:
    appended_s = now_ms / 1000 - age_s
    return Process(
        controller=beat.name,
        instance=beat.instance,
        epoch=beat.epoch,
        batch=beat.batch,
        version=beat.version,
        role=beat.role,
        problem=beat.problem,
        age_s=age_s,
        runs=not beat.is_leaving and not is_silent(age_s, beat.session_s),
        ahead_s=_ahead_s(beat, appended_s),
    )


def _ahead_s(beat: Beat, appended_s: float) -> float:
    """Seconds by which its clock was ahead when the beat was appended; 0 if the beat has no time."""
    try:
        return round(datetime.fromisoformat(beat.at).timestamp() - appended_s, 3)
    except ValueError:
        return 0.0
