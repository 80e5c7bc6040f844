"""``trimtab collect pulsar``: sweeps one cluster for as long as it runs.

A collector is made once the cluster answers and all is right. After that it waits outages out, asks less and less often, and
shows them in the metrics and the readiness. It decides nothing and changes nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from streaming.collector.cadence import Cadence
from streaming.collector.collector import Collector
from streaming.collector.facts import read_facts
from streaming.collector.managers import LoadManagers, WrongLoadManager, require_reports
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.own_topics import OwnTopics
from streaming.collector.sweep import PulsarEventWriter, Sweeper
from streaming.collector.unowned import Unowned
from streaming.pulsar.admin import BrokerConfiguration, PulsarAdmin
from streaming.pulsar.http import AdminError, CredentialsError, HttpClient
from streaming.pulsar.load_data import LoadData
from streaming.settings import ClusterSettingsSource, PulsarTarget, Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)
_PATIENCE_RATIO = 0.8
"""Part of the time between sweeps that a sweep waits for slow brokers: the tick must not be late for the next one."""
_FACTS_THREADS = 8
_FACTS_WAIT_S = 600.0
"""How long `--once` waits for the facts: thousands of namespaces are asked in a minute or two."""


class StartRefused(Exception):
    """The cluster cannot be collected from; the text names what was found and the remedy."""


class PulsarCollector(Collector):
    """Collects from the cluster ``cluster`` behind ``target`` into ``sink``. Raises ``StartRefused``, when made or in ``run``."""

    def __init__(
        self,
        settings: Settings,
        metrics: CollectorMetrics,
        *,
        cluster: str,
        target: PulsarTarget,
        sink: EventSink,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        decisions = ClusterSettingsSource(settings).base(cluster).pulsar
        super().__init__(
            metrics,
            cluster=cluster,
            cadence=Cadence.of(decisions.rounds, sweeps_per_round=target.sweeps_per_round_count),
            clock_s=clock_s,
        )
        self._target = target
        self._own = OwnTopics.of(settings)
        self._http, self._admin, found = self._connect()
        self._pulsar_cluster = found.cluster_name
        self._managers = LoadManagers(self._admin, self.metrics, cluster=cluster, first=found.load_manager)
        self._load_data = LoadData(self._admin, self._http, target)
        self._writer = PulsarEventWriter(
            sink, self.metrics, cluster=cluster, clock_ms=lambda: int(1000 * self._clock_s())
        )
        self._sweeper = Sweeper(
            self._admin,
            self._writer,
            self.metrics,
            target=target,
            limits=decisions.split,
            pulsar_cluster=self._pulsar_cluster,
            managers=self._managers,
            load_data=self._load_data,
            unowned=Unowned(self._admin, lambda: int(1000 * self._clock_s())),
        )
        self._facts_due_s = 0.0
        self._facts_reader: threading.Thread | None = None

    def sweep(self) -> bool:
        """One sweep, and the facts if they are due; False where there is no broker list or nothing was written."""
        began_s = self._clock_s()
        try:
            swept = self._sweeper.sweep(within_s=_PATIENCE_RATIO * self._cadence.interval_s)
        except (AdminError, CredentialsError) as error:
            return self._fail("no-brokers", error)
        except PublishError as error:
            return self._fail("not-written", error)
        ended_s = self._complete(began_s=began_s, brokers_count=len(swept.asked))
        _LOG.info("sweep of %s: %d brokers, %d failed", self._cluster, len(swept.asked), len(swept.failed))
        if ended_s >= self._facts_due_s:
            self._facts_due_s = ended_s + self._target.cluster_interval_s
            self._begin_facts(swept.asked)
        return True

    def join_facts(self) -> None:
        """Wait for the facts being read, if any, and until they are written. Raises ``PublishError``."""
        if self._facts_reader is not None:
            self._facts_reader.join(_FACTS_WAIT_S)
        self._writer.flush()

    def close(self) -> None:
        """Close connections."""
        self._sweeper.close()
        self._load_data.close()
        self._http.close()

    def _connect(self) -> tuple[HttpClient, PulsarAdmin, BrokerConfiguration]:
        try:
            http = HttpClient(self._target)
        except CredentialsError as error:
            raise StartRefused(str(error)) from error
        admin = PulsarAdmin(http, self._target)
        try:
            found = admin.configuration()
            require_reports(found, cluster=self._cluster)
            admin.brokers(found.cluster_name)
        except (AdminError, CredentialsError, WrongLoadManager) as error:
            http.close()
            raise StartRefused(str(error)) from error
        return http, admin, found

    def _begin_facts(self, brokers: Sequence[str]) -> None:
        """Read the facts beside the sweeps: a cluster with thousands of namespaces takes a while."""
        self._facts_reader = threading.Thread(
            target=self._read_facts, args=(brokers,), name="facts", daemon=True
        )
        self._facts_reader.start()

    def _read_facts(self, brokers: Sequence[str]) -> None:
        try:
            require_reports(self._admin.configuration(), cluster=self._cluster)
            with ThreadPoolExecutor(_FACTS_THREADS, thread_name_prefix="facts") as pool:
                facts = read_facts(
                    self._admin, pool, self._own, pulsar_cluster=self._pulsar_cluster, brokers=brokers
                )
            self._writer.facts(facts)
            self._managers.note({broker: each.load_manager for broker, each in facts.brokers.items()})
        except WrongLoadManager as error:
            self._refusal = StartRefused(str(error))
            return
        except (AdminError, CredentialsError, PublishError) as error:
            _LOG.warning(
                "whether Pulsar itself balances %s could not be read this time: %s", self._cluster, error
            )
            return
        shedding = [broker for broker, each in facts.brokers.items() if each.shedding_enabled]
        splitting = [broker for broker, each in facts.brokers.items() if each.auto_split_enabled]
        self.metrics.show_balancers(shedding_count=len(shedding), splitting_count=len(splitting))
        for kind, key, found in (
            ("sheds", "loadBalancerSheddingEnabled", shedding),
            ("splits", "loadBalancerAutoBundleSplitEnabled", splitting),
        ):
            if found:
                _LOG.warning(
                    "Pulsar %s %s by itself, too (%s is on at %s)", kind, self._cluster, key, ", ".join(found)
                )
