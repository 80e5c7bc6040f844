"""What waits in open rounds: the newest value of each sender, and the stretches of time that reports cover.

The header knows who waits, so a report is compared with the one before it without a look into the store. The values of one batch are
one value in the store, because each call of a store in Spark is a round trip.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from state.layouts import seal, unseal
from state.memory import Header, OpenRound, Sender, Waiters, Waiting, WaitingKey, WaitingKind
from state.store import Store, StoredKey

Decode = Callable[[WaitingKey, bytes], Waiting]


_MAX_BATCH_BYTES: Final = 1 << 20
"""A stored value gets no more senders above this size: Spark hands values of the state to Python as a whole."""


class Entry(NamedTuple):
    """A sender's value in a stored batch."""

    kind: WaitingKind
    broker: str
    value: bytes


_entries = msgspec.msgpack.Decoder(list[Entry])


def encode_batch(entries: list[Entry]) -> bytes:
    """Bytes of a batch of values; each of them has the version of its layout as well."""
    return seal(entries)


def decode_batch(value: bytes) -> list[Entry]:
    """A batch of values from bytes. Raises what ``state.layouts.unseal`` does."""
    return _entries.decode(unseal("batch", value))


class ReportBuffer:
    """The newest value of each sender in each open round: new in this batch, or in the store since an earlier one.

    The open rounds belong to the caller; they count what is here. ``flush`` is the only write, so what comes and leaves within
    a batch never reaches the store.
    """

    def __init__(self, store: Store, decode: Decode) -> None:
        self._store = store
        self._decode = decode
        self._new: dict[int, dict[WaitingKey, Waiting]] = {}
        """By round."""
        self._left: list[StoredKey] = []
        """What the store still has and nobody needs."""

    def put(self, open_round: OpenRound, key: WaitingKey, new: Waiting) -> bool:
        """Keep ``new`` if it is the newest of its sender (at equal times the greater id); True if it is the first one."""
        there = open_round.waiters.get(key.kind)
        before = None if there is None else there.senders.get(key.broker)
        if before is None or new.age_key > before.age_key:
            _count(open_round, key, new)
            self._new.setdefault(key.round, {})[key] = new
        return before is None

    def take(self, number: int, open_round: OpenRound) -> dict[WaitingKey, Waiting]:
        """Take out all that waits for a round."""
        newest: dict[WaitingKey, Waiting] = {}
        if open_round.stored_count:
            for key, waiting in self._stored(number, self._left):
                if key not in newest or newest[key].age_key < waiting.age_key:
                    newest[key] = waiting
        newest.update(self._new.pop(number, {}))
        return newest

    def flush(self, rounds: Mapping[int, OpenRound]) -> None:
        """Write what came. A round whose store holds more replaced values than others is written anew."""
        for number, new in list(self._new.items()):
            open_round = rounds[number]
            if open_round.stored_count + len(new) > 2 * open_round.senders_count:
                self._new[number] = self.take(number, open_round)
                open_round.stored_count = 0
        self._remove(is_empty=not any(open_round.stored_count for open_round in rounds.values()))
        for number, new in self._new.items():
            self._write(number, rounds[number], new)
        self._new = {}

    def _stored(
        self, number: int, keys: list[StoredKey] | None = None
    ) -> Iterator[tuple[WaitingKey, Waiting]]:
        """The stored values of a round, with those that were replaced; their keys go to ``keys``."""
        for stored, value in self._store.all_waiting():
            if stored.round != number:
                continue
            if keys is not None:
                keys.append(stored)
            for entry in decode_batch(value):
                key = WaitingKey(number, entry.kind, entry.broker)
                yield key, self._decode(key, entry.value)

    def _remove(self, *, is_empty: bool) -> None:
        """To remove all at once is a thousand times cheaper than one by one."""
        if self._left and is_empty:
            self._store.clear_waiting()
        else:
            for key in self._left:
                self._store.remove_waiting(key)
        self._left = []

    def _write(self, number: int, open_round: OpenRound, new: Mapping[WaitingKey, Waiting]) -> None:
        entries = (Entry(key.kind, key.broker, seal(waiting)) for key, waiting in new.items())
        for batch in _cut(entries):
            key = StoredKey(number, open_round.stored_count)
            self._store.put_waiting(key, encode_batch(batch))
            open_round.stored_count += len(batch)


def _cut(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size_bytes = 0
    for entry in entries:
        batch.append(entry)
        size_bytes += len(entry.value)
        if size_bytes >= _MAX_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _count(open_round: OpenRound, key: WaitingKey, new: Waiting) -> None:
    there = open_round.waiters.setdefault(key.kind, Waiters())
    before = there.senders.get(key.broker)
    there.rows_count += new.rows_count - (0 if before is None else before.rows_count)
    there.senders[key.broker] = Sender(*new.age_key, new.rows_count)


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
    """The longest time without a load report before a round or within it; 0 for a round without a report.

    The time before the very first report does not count.
    """
    spans, since = header.rounds[number].spans, header.last_report_ms
    if not spans:
        return 0
    ends = [spans[0][0] if since is None else since, *(end for _, end in spans)]
    return max(begin - end for (begin, _), end in zip(spans, ends, strict=False))
