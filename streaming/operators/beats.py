"""Which controllers run, which lead and which stand by, according to their beats. Pure: no topic, no clock."""

from collections.abc import Iterable, Iterator

import msgspec

from streaming.contract import beat as beats
from streaming.contract.beat import Beat
from streaming.transport.side import TopicRecord

_SILENT_AFTER_SESSIONS = 2
"""Sessions without a beat after which a process is silent: one late beat may still be on its way."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The newest beat of a controller that leads, or that led last."""

    controller: str
    instance: str
    """``host:pid`` of its process."""
    epoch: int
    batch: int | None
    """The newest micro-batch it has begun."""
    beat_age_s: float
    session_s: float
    version: str
    """Version of trimtab."""
    has_left: bool
    """Whether its last beat said that it ends in good order."""

    @property
    def runs(self) -> bool:
        """Whether it still beats and has not left."""
        return not self.has_left and not is_silent(self.beat_age_s, self.session_s)


class Standby(msgspec.Struct, frozen=True, kw_only=True):
    """A process that beats and does not lead."""

    instance: str
    version: str
    beat_age_s: float
    problem: str
    """Why it could not lead; empty where it could."""


def newest_beats(records: Iterable[TopicRecord], *, now_ms: int) -> dict[str, Running]:
    """Leaders by the controller's name; one that another process has replaced does not count. Other records are skipped."""
    found: dict[str, Running] = {}
    for beat, age_s in aged_beats(records, now_ms=now_ms):
        before = found.get(beat.name)
        if beat.role == "leader" and (before is None or beat.epoch >= before.epoch):
            found[beat.name] = Running(
                controller=beat.name,
                instance=beat.instance,
                epoch=beat.epoch,
                batch=beat.batch,
                beat_age_s=age_s,
                session_s=beat.session_s,
                version=beat.version,
                has_left=beat.is_leaving,
            )
    return found


def newest_standbys(records: Iterable[TopicRecord], *, now_ms: int) -> dict[str, list[Standby]]:
    """The processes that stand by now, by the controller's name and in the order of their instances."""
    newest = {(beat.name, beat.instance): (beat, age_s) for beat, age_s in aged_beats(records, now_ms=now_ms)}
    found: dict[str, list[Standby]] = {}
    for (name, instance), (beat, age_s) in sorted(newest.items()):
        is_here = not beat.is_leaving and not is_silent(age_s, beat.session_s)
        if beat.role == "standby" and is_here:
            standby = Standby(instance=instance, version=beat.version, beat_age_s=age_s, problem=beat.problem)
            found.setdefault(name, []).append(standby)
    return found


def is_silent(age_s: float, session_s: float) -> bool:
    """Whether a beat is so old that its process no longer runs."""
    return age_s > _SILENT_AFTER_SESSIONS * session_s


def aged_beats(records: Iterable[TopicRecord], *, now_ms: int) -> Iterator[tuple[Beat, float]]:
    """Each beat with its age in seconds. Other records are skipped."""
    for record in records:
        try:
            beat = beats.decode(record.value or b"")
        except beats.Unreadable:
            continue
        yield beat, round((now_ms - record.timestamp) / 1000, 3)
