"""One sweep: every broker's load report and topic statistics, each sent as soon as it is read, then a tick.

Invariants: a broker that is slow or dead delays no other and no tick; a broker is never asked twice at once; every
broker Pulsar lists is in the tick, either answered or failed with the reason; an event's time is when the answer was
complete here.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import msgspec

from policies.splitting.ranges import Bundle
from policies.splitting.settings import SplitSettings
from state.events import SYSTEM_NAMESPACE
from streaming.collector.cadence import Patience
from streaming.collector.events import EventWriter
from streaming.collector.managers import LoadManagers
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.published import broker_load, read_published
from streaming.collector.reports import (
    ForeignReport,
    LoadReportAnswer,
    read_report,
    topic_traffic,
    wanted_bundles,
    with_pulsars_own,
)
from streaming.collector.unowned import Unowned
from streaming.contract.messages import (
    BrokerLoadMessage,
    LoadReportMessage,
    PulsarClusterData,
    PulsarClusterMessage,
    TopicLoad,
    TopicStatsMessage,
    type_of,
)
from streaming.process.deadline import Deadline
from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import AdminError
from streaming.pulsar.load_data import LoadData, NoLoadData
from streaming.settings.targets import PulsarTarget

_LOG = logging.getLogger(__name__)
_PUBLISHED_RATIO = 0.5
"""Part of a sweep's time in which it waits for a broker to publish its load again, after a move or at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The result of a sweep: brokers asked, and those that failed with the reason."""

    asked: tuple[str, ...]
    failed: Mapping[str, str]


class PulsarEventWriter(EventWriter):
    """Writes the events of one Pulsar cluster's collector. Thread-safe. Every method raises ``PublishError``."""

    def load_report(self, broker: str, report: bytes) -> None:
        """A broker's load report."""
        self.write("load-report", type_of(LoadReportMessage), broker, report)

    def broker_load(self, broker: str, data: bytes) -> None:
        """What a broker published, with what it owns."""
        self.write("broker-load", type_of(BrokerLoadMessage), broker, data)

    def topic_stats(self, broker: str, traffic: object) -> None:
        """Traffic of a broker's topics by bundle."""
        self.write("topic-stats", type_of(TopicStatsMessage), broker, msgspec.json.encode(traffic))

    def facts(self, data: PulsarClusterData) -> None:
        """Facts of the cluster besides its load."""
        self.write("cluster", type_of(PulsarClusterMessage), "cluster", msgspec.json.encode(data))


class Sweeper:
    """Sweeps one cluster; not for several threads at once."""

    def __init__(
        self,
        admin: PulsarAdmin,
        writer: PulsarEventWriter,
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
        self._pulsars_own: Mapping[str, Collection[str]] = {}
        self._is_own_known = True
        self._running: dict[str, Future[str | None]] = {}

    def sweep(self, *, within_s: float) -> Sweep:
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
            self._looking = self._pool.submit(self._look_for_pulsars_own, brokers)
        wait(asked.values(), timeout=within_s)
        for broker, future in asked.items():
            reason = self._outcome(broker, future)
            if reason is not None:
                failed[broker] = reason
        if brokers and not failed:  # a broker that was not read may list any bundle
            self._unowned.find(brokers, self._pool, within_s=deadline.left_s)
        self._writer.tick(brokers, failed, self._unowned.found)
        return Sweep(asked=tuple(brokers), failed=failed)

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
            self._read_and_write(broker)
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
                f"its load manager has changed to {self._managers.of(broker)}; the next sweep reads the broker "
                "accordingly"
            )
        return str(error)

    def _read_and_write(self, broker: str) -> None:
        if self._managers.is_extensible(broker):
            self._write_published(broker)
        else:
            self._write_report(broker)

    def _write_report(self, broker: str) -> None:
        answer = self._admin.load_report(broker)
        report = read_report(answer)
        self._unowned.note(broker, report.lastStats or {}, report.bundles or ())
        self._writer.load_report(broker, with_pulsars_own(answer, self._pulsars_own.get(broker, ())))
        self._write_topics(broker, self._topics(broker, report))

    def _look_for_pulsars_own(self, brokers: Sequence[str]) -> None:
        """Who owns the bundles of ``pulsar/system``, for the reports from then on; an error keeps what was known."""
        found: dict[str, list[str]] = defaultdict(list)
        bundles: list[Bundle] | None = None
        try:
            bundles = self._admin.bundles(SYSTEM_NAMESPACE)
            for bundle in bundles:
                found[self._admin.owner(bundle, brokers) or ""].append(str(bundle))
        except AdminError as error:
            if bundles is not None or error.failure != "not-found":
                if self._is_own_known:
                    _LOG.warning("who owns the bundles of %s could not be read: %s", SYSTEM_NAMESPACE, error)
                self._is_own_known = False
                return
        self._pulsars_own, self._is_own_known = found, True

    def _write_published(self, broker: str) -> None:
        """What a broker published, with what it owns.

        Known to do badly: ``owned_bundles`` can hang a broker that takes bundles over just then (``PulsarAdmin.owner`` says why). Once
        a broker and sweep that is rare, and nothing else tells bundles that are too light to be published.
        """
        found = read_published(self._load_data.of(broker, within_s=self._wait_s))
        owned = self._admin.owned_bundles(self._pulsar_cluster, broker)
        loads = {name: load for name, load in found.bundles.items() if name in owned}
        self._unowned.note(broker, loads, owned)
        topics = self._topics(broker, LoadReportAnswer(lastStats=found.bundles))
        everything = topics if self._target.topic_stats == "all" else {}
        self._writer.broker_load(broker, broker_load(found, owned, everything))
        self._write_topics(broker, topics)

    def _topics(self, broker: str, report: LoadReportAnswer) -> dict[str, dict[str, TopicLoad]]:
        """Topics that are to be reported, by bundle."""
        target = self._target
        wanted = wanted_bundles(
            report, wanted=target.topic_stats, ratio=target.topic_stats_ratio, limits=self._limits
        )
        if wanted is None or wanted:
            return topic_traffic(self._admin.topic_stats(broker), wanted)
        return {}

    def _write_topics(self, broker: str, topics: dict[str, dict[str, TopicLoad]]) -> None:
        if topics or self._target.topic_stats == "all":
            self._writer.topic_stats(broker, topics)
