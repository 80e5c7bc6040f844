"""``trimtab collect pulsar``: sweeps one cluster for as long as it runs. It decides nothing and changes nothing.

A sweep sends every broker's load report and topic statistics as soon as they are read, then a tick. A broker that is slow or dead
delays no other and no tick; a broker is never asked twice at once; every broker that Pulsar lists is in the tick, either answered or
failed with the reason; an event's time is when the answer was complete here.

A collector is made once the cluster answers and all is right. After that it waits outages out, asks less and less often, and shows
them in the metrics and the readiness.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import msgspec

from policies.splitting.plan import SplitSettings
from policies.splitting.ranges import Bundle
from policies.wording import counted
from state.events import SYSTEM_NAMESPACE
from streaming.collector.collector import Cadence, Collector, EventWriter, Patience, Swept
from streaming.collector.facts import (
    LoadManagers,
    TrimtabTopics,
    WrongLoadManager,
    read_facts,
    require_reports,
)
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.reports import (
    BundleLoad,
    ForeignReport,
    broker_load,
    read_published,
    read_report,
    topic_traffic,
    wanted_bundles,
    with_system_bundles,
)
from streaming.collector.unowned import Unowned
from streaming.contract.messages import (
    BrokerLoadMessage,
    LoadReportMessage,
    PulsarClusterMessage,
    TopicLoad,
    TopicStatsMessage,
    type_of,
)
from streaming.process.deadline import Deadline
from streaming.pulsar.admin import BrokerConfiguration, PulsarAdmin
from streaming.pulsar.http import AdminError, CredentialsError, HttpClient
from streaming.pulsar.load_data import LoadData, NoLoadData
from streaming.settings import ClusterSettingsSource, PulsarTarget, Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)
_PATIENCE_RATIO = 0.8
"""Part of the time between sweeps that a sweep waits for slow brokers: the tick must not be late for the next one."""
_FACTS_THREADS = 8
_FACTS_WAIT_S = 600.0
"""How long `--once` waits for the facts: thousands of namespaces are asked in a minute or two."""


_PUBLISHED_RATIO = 0.5
"""Part of a sweep's time in which it waits for a broker to publish its load again, after a move or at the start."""


class StartRefused(Exception):
    """The cluster cannot be collected from; the text names what was found and the remedy."""


class Sweeper:
    """Sweeps one cluster; not for several threads at once."""

    def __init__(
        self,
        admin: PulsarAdmin,
        writer: EventWriter,
        metrics: CollectorMetrics,
        *,
        target: PulsarTarget,
        limits: SplitSettings,
        pulsar_cluster: str,
        managers: LoadManagers,
        load_data: LoadData,
        unowned: Unowned,
    ) -> None:
        self._admin = admin
        self._managers = managers
        self._load_data = load_data
        self._unowned = unowned
        self._writer = writer
        self._metrics = metrics
        self._target = target
        self._limits = limits
        self._pulsar_cluster = pulsar_cluster
        self._pool = ThreadPoolExecutor(target.concurrent_calls_count, thread_name_prefix="broker")
        self._patience = Patience()
        self._wait_s = 0.0
        self._following: Future[None] = Future()
        self._following.set_result(None)
        self._looking = self._following
        self._system_bundles: Mapping[str, Collection[str]] = {}
        self._is_own_known = True
        self._running: dict[str, Future[str | None]] = {}

    def sweep(self, *, within_s: float) -> Swept:
        """Ask every broker, wait at most ``within_s``, write the tick. Raises ``AdminError`` if there is no broker list.

        Raises ``PublishError`` when something could not be written.
        """
        deadline = Deadline(within_s)
        brokers = self._admin.brokers(self._pulsar_cluster)
        self._patience.keep_only(brokers)
        self._managers.begin_sweep(brokers)
        self._follow(brokers)
        failed = {
            broker: "still failing; asked again soon" for broker in brokers if self._patience.skips(broker)
        }
        self._wait_s = _PUBLISHED_RATIO * within_s
        asked = {broker: self._start(broker) for broker in brokers if broker not in failed}
        if self._looking.done() and not all(map(self._managers.is_extensible, brokers)):
            self._looking = self._pool.submit(self._look_for_system_bundles, brokers)
        wait(asked.values(), timeout=within_s)
        for broker, future in asked.items():
            reason = self._outcome(broker, future)
            if reason is not None:
                failed[broker] = reason
        if brokers and not failed:  # a broker that was not read may list any bundle
            self._unowned.find(brokers, self._pool, within_s=deadline.left_s)
        self._writer.tick(brokers, failed, self._unowned.found)
        return Swept(asked=brokers, failed=failed)

    def close(self) -> None:
        """Stop reading; does not wait for brokers that are still being read."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _follow(self, brokers: Sequence[str]) -> None:
        """If a broker publishes its load, follow it in another thread beside the sweep: connecting may take long."""
        if not self._following.done():
            return
        publishing = [broker for broker in brokers if self._managers.is_extensible(broker)]
        self._load_data.keep_only(publishing)
        if publishing:
            self._following = self._pool.submit(self._load_data.follow)
        else:
            self._load_data.close()

    def _start(self, broker: str) -> "Future[str | None]":
        running = self._running.get(broker)
        if running is None or running.done():
            running = self._running[broker] = self._pool.submit(self._read, broker)
        return running

    def _outcome(self, broker: str, future: "Future[str | None]") -> str | None:
        """Why a broker failed; None where it did not. Raises the errors that end the sweep, such as ``PublishError``."""
        if not future.done():
            self._metrics.count_read("unfinished")
            return "no complete answer yet"
        del self._running[broker]
        reason = future.result(timeout=0)
        if reason is None:
            self._patience.note_answer(broker)
        else:
            self._patience.note_failure(broker)
            _LOG.warning("broker %s: %s", broker, reason)
        return reason

    def _read(self, broker: str) -> str | None:
        """Read one broker and write its events; returns why that failed, None if it did not. Raises ``PublishError``."""
        try:
            self._managers.ask_if_due(broker)
            if self._managers.is_extensible(broker):
                self._write_published(broker)
            else:
                self._write_report(broker)
        except AdminError as error:
            return self._describe_failure(broker, error.failure, error)
        except ForeignReport as error:
            return self._describe_failure(broker, "foreign-report", error)
        except NoLoadData as error:
            return self._describe_failure(broker, "no-load-data", error)
        self._metrics.count_read("ok")
        return None

    def _describe_failure(self, broker: str, result: str, error: Exception) -> str:
        """Why a broker failed; a broker whose load manager has changed fails once, because it was read in the wrong way."""
        self._metrics.count_read(result)
        if self._managers.ask(broker):
            return (
                f"its load manager has changed to {self._managers.manager(broker)}; the next sweep reads the broker "
                "accordingly"
            )
        return str(error)

    def _write_report(self, broker: str) -> None:
        answer = self._admin.load_report(broker)
        report = read_report(answer)
        loads = report.lastStats or {}
        self._unowned.note(broker, loads, report.bundles or ())
        data = with_system_bundles(answer, self._system_bundles.get(broker, ()))
        self._writer.write("load-report", type_of(LoadReportMessage), broker, data)
        self._write_topics(broker, self._topics(broker, loads))

    def _look_for_system_bundles(self, brokers: Sequence[str]) -> None:
        """Who owns the bundles of ``pulsar/system``, for the reports from then on; an error keeps what was known."""
        by_broker: dict[str, list[str]] = defaultdict(list)
        bundles: list[Bundle] | None = None
        try:
            bundles = self._admin.bundles(SYSTEM_NAMESPACE)
            for bundle in bundles:
                by_broker[self._admin.owner(bundle, brokers) or ""].append(str(bundle))
        except AdminError as error:
            if bundles is not None or error.failure != "not-found":
                if self._is_own_known:
                    _LOG.warning("who owns the bundles of %s could not be read: %s", SYSTEM_NAMESPACE, error)
                self._is_own_known = False
                return
        self._system_bundles, self._is_own_known = by_broker, True

    def _write_published(self, broker: str) -> None:
        """What a broker published, with what it owns.

        Known to do badly: ``owned_bundles`` can hang a broker that takes bundles over just then (``PulsarAdmin.owner`` says why). Once
        a broker and sweep that is rare, and nothing else tells bundles that are too light to be published.
        """
        answer = read_published(self._load_data.newest(broker, within_s=self._wait_s))
        owned = self._admin.owned_bundles(self._pulsar_cluster, broker)
        loads = {name: load for name, load in answer.bundles.items() if name in owned}
        self._unowned.note(broker, loads, owned)
        topics = self._topics(broker, answer.bundles)
        everything = topics if self._target.topic_stats == "all" else {}
        data = broker_load(answer, owned, everything)
        self._writer.write("broker-load", type_of(BrokerLoadMessage), broker, data)
        self._write_topics(broker, topics)

    def _topics(self, broker: str, loads: Mapping[str, BundleLoad]) -> dict[str, dict[str, TopicLoad]]:
        """Topics that are to be reported, by bundle."""
        target = self._target
        wanted = wanted_bundles(loads, wanted=target.topic_stats, limits=self._limits)
        if wanted is None or wanted:
            return topic_traffic(self._admin.topic_stats(broker), wanted)
        return {}

    def _write_topics(self, broker: str, topics: dict[str, dict[str, TopicLoad]]) -> None:
        if topics or self._target.topic_stats == "all":
            data = msgspec.json.encode(topics)
            self._writer.write("topic-stats", type_of(TopicStatsMessage), broker, data)


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
            sink=sink,
            cadence=Cadence.from_rounds(decisions.rounds, sweeps_per_round=target.sweeps_per_round_count),
            clock_s=clock_s,
        )
        self._target = target
        self._trimtab_topics = TrimtabTopics.from_settings(settings)
        self._http, self._admin, configuration = self._connect()
        self._pulsar_cluster = configuration.cluster_name
        self._managers = LoadManagers(
            self._admin, self.metrics, cluster=cluster, first=configuration.load_manager
        )
        self._load_data = LoadData(self._admin, self._http, target)
        self._sweeper = Sweeper(
            self._admin,
            self._writer,
            self.metrics,
            target=target,
            limits=decisions.split,
            pulsar_cluster=self._pulsar_cluster,
            managers=self._managers,
            load_data=self._load_data,
            unowned=Unowned(self._admin, self._writer.now_ms),
        )
        self._on_at: dict[str, list[str]] = defaultdict(list)
        """By the key of a balancer of Pulsar's own, the brokers at which it was on when that was last logged."""
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
        _LOG.info(
            "sweep of %s: %s, %d failed",
            self._cluster,
            counted(len(swept.asked), "broker"),
            len(swept.failed),
        )
        is_reading = self._facts_reader is not None and self._facts_reader.is_alive()
        if ended_s >= self._facts_due_s and not is_reading:
            self._facts_due_s = ended_s + self._target.cluster_interval_s
            self._facts_reader = threading.Thread(
                target=self._read_facts, args=(swept.asked,), name="facts", daemon=True
            )
            self._facts_reader.start()
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
            configuration = admin.configuration()
            require_reports(configuration, cluster=self._cluster)
            admin.brokers(configuration.cluster_name)
        except (AdminError, CredentialsError, WrongLoadManager) as error:
            http.close()
            raise StartRefused(str(error)) from error
        return http, admin, configuration

    def _read_facts(self, brokers: Sequence[str]) -> None:
        """Runs beside the sweeps: a cluster with thousands of namespaces takes a while."""
        try:
            require_reports(self._admin.configuration(), cluster=self._cluster)
            with ThreadPoolExecutor(_FACTS_THREADS, thread_name_prefix="facts") as pool:
                facts = read_facts(
                    self._admin,
                    pool,
                    self._trimtab_topics,
                    pulsar_cluster=self._pulsar_cluster,
                    brokers=brokers,
                )
            data = msgspec.json.encode(facts)
            self._writer.write("cluster", type_of(PulsarClusterMessage), "cluster", data)
            self._managers.note({broker: reported.load_manager for broker, reported in facts.brokers.items()})
        except WrongLoadManager as error:
            self._refusal = StartRefused(str(error))
            return
        except (AdminError, CredentialsError, PublishError) as error:
            _LOG.warning(
                "whether Pulsar itself balances %s could not be read this time: %s", self._cluster, error
            )
            return
        shedding = {broker: reported.shedding_enabled for broker, reported in facts.brokers.items()}
        splitting = {broker: reported.auto_split_enabled for broker, reported in facts.brokers.items()}
        self.metrics.show_balancers(
            shedding_count=list(shedding.values()).count(True),
            splitting_count=list(splitting.values()).count(True),
        )
        self._log_balancer("sheds", "loadBalancerSheddingEnabled", shedding)
        self._log_balancer("splits", "loadBalancerAutoBundleSplitEnabled", splitting)

    def _log_balancer(self, does: str, key: str, is_on: Mapping[str, bool | None]) -> None:
        """Log where a balancer of Pulsar's own is on, if that has changed; a broker that could not be read (None) is as before."""
        before = self._on_at[key]
        names = [broker for broker, on in is_on.items() if (broker in before if on is None else on)]
        if names == before or (not names and None in is_on.values()):
            return
        self._on_at[key] = names
        if names:
            _LOG.warning(
                "Pulsar %s %s by itself, too (%s is on at %s)", does, self._cluster, key, ", ".join(names)
            )
        else:
            _LOG.info(
                "Pulsar no longer %s %s by itself (%s is off at every broker)", does, self._cluster, key
            )
