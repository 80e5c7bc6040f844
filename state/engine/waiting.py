"""What waits in open rounds: the newest value of each sender, and the stretches of time that reports cover."""

from collections.abc import Callable, Iterable

from state.engine.memory import Header
from state.engine.store import Store, WaitingKey
from state.engine.system import Waiting

Encode = Callable[[WaitingKey, Waiting], bytes]
Decode = Callable[[WaitingKey, bytes], Waiting]


class WaitingRoom:
    """The newest value of each sender in each open round: new in this batch, or in the store since an earlier one.

    ``flush`` is the only write, so what comes and leaves within a batch never reaches the store.
    """

    def __init__(self, store: Store, stored_rounds: Iterable[int], encode: Encode, decode: Decode) -> None:
        """``stored_rounds`` are those that the store may have something of: for other rounds it is not read."""
        self._store = store
        self._encode = encode
        self._decode = decode
        self._stored_rounds = set(stored_rounds)
        self._new: dict[WaitingKey, Waiting] = {}
        self._left: list[WaitingKey] = []
        """What the store still has of rounds that were taken."""

    def put(self, key: WaitingKey, new: Waiting) -> tuple[Waiting | None, Waiting]:
        """Keep the newer of ``new`` and what is there (at equal times the greater id); returns what was there, and what is now."""
        before = self.find(key)
        if before is not None and new.age_key <= before.age_key:
            return before, before
        self._new[key] = new
        return before, new

    def find(self, key: WaitingKey) -> Waiting | None:
        """The newest value of a sender; None if there is none."""
        found = self._new.get(key)
        if found is not None or key.round not in self._stored_rounds:
            return found
        value = self._store.waiting(key)
        return None if value is None else self._decode(key, value)

    def take(self, number: int) -> dict[WaitingKey, Waiting]:
        """Take out all that waits for a round."""
        found: dict[WaitingKey, Waiting] = {}
        stored = self._store.all_waiting() if number in self._stored_rounds else iter(())
        self._stored_rounds.discard(number)
        for key, value in stored:
            if key.round == number:
                found[key] = self._decode(key, value)
                self._left.append(key)
        for key in [key for key in self._new if key.round == number]:
            found[key] = self._new.pop(key)
        return found

    def flush(self) -> None:
        """Write what changed."""
        self._remove()
        for key, waiting in self._new.items():
            self._store.put_waiting(key, self._encode(key, waiting))
        self._stored_rounds.update(key.round for key in self._new)
        self._left, self._new = [], {}

    def _remove(self) -> None:
        """Each call of a store in Spark is a round trip, so to remove all at once is a thousand times cheaper than one by one."""
        if self._left and not self._stored_rounds:
            self._store.clear_waiting()
            return
        for key in self._left:
            self._store.remove_waiting(key)


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
