"""How far off the clocks of the programs that write to the input are, by their events. Pure."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from streaming.contract.envelope import read_envelope
from streaming.transport.side import TopicRecord


def ahead_by_sender(records: Iterable[TopicRecord]) -> dict[str, float]:
    """Seconds from a record's append to its event's time, the farthest from 0 of each ``source``; other records are skipped."""
    found: dict[str, float] = {}
    for record in records:
        try:
            head = read_envelope(record.value or b"")
            sent_s = msgspec.convert(head.time, datetime).timestamp()
            ahead_s = round(sent_s - record.timestamp / 1000, 3)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            continue
        found[head.source] = max(found.get(head.source, ahead_s), ahead_s, key=abs)
    return dict(sorted(found.items()))
