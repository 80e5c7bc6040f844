"""``trimtab collect kafka``: sweeps one cluster for as long as it runs.

A collector is made once the cluster answers. After that it waits outages out, asks less and less often, and shows them in
the metrics and the readiness. It decides nothing and changes nothing.
"""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack

from streaming.collector.cadence import Cadence
from streaming.collector.collector import Collector
from streaming.collector.kafka_sweep import METRICS_FAILED, KafkaSweeper
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.network_metrics import NetworkMeter
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, cluster_of
from streaming.settings import ClusterSettingsSource, KafkaTarget, Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)


class KafkaCollector(Collector):
    """Collects from the cluster ``cluster`` behind ``target`` into ``sink``. Raises ``ClusterError`` only when it is made."""

    def __init__(
        self,
        settings: Settings,
        metrics: CollectorMetrics,
        *,
        cluster: str,
        target: KafkaTarget,
        sink: EventSink,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        rounds = ClusterSettingsSource(settings).base(cluster).kafka.rounds
        super().__init__(
            metrics,
            cluster=cluster,
            cadence=Cadence.of(rounds, sweeps_per_round=target.sweeps_per_round_count),
            clock_s=clock_s,
        )
        self._target = target
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
        self._kafka: KafkaCluster | None = self._connect()

    def sweep(self) -> bool:
        """One sweep; False where the cluster as a whole does not answer, or nothing was written."""
        began_s = self._clock_s()
        try:
            swept = self._sweeper.sweep(self._cluster_client())
        except (ClusterError, OSError) as error:
            self._disconnect()
            return self._fail("no-brokers", error)
        except PublishError as error:
            return self._fail("not-written", error)
        self._complete(began_s=began_s, brokers_count=len(swept.asked) - len(swept.failed))
        _LOG.info(
            "sweep of %s: %d brokers, %d failed, %d partitions move",
            self._cluster,
            len(swept.asked),
            len(swept.failed),
            swept.moving_count,
        )
        return True

    def close(self) -> None:
        """Close connections."""
        if self._meter is not None:
            self._meter.close()
        self._disconnect()

    def _network_meter(self) -> NetworkMeter | None:
        if self._target.metrics_url is None:
            return None
        return NetworkMeter(
            self._target,
            interval_s=self._cadence.interval_s,
            clock_s=self._clock_s,
            failed=lambda: self.metrics.count_read(METRICS_FAILED),
        )

    def _connect(self) -> KafkaCluster:
        return self._connection.enter_context(cluster_of(self._target, cluster=self._cluster))

    def _cluster_client(self) -> KafkaCluster:
        if self._kafka is None:
            self._kafka = self._connect()
        return self._kafka

    def _disconnect(self) -> None:
        """Close a broken connection; the next sweep makes a new one."""
        self._kafka = None
        self._connection.close()
