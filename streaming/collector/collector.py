"""The loop of every collector: it sweeps at fixed times of the round, waits longer and longer in an outage, and reports its state.

The collector of each kind of cluster defines what a sweep asks and writes. Each sweep ends with a tick. An event's id is its
subject and time, so that readers recognize an event that is written twice.
"""

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

import msgspec

from state.settings import RoundSettings
from streaming.collector.metrics import CollectorMetrics
from streaming.contract.encode import encode_event
from streaming.contract.messages import MAX_UNOWNED_COUNT, TickData, TickMessage, type_of
from streaming.process.serve import Check, Heartbeat, Sign
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)
_FRESH_INTERVALS = 3
"""Sweeps that may fail before the collector calls itself not ready."""
_BEGIN_S_MAX = 600.0
"""Longest healthy time between two sweeps: each wait for a broker has a timeout, and the one after failures is at most a minute."""
BACKOFF_S_MAX = 60.0
"""Longest wait after sweeps without a broker list; by then the readiness check has told a person."""
_SKIPS_MAX = 3
"""Most sweeps in a row that leave out a broker that keeps failing: with two sweeps a round it is asked every other round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Sweeps at fixed times of the round, one of them just when the round before may close."""

    length_s: float
    lateness_s: float
    sweeps_per_round: int

    @classmethod
    def from_rounds(cls, rounds: RoundSettings, *, sweeps_per_round: int) -> "Cadence":
        """The cadence of a cluster with these rounds."""
        return cls(length_s=rounds.length_s, lateness_s=rounds.lateness_s, sweeps_per_round=sweeps_per_round)

    @property
    def interval_s(self) -> float:
        """Time between sweeps."""
        return self.length_s / self.sweeps_per_round

    def next_sweep_s(self, now_s: float) -> float:
        """First moment after ``now_s`` (Unix seconds) at which to sweep.

        Counted from the end of a round plus the lateness: the tick of that sweep closes the round before.
        """
        phase_s = self.lateness_s % self.interval_s
        next_s = (math.floor((now_s - phase_s) / self.interval_s) + 1) * self.interval_s + phase_s
        return next_s if next_s > now_s else next_s + self.interval_s  # the last digit may be rounded away

    def after_failures_s(self, now_s: float, failures: int) -> float:
        """When to try again after this many sweeps in a row without a broker list: ever later, at most a minute."""
        delay_s = min(BACKOFF_S_MAX, self.interval_s * 2 ** min(failures - 1, 10))
        return self.next_sweep_s(now_s + max(0.0, delay_s - self.interval_s))


@dataclass(slots=True)
class Patience:
    """Which brokers to leave out of a sweep because they keep failing: 1, then 3 sweeps at a time."""

    _failures: dict[str, int] = field(default_factory=dict)
    _skips: dict[str, int] = field(default_factory=dict)

    def skips(self, broker: str) -> bool:
        """Whether to leave the broker out of this sweep; counts the sweep."""
        left = self._skips.get(broker, 0)
        if left:
            self._skips[broker] = left - 1
        return left > 0

    def note_failure(self, broker: str) -> None:
        """Note that the broker was asked and failed."""
        count = self._failures[broker] = self._failures.get(broker, 0) + 1
        self._skips[broker] = min(2 ** (count - 1) - 1, _SKIPS_MAX)

    def note_answer(self, broker: str) -> None:
        """Note that the broker was asked and answered."""
        self._failures.pop(broker, None)
        self._skips.pop(broker, None)

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget brokers that are gone, so that one that comes back is asked at once."""
        for broker in self._failures.keys() - set(brokers):
            self.note_answer(broker)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep: brokers asked, those that failed with the reason, and on Kafka what is copied."""

    asked: Sequence[str]
    failed: Mapping[str, str]
    copied: str = ""


class EventWriter:
    """Writes the events of one cluster's collector. Thread-safe. Every method raises ``PublishError``."""

    def __init__(
        self, sink: EventSink, metrics: CollectorMetrics, *, cluster: str, clock_s: Callable[[], float]
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self.cluster = cluster
        self._clock_s = clock_s

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return int(1000 * self._clock_s())

    def write(self, kind: str, type_: str, subject: str, data: bytes, *, time_ms: int | None = None) -> None:
        """Hand an event over; ``kind`` is the metric's label, ``data`` is JSON, ``time_ms`` is now where it is not given."""
        time_ms = self.now_ms() if time_ms is None else time_ms
        event = encode_event(
            type_=type_,
            id_=f"{subject}/{time_ms}",
            source=f"/trimtab/collect/{self.cluster}",
            subject=subject,
            time_ms=time_ms,
            cluster=self.cluster,
            data=data,
        )
        self._sink.send(self.cluster, event)
        self._metrics.count_event(kind)

    def tick(
        self, asked: Sequence[str], failed: Mapping[str, str], unowned: Mapping[str, int] | None = None
    ) -> None:
        """Write that a sweep is complete. Returns when the tick and all events before it are written.

        ``unowned`` has, by bundle that nobody owns, since when in milliseconds.
        """
        data = TickData(asked=list(asked), failed=dict(failed))
        if unowned:
            named = islice(sorted(unowned.items()), MAX_UNOWNED_COUNT)
            data = msgspec.structs.replace(
                data,
                unowned={name: datetime.fromtimestamp(ms / 1000, UTC) for name, ms in named},
                unowned_count=len(unowned),
            )
        self.write("tick", type_of(TickMessage), "tick", msgspec.json.encode(data))
        self.flush()

    def flush(self) -> None:
        """Return when all events before this call are written."""
        self._sink.flush()


class Collector(ABC):
    """Sweeps the cluster ``cluster`` into ``sink``; ``clock_s`` is Unix time. ``run`` is for one thread."""

    def __init__(
        self,
        metrics: CollectorMetrics,
        *,
        cluster: str,
        sink: EventSink,
        cadence: Cadence,
        clock_s: Callable[[], float],
    ) -> None:
        self.metrics = metrics
        self._cluster = cluster
        self._writer = EventWriter(sink, metrics, cluster=cluster, clock_s=clock_s)
        self._cadence = cadence
        self._clock_s = clock_s
        self._stop = threading.Event()
        fresh_s = _FRESH_INTERVALS * cadence.interval_s
        self._begun = Sign(
            "loop", lambda age_s: f"the last sweep was begun {age_s:.0f} s ago", max(_BEGIN_S_MAX, fresh_s)
        )
        self._swept = Sign("sweep", lambda age_s: f"the last sweep ended {age_s:.0f} s ago", fresh_s)
        never_swept = Sign("sweep", lambda _: "no sweep yet", within_s=-1.0)
        self._heartbeat = Heartbeat(self._begun, never_swept)
        self._problem = "no sweep yet"
        self._refusal: Exception | None = None
        """The error that ``run`` raises after the sweep; set from any thread."""

    @abstractmethod
    def sweep(self) -> bool:
        """One sweep; False where the cluster as a whole does not answer, or nothing was written."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    def run(self) -> None:
        """Sweep until ``stop``. Raises an error that no later sweep can mend."""
        failures = 0
        while not self._stop.is_set():
            self._heartbeat.give(self._begun)
            failures = 0 if self.sweep() else failures + 1
            now_s = self._clock_s()
            next_s = (
                self._cadence.after_failures_s(now_s, failures)
                if failures
                else self._cadence.next_sweep_s(now_s)
            )
            self._stop.wait(max(0.0, next_s - now_s))
            if self._refusal is not None:
                raise self._refusal

    def stop(self) -> None:
        """End ``run`` soon; for signal handlers."""
        self._stop.set()

    def readiness(self) -> Sequence[Check]:
        """Whether a sweep was completed lately."""
        return [self._heartbeat.check("sweep", remark=self._problem)]

    def liveness(self) -> Sequence[Check]:
        """Whether sweeps are begun at all; a cluster that does not answer is no reason for a restart."""
        return [self._heartbeat.check("loop")]

    def _complete(self, *, began_s: float, brokers_count: int) -> float:
        """Note that a sweep is written; returns the time, Unix seconds."""
        ended_s = self._clock_s()
        self._heartbeat.give(self._swept)
        self._problem = ""
        self.metrics.observe_sweep(brokers_count=brokers_count, ended_s=ended_s, duration_s=ended_s - began_s)
        return ended_s

    def _fail(self, result: str, error: Exception) -> bool:
        """Note that a sweep failed; ``result`` is the metric's label. Returns False, as ``sweep`` does then."""
        self.metrics.count_failed_sweep(result)
        self._problem = str(error)
        _LOG.warning("sweep of %s: %s", self._cluster, error)
        return False
