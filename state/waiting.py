"""What waits in open rounds, of either system: its bytes, and the stretches of time it covers."""

from state.encoding import decode_report, decode_topics, encode_report, encode_topics
from state.kafka.memory import (
    WaitingLogs,
    WaitingMoves,
    decode_logs,
    decode_moves,
    encode_logs,
    encode_moves,
)
from state.memory import WaitingReport, WaitingTopics
from state.store import WaitingKey

Waiting = WaitingReport | WaitingTopics | WaitingLogs | WaitingMoves


def decode_waiting(key: WaitingKey, value: bytes) -> Waiting:
    """From bytes. Raises ``NewerStateError``."""
    match key.kind:
        case "report":
            return decode_report(value)
        case "topics":
            return decode_topics(value)
        case "logs":
            return decode_logs(value)
        case "moves":
            return decode_moves(value)


def encode_waiting(waiting: Waiting) -> bytes:
    """To bytes."""
    match waiting:
        case WaitingReport():
            return encode_report(waiting)
        case WaitingTopics():
            return encode_topics(waiting)
        case WaitingLogs():
            return encode_logs(waiting)
        case WaitingMoves():
            return encode_moves(waiting)


def widen(spans: list[tuple[int, int]], time_ms: int, max_gap_ms: int) -> None:
    """Add a report time to stretches that have no gap above ``max_gap_ms``; ``spans`` stays ascending."""
    first = last = time_ms
    apart = []
    for begin, end in spans:
        if begin - last > max_gap_ms or first - end > max_gap_ms:
            apart.append((begin, end))
        else:
            first, last = min(first, begin), max(last, end)
    spans[:] = sorted([*apart, (first, last)])
