"""Events for ``trimtab feed``: those of a recording, or of a made-up fleet, moved to now and played at their own pace or faster.

At a faster pace the times of events are closer together, too: rounds of a minute become rounds of a few seconds, and the
controller has to have rounds of that length. Only input is fed. A record that cannot be read as an event is fed as it is, at the
time of the one before it, because garbage is part of a recording; but a file that begins with garbage is no recording.

The fleet is a small Pulsar cluster, four brokers, one of which carries half of the traffic. It does not react to what is decided.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from state.outputs import rfc3339
from streaming.contract.messages import LoadReportMessage, TickMessage, type_of
from streaming.controller.recording import PREFIX, BadRecording, decode_recorded

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
    first_ms, newest_ms, is_recording = None, start_ms, False
    for number, line in enumerate(lines, 1):
        if not is_recording and line.strip():
            if not line.startswith(PREFIX) and "specversion" not in (_event_of(line) or {}):
                raise BadRecording(
                    f"line {number}, the first, holds no event: give a file of `trimtab record`, or of events as lines"
                )
            is_recording = True
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


CLUSTER = "sample"
_BROKERS = {"broker-1:8080": 12, "broker-2:8080": 5, "broker-3:8080": 4, "broker-4:8080": 3}
"""Bundles of each broker; all carry about the same."""
_MESSAGES_PER_S, _BYTES_PER_MESSAGE = 900.0, 1_000.0
_CPU_POINTS_PER_BUNDLE, _IDLE_CPU_POINTS = 6.5, 5.0
_SWEEP_S = 20
"""Three sweeps in a round of a minute."""
_LOAD_REPORT, _TICK = type_of(LoadReportMessage), type_of(TickMessage)


def sample_events() -> Iterator[bytes]:
    """Load reports and ticks as lines, from the epoch on, without end."""
    for number in count():
        time_ms = 1000 * _SWEEP_S * number
        for broker, bundles_count in _BROKERS.items():
            yield _event(_LOAD_REPORT, broker, time_ms, _report(broker, bundles_count, number))
        yield _event(_TICK, "tick", time_ms, {"asked": list(_BROKERS), "failed": {}})


def _report(broker: str, bundles_count: int, number: int) -> dict[str, object]:
    """Traffic swings a little from sweep to sweep, so that no two rounds are equal."""
    wave = 1.0 + 0.02 * ((7 * number) % 5 - 2)
    bundles = [_bundle(broker, place) for place in range(bundles_count)]
    traffic = _traffic(_MESSAGES_PER_S * wave)
    return {
        "cpu": {"usage": _IDLE_CPU_POINTS + _CPU_POINTS_PER_BUNDLE * bundles_count * wave, "limit": 100.0},
        **_traffic(_MESSAGES_PER_S * wave * bundles_count),
        "bundles": bundles,
        "lastStats": dict.fromkeys(bundles, traffic),
    }


def _traffic(messages_per_s: float) -> dict[str, float]:
    volume = messages_per_s * _BYTES_PER_MESSAGE
    return {
        "msgRateIn": messages_per_s,
        "msgRateOut": messages_per_s,
        "msgThroughputIn": volume,
        "msgThroughputOut": volume,
    }


def _bundle(broker: str, place: int) -> str:
    low = 0x1000_0000 * place
    return f"shop/orders-{broker.partition(':')[0][-1]}/0x{low:08x}_0x{low + 0x1000_0000:08x}"


def _event(type_: str, subject: str, time_ms: int, data: object) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": f"{subject}/{time_ms}",
            "source": "/trimtab/feed",
            "type": type_,
            "subject": subject,
            "time": rfc3339(time_ms),
            "cluster": CLUSTER,
            "data": data,
        }
    )
