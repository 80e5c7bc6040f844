"""The loop of every collector: it sweeps at fixed times, waits longer and longer in an outage, and reports its state.

The collector of each kind of cluster defines what a sweep asks and writes.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from streaming.collector.cadence import Cadence
from streaming.collector.metrics import CollectorMetrics
from streaming.process.heartbeat import Heartbeat, Sign
from streaming.process.serve import Check

_LOG = logging.getLogger(__name__)
_FRESH_INTERVALS = 3
"""Sweeps that may fail before the collector calls itself not ready."""
_BEGIN_S_MAX = 600.0
"""Longest healthy time between two sweeps: each wait for a broker has a timeout, and the one after failures is at most a minute."""


class Collector(ABC):
    """Sweeps the cluster ``cluster``. ``run`` is for one thread."""

    def __init__(
        self,
        metrics: CollectorMetrics,
        *,
        cluster: str,
        cadence: Cadence,
        clock_s: Callable[[], float],
    ) -> None:
        self.metrics = metrics
        self._cluster = cluster
        self._cadence = cadence
        self._clock_s = clock_s
        self._stop = threading.Event()
        fresh_s = _FRESH_INTERVALS * cadence.interval_s
        self._begun = Sign(
            "loop", lambda age_s: f"the last sweep was begun {age_s:.0f} s ago", max(_BEGIN_S_MAX, fresh_s)
        )
        self._swept = Sign("sweep", lambda age_s: f"the last complete sweep ended {age_s:.0f} s ago", fresh_s)
        never_swept = Sign("sweep", lambda _: "no complete sweep yet", within_s=-1.0)
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
