"""Which controllers run, by their beats. Pure: no topic, no clock."""

from collections.abc import Iterable

import msgspec

from streaming.contract import beat as beats
from streaming.ports.reading import TopicRecord

__all__ = ["Running", "newest_beats"]

_SILENT_AFTER_S = 4 * beats.EVERY_S
"""A beat that is late may be on its way; several are missing."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """The newest beat of a controller."""

    controller: str
    instance: str
    """``host:pid`` of its process."""
    epoch: int
    batch: int | None
    """The newest micro-batch it has begun."""
    beat_age_s: float

    @property
    def runs(self) -> bool:
        """Whether it beats."""
        return self.beat_age_s <= _SILENT_AFTER_S


def newest_beats(records: Iterable[TopicRecord], *, now_ms: int) -> dict[str, Running]:
    """By the controller's name; a controller that another process has replaced does not count. What is no beat is passed over."""
    found: dict[str, Running] = {}
    for record in records:
        try:
            beat = beats.decode(record.value or b"")
        except beats.Unreadable:
            continue
        before = found.get(beat.name)
        if before is None or beat.epoch >= before.epoch:
            found[beat.name] = Running(
                controller=beat.name,
                instance=beat.instance,
                epoch=beat.epoch,
                batch=beat.batch,
                beat_age_s=round((now_ms - record.timestamp) / 1000, 3),
            )
    return found
