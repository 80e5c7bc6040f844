"""How far off the clocks of the programs that write to the input are, by their events. Pure."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from streaming.ports.reading import TopicRecord

__all__ = ["ahead_by_sender"]


class _Head(msgspec.Struct, frozen=True):
    source: str
    time: datetime


_decoder = msgspec.json.Decoder(_Head)


def ahead_by_sender(records: Iterable[TopicRecord]) -> dict[str, float]:
    """Seconds from a record's append to its event's time, the farthest from 0 of each ``source``; other records are skipped."""
    found: dict[str, float] = {}
    for record in records:
        try:
            head = _decoder.decode(record.value or b"")
            ahead_s = round(head.time.timestamp() - record.timestamp / 1000, 3)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            continue
        found[head.source] = max(found.get(head.source, ahead_s), ahead_s, key=abs)
    return dict(sorted(found.items()))
