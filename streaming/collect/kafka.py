"""``trimtab collect kafka``: sweeps one cluster for as long as it runs.

At the start the cluster must answer, or it refuses with the remedy; afterwards outages are waited out, ever less often
asking, and show in the metrics and the readiness. It decides nothing and changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from streaming.collect.cadence import Cadence
from streaming.collect.kafka_sweep import EVENTS, METRICS_FAILED, READ_RESULTS, KafkaSweeper
from streaming.collect.metrics import CollectorMetrics
from streaming.collect.network_metrics import NetworkMeter
from streaming.collect.planned import BadPlan
from streaming.kafka_admin.connection import ClusterError
from streaming.kafka_admin.target import admin_of
from streaming.serve import Check
from streaming.settings import ClusterSettingsSource, KafkaTarget, Settings
from streaming.sinks import PublishError
from streaming.sinks.input_events import EventSink

__all__ = ["KafkaCollector"]

_LOG = logging.getLogger(__name__)
_FRESH_INTERVALS = 3
"""Sweeps that may fail before the collector calls itself not ready."""


class KafkaCollector:
    """Collects from the cluster ``cluster`` behind ``target`` into ``sink``. Raises ``ClusterError`` at once, or never."""

    def __init__(
        self,
        settings: Settings,
        *,
        cluster: str,
        target: KafkaTarget,
        sink: EventSink,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = CollectorMetrics(cluster, results=READ_RESULTS, events=EVENTS)
        self._cluster = cluster
        self._target = target
        self._clock_s = clock_s
        self._stop = threading.Event()
        rounds = ClusterSettingsSource(settings).base(cluster).kafka.rounds
        self._cadence = Cadence.of(rounds, sweeps_per_round=target.sweeps_per_round_count)
        self._meter = self._network_meter()
        self._sweeper = KafkaSweeper(
            sink,
            self.metrics,
            cluster=cluster,
            clock_s=clock_s,
            planned_file=target.planned_file,
            meter=self._meter,
        )
        self._connection = ExitStack()
        self._admin: KafkaAdminClient | None = self._connect()
        self._swept_s: float | None = None
        self._problem = "no sweep yet"

    def run(self) -> None:
        """Sweep until ``stop``."""
        failures = 0
        while not self._stop.is_set():
            failures = 0 if self.sweep() else failures + 1
            now_s = self._clock_s()
            next_s = (
                self._cadence.after_failures_s(now_s, failures)
                if failures
                else self._cadence.next_sweep_s(now_s)
            )
            self._stop.wait(max(0.0, next_s - now_s))

    def sweep(self) -> bool:
        """One sweep; False where the cluster as a whole does not answer, or nothing was written."""
        began_s = self._clock_s()
        try:
            swept = self._sweeper.sweep(self._connected())
        except (KafkaError, ClusterError, BadPlan, OSError) as error:
            self._disconnect()
            return self._failed("no-brokers", error)
        except PublishError as error:
            return self._failed("not-written", error)
        ended_s = self._swept_s = self._clock_s()
        self._problem = ""
        self.metrics.observe_sweep(
            brokers_count=len(swept.asked) - len(swept.failed), ended_s=ended_s, duration_s=ended_s - began_s
        )
        _LOG.info(
            "sweep of %s: %d brokers, %d failed, %d partitions move",
            self._cluster,
            len(swept.asked),
            len(swept.failed),
            swept.moving_count,
        )
        return True

    def stop(self) -> None:
        """End ``run`` soon; for signal handlers."""
        self._stop.set()

    def close(self) -> None:
        """Close connections."""
        if self._meter is not None:
            self._meter.close()
        self._disconnect()

    def readiness(self) -> Sequence[Check]:
        """Whether a sweep was completed lately."""
        age_s = None if self._swept_s is None else self._clock_s() - self._swept_s
        fresh = age_s is not None and age_s < _FRESH_INTERVALS * self._cadence.interval_s
        last = (
            "no complete sweep yet" if age_s is None else f"the last complete sweep ended {age_s:.0f} s ago"
        )
        return [Check(name="sweep", ok=fresh, detail="; ".join(filter(None, (last, self._problem))))]

    def _network_meter(self) -> NetworkMeter | None:
        if self._target.metrics_url is None:
            return None
        return NetworkMeter(
            self._target,
            interval_s=self._cadence.interval_s,
            clock_s=self._clock_s,
            failed=lambda: self.metrics.count_read(METRICS_FAILED),
        )

    def _connect(self) -> KafkaAdminClient:
        return self._connection.enter_context(admin_of(self._target, cluster=self._cluster))

    def _connected(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = self._connect()
        return self._admin

    def _disconnect(self) -> None:
        """A broken connection is made anew in the next sweep."""
        self._admin = None
        self._connection.close()

    def _failed(self, result: str, error: Exception) -> bool:
        self.metrics.count_failed_sweep(result)
        self._problem = str(error)
        _LOG.warning("sweep of %s: %s", self._cluster, error)
        return False
