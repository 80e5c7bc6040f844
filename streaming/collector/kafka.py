"""``trimtab collect kafka``: sweeps one cluster for as long as it runs. A sweep changes nothing.

A sweep reads what is copied, and every broker's logs of that and its throttle; then it writes a tick. What could not be
read is absent and named in the tick, never 0; if a broker is dead, only its own numbers are missing; a report's time is when its
broker's answer was complete here. A broker's traffic is the last reading of its metrics page; the sweep does not wait for the page.

A collector is made once the cluster answers. After that it waits outages out, asks less and less often, and shows them in the
metrics and the readiness.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack

import msgspec

from policies.throttle.rates import BrokerRole
from policies.wording import counted
from streaming.collector.collector import Cadence, Collector, EventWriter, Patience, Swept
from streaming.collector.copies import CopyFinder
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.network_metrics import NetworkMeter
from streaming.contract.kafka import (
    KafkaBrokerData,
    Move,
    Network,
    ReassignmentData,
    Replica,
    Throttled,
    ThrottleRates,
)
from streaming.contract.messages import KafkaLoadReportMessage, ReassignmentMessage, type_of
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster, LogSizes, Partition, cluster_of
from streaming.kafka.lags import Lags
from streaming.kafka.throttles import ThrottlesFound
from streaming.settings import ClusterSettingsSource, KafkaTarget, Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)


METRICS_FAILED = "metrics-failed"
READ_RESULTS = ("ok", "failed", METRICS_FAILED)
EVENTS = ("load-report", "reassignment", "tick")


class KafkaSweeper:
    """Sweeps one cluster. For one thread."""

    def __init__(
        self,
        writer: EventWriter,
        metrics: CollectorMetrics,
        *,
        planned_file: str | None = None,
        meter: NetworkMeter | None = None,
    ) -> None:
        self._copies = CopyFinder(writer.cluster, planned_file=planned_file)
        self._meter = meter
        self._metrics = metrics
        self._writer = writer
        self._patience = Patience()

    def sweep(self, kafka: KafkaCluster) -> Swept:
        """Read everything once.

        Raises ``ClusterError`` where the cluster as a whole does not answer, and ``PublishError`` where nothing can be written.
        """
        alive = kafka.brokers()
        if self._meter is not None:
            self._meter.begin(alive)
        moves, moved_ms = self._copies.find(kafka, alive, now_ms=self._writer.now_ms()), self._writer.now_ms()
        wanted = sorted(
            alive.keys() | {broker for move in moves.values() for broker in (*move.replicas, *move.adding)}
        )
        failed = self._find_left_out(wanted, alive)
        asked = [broker for broker in wanted if broker not in failed]
        throttle = kafka.throttle(topics={topic for topic, _ in moves}, brokers=asked)
        self._write_moves(moves, throttle, alive, moved_ms)
        logs, times_ms = self._read_logs(kafka, asked, moves, throttle)
        failed |= throttle.failed
        for answer in logs.values():
            failed |= answer.failed
        lags = _lags(kafka, moves, [broker for broker in asked if broker not in failed])
        for broker in asked:
            self._note(broker, is_read=broker not in failed)
            if broker not in failed:
                replicas = _replicas(broker, moves, logs, lags)
                disks_count = len(logs[broker].directories[broker]) if broker in logs else None
                self._write_logs(broker, replicas, throttle, disks_count, times_ms[broker])
        swept = Swept(
            asked=list(map(str, wanted)),
            failed={str(broker): reason for broker, reason in sorted(failed.items())},
            copied=_describe_copied(moves.values()),
        )
        self._writer.tick(swept.asked, swept.failed)
        return swept

    def _find_left_out(self, wanted: list[int], alive: Collection[int]) -> dict[int, str]:
        """Brokers that are not asked in this sweep, with the reason."""
        self._patience.keep_only([str(broker) for broker in wanted])
        failed = {broker: "not registered in the cluster" for broker in wanted if broker not in alive}
        for broker in wanted:
            if broker in alive and self._patience.skips(str(broker)):
                failed[broker] = "left out of this sweep: it failed in the last ones"
        return failed

    def _read_logs(
        self, kafka: KafkaCluster, asked: list[int], moves: Mapping[Partition, Move], throttle: ThrottlesFound
    ) -> tuple[dict[int, LogSizes], dict[int, int]]:
        """By broker, its logs of what is copied, and the time at which its answer was complete."""
        logs: dict[int, LogSizes] = {}
        times_ms: dict[int, int] = {}
        for broker in asked:
            if broker not in throttle.failed:
                mine = [where for where, move in moves.items() if broker in (*move.replicas, *move.adding)]
                if mine:
                    logs[broker] = kafka.log_sizes(mine, [broker])
                times_ms[broker] = self._writer.now_ms()
        return logs, times_ms

    def _note(self, broker: int, *, is_read: bool) -> None:
        self._metrics.count_read("ok" if is_read else "failed")
        if is_read:
            self._patience.note_answer(str(broker))
        else:
            self._patience.note_failure(str(broker))

    def _write_logs(
        self,
        broker: int,
        replicas: list[Replica],
        throttle: ThrottlesFound,
        disks_count: int | None,
        time_ms: int,
    ) -> None:
        rates, defaults = throttle.throttle.rates_bytes_per_s, throttle.throttle.defaults_bytes_per_s
        data = KafkaBrokerData(
            broker=broker,
            throttle=ThrottleRates(
                leader_bytes_per_s=rates.get(BrokerRole("leader", broker)),
                follower_bytes_per_s=rates.get(BrokerRole("follower", broker)),
                leader_default_bytes_per_s=defaults.get("leader"),
                follower_default_bytes_per_s=defaults.get("follower"),
                disk_bytes_per_s=rates.get(BrokerRole("disk", broker)),
                disk_default_bytes_per_s=defaults.get("disk"),
            ),
            network=Network() if self._meter is None else self._meter.traffic(broker),
            replicas=replicas,
            disk_threads_count=throttle.disk_threads.get(broker) or disks_count,
        )
        self._writer.write(
            "load-report",
            type_of(KafkaLoadReportMessage),
            str(broker),
            msgspec.json.encode(data),
            time_ms=time_ms,
        )

    def _write_moves(
        self,
        moves: Mapping[Partition, Move],
        throttle: ThrottlesFound,
        alive: Collection[int],
        time_ms: int,
    ) -> None:
        lists = throttle.throttle.lists
        data = ReassignmentData(
            moves=[
                msgspec.structs.replace(move, min_isr=throttle.min_isr.get(move.topic))
                for move in moves.values()
            ],
            throttled=Throttled(leader=dict(lists.leader), follower=dict(lists.follower)),
            live_brokers=sorted(alive),
        )
        self._writer.write(
            "reassignment",
            type_of(ReassignmentMessage),
            "reassignments",
            msgspec.json.encode(data),
            time_ms=time_ms,
        )


def _describe_copied(moves: Collection[Move]) -> str:
    """What is copied, or will be, by kind; only the kinds that there are."""
    planned_count = sum(not set(move.adding) <= set(move.replicas) for move in moves)
    reassigned_count = sum(bool(move.adding or move.removing) for move in moves) - planned_count
    kinds = (
        (reassigned_count, "partition", "reassigned"),
        (planned_count, "partition", "planned to be reassigned"),
        (sum(len(move.recovering) for move in moves), "replica", "brought up to date"),
        (sum(len(move.between_disks) for move in moves), "replica", "moved between disks"),
    )
    parts = [f"{counted(count, noun)} {what}" for count, noun, what in kinds if count]
    return ", ".join(parts) or "nothing is copied"


def _lags(kafka: KafkaCluster, moves: Mapping[Partition, Move], brokers: Collection[int]) -> Lags:
    behind = {
        broker: [where for where, move in moves.items() if broker in move.recovering] for broker in brokers
    }
    return Lags.read(
        kafka,
        {where: move.leader for where, move in moves.items()},
        counted=[where for where, move in moves.items() if move.recovering or move.between_disks],
        behind={broker: partitions for broker, partitions in behind.items() if partitions},
    )


def _replicas(
    broker: int, moves: Mapping[Partition, Move], logs: Mapping[int, LogSizes], lags: Lags
) -> list[Replica]:
    """A broker's replicas of what is copied, as far as it has told of them."""
    mine = logs.get(broker)
    if mine is None:
        return []
    replicas = []
    for where, sizes in mine.sizes_bytes.items():
        leader = moves[where].leader
        leader_bytes = logs[leader].sizes_bytes.get(where, {}).get(leader) if leader in logs else None
        on_disk = mine.disk_lags.get(where, {}).get(broker)
        replicas.append(
            Replica(
                topic=where[0],
                partition=where[1],
                leader=leader == broker,
                log_size_bytes=sizes[broker],
                log_end_offset=lags.ends.get(where) if leader == broker else None,
                missing_bytes=lags.missing_bytes(broker, where, leader_bytes),
                disk_missing_bytes=lags.bytes_of(on_disk, where, leader_bytes),
            )
        )
    return replicas


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
            sink=sink,
            cadence=Cadence.from_rounds(rounds, sweeps_per_round=target.sweeps_per_round_count),
            clock_s=clock_s,
        )
        self._target = target
        self._meter = self._network_meter()
        self._sweeper = KafkaSweeper(
            self._writer, metrics, planned_file=target.planned_file, meter=self._meter
        )
        self._connection = ExitStack()
        self._kafka: KafkaCluster | None = self._connect()

    def sweep(self) -> bool:
        """One sweep; False where the cluster as a whole does not answer, or nothing was written."""
        began_s = self._clock_s()
        try:
            self._kafka = self._kafka or self._connect()
            swept = self._sweeper.sweep(self._kafka)
        except (ClusterError, OSError) as error:
            self._disconnect()
            return self._fail("no-brokers", error)
        except PublishError as error:
            return self._fail("not-written", error)
        self._complete(began_s=began_s, brokers_count=len(swept.asked))
        _LOG.info(
            "sweep of %s: %s, %d failed; %s",
            self._cluster,
            counted(len(swept.asked), "broker"),
            len(swept.failed),
            swept.copied,
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

    def _disconnect(self) -> None:
        """Close a broken connection; the next sweep makes a new one."""
        self._kafka = None
        self._connection.close()
