"""Events for ``trimtab feed``: those of a recording, moved to now and played at their own pace or faster.

At a faster pace the times of events are closer together, too: rounds of a minute become rounds of a few seconds, and the
controller has to have rounds of that length. Only input is fed. A record that cannot be read as an event is fed as it is, at the
time of the one before it, because garbage is part of a recording.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from state.outputs import rfc3339
from streaming.controller.recording import PREFIX, decode_recorded

FAST = 12
"""How much faster ``--fast`` is: a minute becomes five seconds."""

_events = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Fed:
    """A record to be written at a moment."""

    at_ms: int
    """Milliseconds since the epoch; for an event its new time, but never below that of the record before it."""
    key: str
    value: bytes


def shift_to(lines: Iterable[bytes], start_ms: int, *, speed: float) -> Iterator[Fed]:
    """The input records of a recording as if it had begun at ``start_ms``, in its order. Raises ``BadRecording``."""
    first_ms, newest_ms = None, start_ms
    for line in lines:
        found = _record_of(line)
        if found is None:
            continue
        key, value = found
        event = _event_of(value)
        time_ms = None if event is None else _time_ms(event)
        if event is None or time_ms is None:
            yield Fed(newest_ms, key, value)
            continue
        first_ms = time_ms if first_ms is None else first_ms
        at_ms = start_ms + round((time_ms - first_ms) / speed)
        newest_ms = max(newest_ms, at_ms)
        yield Fed(newest_ms, key or _text(event, "cluster"), _set_time(event, at_ms))


def _record_of(line: bytes) -> tuple[str, bytes] | None:
    """Key and value of a line; None for a blank one, a control record, and one without a value."""
    line = line.strip(b"\r\n")
    if not line.startswith(PREFIX):
        return ("", line) if line else None
    found = decode_recorded(line)
    if found.is_control or found.value is None:
        return None
    return ("" if found.key is None else found.key.decode(errors="replace")), found.value


def _event_of(value: bytes) -> dict[str, Any] | None:
    try:
        return _events.decode(value)
    except msgspec.MsgspecError:
        return None


def _time_ms(event: dict[str, Any]) -> int | None:
    try:
        moment = datetime.fromisoformat(_text(event, "time"))
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except ValueError:
        return None


def _text(event: dict[str, Any], name: str) -> str:
    try:
        return msgspec.json.decode(event.get(name, b'""'), type=str)
    except msgspec.MsgspecError:
        return ""


def _set_time(event: dict[str, Any], at_ms: int) -> bytes:
    """The same event at another time, without ``recordedtime``, which is not known any more."""
    kept = {name: value for name, value in event.items() if name != "recordedtime"}
    return msgspec.json.encode(kept | {"time": rfc3339(at_ms)})
