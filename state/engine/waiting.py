"""What waits in open rounds, of either system: where it is, its bytes, and the stretches of time it covers."""

from collections.abc import Iterable

from state.engine.encoding import decode_report, decode_topics, encode_report, encode_topics
from state.engine.memory import Header, WaitingReport, WaitingTopics
from state.engine.store import Store, WaitingKey
from state.events import Event, KafkaLoadReport, LoadReport, Reassignment, TopicStats
from state.kafka.memory import (
    WaitingLogs,
    WaitingMoves,
    decode_logs,
    decode_moves,
    encode_logs,
    encode_moves,
)

Waiting = WaitingReport | WaitingTopics | WaitingLogs | WaitingMoves


def waiting_of(event: Event, number: int) -> tuple[WaitingKey, Waiting] | None:
    """What of an event waits until its round closes; None for one that the header takes."""
    match event:
        case LoadReport():
            key = WaitingKey(number, "report", event.broker)
            return key, WaitingReport(event.time_ms, event.id, event.report)
        case TopicStats():
            key = WaitingKey(number, "topics", event.broker)
            return key, WaitingTopics(event.time_ms, event.id, event.traffic)
        case KafkaLoadReport():
            return WaitingKey(number, "logs", event.broker), WaitingLogs(event.time_ms, event.id, event.logs)
        case Reassignment():
            return WaitingKey(number, "moves", ""), WaitingMoves(event.time_ms, event.id, event.report)
    return None


def rows_count(waiting: Waiting | None) -> int:
    """Bundles, topics, replicas or partitions that it tells of."""
    match waiting:
        case WaitingReport():
            return len(waiting.report.bundles)
        case WaitingTopics():
            return len(waiting.traffic.topics)
        case WaitingLogs():
            return len(waiting.logs.replicas)
        case WaitingMoves():
            return len(waiting.report.moves)
    return 0


class WaitingRoom:
    """The newest of what each sender said in each open round: new in this batch, or in the store since an earlier one.

    ``flush`` is the only write, so what comes and leaves within a batch never reaches the store.
    """

    def __init__(self, store: Store, stored_rounds: Iterable[int]) -> None:
        """``stored_rounds`` are those that the store may have something of: of others it is not asked."""
        self._store = store
        self._stored_rounds = set(stored_rounds)
        self._new: dict[WaitingKey, Waiting] = {}
        self._left: list[WaitingKey] = []
        """What the store still has of rounds that were taken."""

    def put(self, key: WaitingKey, new: Waiting) -> tuple[Waiting | None, Waiting]:
        """Keep the newer of ``new`` and what is there, of equal times the greater id; what was there, and what is now."""
        before = self.find(key)
        if before is not None and new.age_key <= before.age_key:
            return before, before
        self._new[key] = new
        return before, new

    def find(self, key: WaitingKey) -> Waiting | None:
        """What a sender said."""
        found = self._new.get(key)
        if found is not None or key.round not in self._stored_rounds:
            return found
        value = self._store.waiting(key)
        return None if value is None else decode_waiting(key, value)

    def take(self, number: int) -> dict[WaitingKey, Waiting]:
        """All that waits for a round; it is gone then."""
        found: dict[WaitingKey, Waiting] = {}
        stored = self._store.all_waiting() if number in self._stored_rounds else iter(())
        self._stored_rounds.discard(number)
        for key, value in stored:
            if key.round == number:
                found[key] = decode_waiting(key, value)
                self._left.append(key)
        for key in [key for key in self._new if key.round == number]:
            found[key] = self._new.pop(key)
        return found

    def flush(self) -> None:
        """Write what changed."""
        self._remove()
        for key, waiting in self._new.items():
            self._store.put_waiting(key, encode_waiting(waiting))
        self._stored_rounds.update(key.round for key in self._new)
        self._left, self._new = [], {}

    def _remove(self) -> None:
        """Each call of a store in Spark is a round trip, so that all at once is a thousand times cheaper than each."""
        if self._left and not self._stored_rounds:
            self._store.clear_waiting()
            return
        for key in self._left:
            self._store.remove_waiting(key)


def decode_waiting(key: WaitingKey, value: bytes) -> Waiting:
    """From bytes. Raises what ``state.engine.layouts.unsealed`` does."""
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


def silence_ms(header: Header, number: int) -> int:
    """The longest time without a load report before a round or within it; 0 where it has none, or the first one of all."""
    spans, since = header.rounds[number].spans, header.last_report_ms
    if not spans:
        return 0
    ends = [spans[0][0] if since is None else since, *(end for _, end in spans)]
    return max(begin - end for (begin, _), end in zip(spans, ends, strict=False))
