"""The fleet of the demo as a cluster under a controller: it reports its load, obeys the decisions and sends results.

It keeps a consumer's part of the contract (committed records, highest epoch, expiry, each id once) and lives on whatever happens
to its brokers: what it could not write is given up, because the log alone says what a controller was given.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from deploy.local.demo.fleet import CLUSTER, Fleet, Result
from deploy.local.demo.topics import SOURCE, action_of, reports_of, results_of, tick_of
from streaming.contract.envelope import EPOCH_HEADER, read_envelope
from streaming.contract.messages import Envelope
from tests.faults.world import Sender
from tests.support.stage import Stage

_SWEEP_S = 1.0
_encoder = msgspec.json.Encoder()


class Load(threading.Thread):
    """Runs from ``start`` to ``end``."""

    def __init__(self, stage: Stage, sender: Sender, *, seed: int) -> None:
        super().__init__(name=f"load-{seed}", daemon=True)
        self.skew_s = 0.0
        """How far the reports' clock is ahead."""
        self.errors: Counter[str] = Counter()
        self.followed_count = 0
        self._stage = stage
        self._sender = sender
        self._fleet = Fleet(seed=seed)
        self._results: list[Result] = []
        self._done: set[str] = set()
        self._epoch = 0
        self._over = threading.Event()

    def run(self) -> None:
        """Sweep after sweep."""
        while not self._over.wait(_SWEEP_S):
            for step in (self._follow, self._report):
                try:
                    step()
                except Exception as error:  # noqa: BLE001  brokers are out because they are told to be
                    self.errors[type(error).__name__] += 1

    def end(self) -> None:
        """Stop, and write what there is to write; what is on the topic then is all there will be. May be called again."""
        if self._over.is_set():
            return
        self._over.set()
        if self.is_alive():
            self.join(120)
        assert not self.is_alive(), "the load does not end"
        self._sender.close()

    def _report(self) -> None:
        now_ms = int(1000 * (time.time() + self.skew_s))
        sweep = self._fleet.sweep(now_ms)
        self._results += sweep.finished
        self._send(reports_of(sweep))
        self._send(results_of(self._results, now_ms=now_ms))
        self._results = []
        self._send([tick_of(sweep)])

    def _send(self, messages: Iterable[Envelope]) -> None:
        for message in messages:
            self._sender.send(self._stage.topics.input, CLUSTER.encode(), _encoder.encode(message))
        self._sender.flush()

    def _follow(self) -> None:
        now_ms = int(1000 * time.time())
        for record in self._stage.read(self._stage.topics.actions):
            message = read_envelope(record.value)
            epoch = int(dict(record.headers).get(EPOCH_HEADER, b"0"))
            if message.id in self._done or epoch < self._epoch:
                continue
            self._epoch = epoch
            self._done.add(message.id)
            result = self._fleet.follow(message.id, action_of(message.type, message.data), now_ms=now_ms)
            self.followed_count += 1
            if result is not None:
                self._results.append(result)


GARBAGE: tuple[tuple[bytes, bytes], ...] = (
    (CLUSTER.encode(), b"garbage"),
    (CLUSTER.encode(), b'{"specversion":"1.0"}'),
    (b"other", b"{}"),
    (b"", f'{{"source":"{SOURCE}"}}'.encode()),
    (CLUSTER.encode(), b'{"a":\n"\xff"}'),
)
