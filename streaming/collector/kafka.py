"""``trimtab collect kafka``: sweeps one cluster for as long as it runs. A sweep changes nothing.

A sweep reads the moving partitions, and every broker's logs of them and its throttle; then it writes a tick. What could not be
read is absent and named in the tick, never 0; if a broker is dead, only its own numbers are missing; a report's time is when its
broker's answer was complete here. A broker's traffic is the last reading of its metrics page; the sweep does not wait for the page.

A collector is made once the cluster answers. After that it waits outages out, asks less and less often, and shows them in the
metrics and the readiness. Planned moves come from a file, Kafka's own ``reassignment.json``; one that is not possible is refused or
named, never dropped silently.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from policies.throttle.moves import NO_LEADER
from policies.throttle.rates import BrokerRole
from policies.wording import counted
from streaming.collector.collector import Cadence, Collector, EventWriter, Patience, Swept
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
from streaming.kafka.cluster import (
    KafkaCluster,
    Partition,
    PartitionState,
    RunningMove,
    ThrottlesFound,
    cluster_of,
)
from streaming.process.exits import words_of
from streaming.settings import ClusterSettingsSource, KafkaTarget, Settings
from streaming.transport.errors import PublishError
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)


METRICS_FAILED = "metrics-failed"
READ_RESULTS = ("ok", "failed", METRICS_FAILED)
EVENTS = ("load-report", "reassignment", "tick")


class _Row(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[int]


class _File(msgspec.Struct, frozen=True):
    partitions: list[_Row]


Planned = Mapping[Partition, tuple[int, ...]]
"""Each partition's replicas after its move."""


def read_planned(path: str | None, before: Planned) -> tuple[Planned, list[str]]:
    """The planned moves, and a sentence for each that cannot be, or about a file that is not there, which plans nothing.

    If the file cannot be read, ``before`` is still the plan: half a file is no end of a plan.
    """
    if path is None:
        return {}, []
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except FileNotFoundError:
        missing = Path(path).absolute()
        return {}, [
            f"there is no file {missing}, so nothing is planned: correct the path, or take it out after the move"
        ]
    except (OSError, msgspec.MsgspecError) as error:
        return before, [f"{path} cannot be read, so the plan before it counts: {words_of(error)}"]
    planned: dict[Partition, tuple[int, ...]] = {}
    odd = []
    for row in file.partitions:
        name = f"{row.topic}-{row.partition}"
        if not row.replicas or len(set(row.replicas)) < len(row.replicas) or min(row.replicas) < 0:
            odd.append(f"{name} is left out: replicas is {row.replicas}; give one broker or more, each once")
        elif planned.setdefault((row.topic, row.partition), tuple(row.replicas)) != tuple(row.replicas):
            odd.append(f"{name} is given twice, and the first counts: give each partition once")
    return planned, odd


def find_conflicts(
    planned: Planned,
    states: Mapping[Partition, PartitionState],
    running: Mapping[Partition, RunningMove],
    brokers: Collection[int],
) -> Iterator[str]:
    """One sentence for each planned move that cannot happen as planned, in order."""
    for where, target in sorted(planned.items()):
        name = f"{where[0]}-{where[1]}"
        there = states[where].replicas if where in states else ()  # they need not be alive
        strangers = sorted(set(target) - set(there) - set(brokers))
        move = running.get(where)
        if where not in states:
            yield f"{name} is planned, but the cluster has no such partition: it is left out"
        elif strangers:
            yield (
                f"{name} is planned for {list(target)}, but the cluster has no broker {strangers}: start it, or "
                "plan another one"
            )
        elif move is not None and set(move.target) != set(target):
            yield (
                f"{name} is planned for {list(target)}, but already moves to {list(move.target)}: the running "
                "move counts"
            )


def planned_move(target: tuple[int, ...], state: PartitionState) -> RunningMove:
    """The move as it would start now. One that adds no replica, for example because it is over, is none."""
    return RunningMove(
        replicas=state.replicas,
        adding=tuple(broker for broker in target if broker not in state.replicas),
        removing=tuple(broker for broker in state.replicas if broker not in target),
    )


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
        self._planned_file = planned_file
        self._meter = meter
        self._metrics = metrics
        self._writer = writer
        self._patience = Patience()
        self._warned: list[str] = []
        self._planned: Planned = {}

    def sweep(self, kafka: KafkaCluster) -> Swept:
        """Read everything once.

        Raises ``ClusterError`` where the cluster as a whole does not answer, and ``PublishError`` where nothing can be written.
        """
        alive = kafka.brokers()
        if self._meter is not None:
            self._meter.begin(alive)
        moves, moved_ms = self._moves(kafka, alive), self._writer.now_ms()
        wanted = sorted(
            alive.keys() | {broker for move in moves.values() for broker in (*move.replicas, *move.adding)}
        )
        failed = self._find_left_out(wanted, alive)
        asked = [broker for broker in wanted if broker not in failed]
        throttle = kafka.throttle(topics={topic for topic, _ in moves}, brokers=asked)
        self._write_moves(moves, throttle, alive, moved_ms)
        offsets = kafka.end_offsets({where: move.leader for where, move in moves.items()})
        for broker in asked:
            why = self._read_broker(kafka, broker, moves, offsets, throttle)
            if why is not None:
                failed[broker] = why
        planned_count = sum(not set(move.adding) <= set(move.replicas) for move in moves.values())
        swept = Swept(
            asked=list(map(str, wanted)),
            failed={str(broker): reason for broker, reason in sorted(failed.items())},
            moving_count=len(moves) - planned_count,
            planned_count=planned_count,
        )
        self._writer.tick(swept.asked, swept.failed)
        return swept

    def _moves(self, kafka: KafkaCluster, alive: Collection[int]) -> dict[Partition, Move]:
        """The running moves, and the planned ones that do not run yet, in order."""
        running = kafka.reassignments()
        self._planned, odd = read_planned(self._planned_file, self._planned)
        states = kafka.partitions({topic for topic, _ in (*running, *self._planned)})
        lines = [*odd, *find_conflicts(self._planned, states, running, alive)]
        if lines != self._warned:  # each sweep would repeat them
            for line in lines:
                _LOG.warning('targets."%s".kafka.planned_file: %s', self._writer.cluster, line)
        self._warned = lines
        moves = dict(running)
        for where, target in self._planned.items():
            if where in states and set(target) - set(states[where].replicas):
                moves.setdefault(where, planned_move(target, states[where]))
        return {where: _move(where, moves[where], states.get(where)) for where in sorted(moves)}

    def _find_left_out(self, wanted: list[int], alive: Collection[int]) -> dict[int, str]:
        """Brokers that are not asked in this sweep, with the reason."""
        self._patience.keep_only([str(broker) for broker in wanted])
        failed = {broker: "not registered in the cluster" for broker in wanted if broker not in alive}
        for broker in wanted:
            if broker in alive and self._patience.skips(str(broker)):
                failed[broker] = "left out of this sweep: it failed in the last ones"
        return failed

    def _read_broker(
        self,
        kafka: KafkaCluster,
        broker: int,
        moves: Mapping[Partition, Move],
        offsets: Mapping[Partition, int],
        throttle: ThrottlesFound,
    ) -> str | None:
        """Report one broker; returns why that failed, None if it did not."""
        mine = [where for where, move in moves.items() if broker in (*move.replicas, *move.adding)]
        log_sizes = kafka.log_sizes(mine, [broker]) if mine else None
        why = throttle.failed.get(broker) or (None if log_sizes is None else log_sizes.failed.get(broker))
        if why is not None:
            self._metrics.count_read("failed")
            self._patience.note_failure(str(broker))
            return why
        self._metrics.count_read("ok")
        self._patience.note_answer(str(broker))
        sizes = {} if log_sizes is None else log_sizes.sizes_bytes
        replicas = [
            Replica(
                topic=where[0],
                partition=where[1],
                leader=moves[where].leader == broker,
                log_size_bytes=sizes[where][broker],
                log_end_offset=offsets.get(where) if moves[where].leader == broker else None,
            )
            for where in mine
            if broker in sizes.get(where, {})
        ]
        self._write_logs(broker, replicas, throttle)
        return None

    def _write_logs(self, broker: int, replicas: list[Replica], throttle: ThrottlesFound) -> None:
        rates, defaults = throttle.throttle.rates_bytes_per_s, throttle.throttle.defaults_bytes_per_s
        data = KafkaBrokerData(
            broker=broker,
            throttle=ThrottleRates(
                leader_bytes_per_s=rates.get(BrokerRole("leader", broker)),
                follower_bytes_per_s=rates.get(BrokerRole("follower", broker)),
                leader_default_bytes_per_s=defaults.get("leader"),
                follower_default_bytes_per_s=defaults.get("follower"),
            ),
            network=Network() if self._meter is None else self._meter.traffic(broker),
            replicas=replicas,
        )
        self._writer.write(
            "load-report", type_of(KafkaLoadReportMessage), str(broker), msgspec.json.encode(data)
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
            moves=list(moves.values()),
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


def _move(where: Partition, move: RunningMove, state: PartitionState | None) -> Move:
    """The move as it is reported. A leader that is not among the replicas is out of date, and counts as none.

    A broker that does not know the topic yet, because it has just come back, ends no move: nobody is known to lead it then.
    """
    leader, in_sync = (NO_LEADER, ()) if state is None else (state.leader, state.in_sync)
    return Move(
        topic=where[0],
        partition=where[1],
        replicas=list(move.replicas),
        adding=list(move.adding),
        removing=list(move.removing),
        leader=leader if leader in move.replicas else NO_LEADER,
        isr=list(in_sync),
    )


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
        self._complete(began_s=began_s, brokers_count=len(swept.asked) - len(swept.failed))
        _LOG.info(
            "sweep of %s: %s, %d failed; partitions that move: %d, that are planned to: %d",
            self._cluster,
            counted(len(swept.asked), "broker"),
            len(swept.failed),
            swept.moving_count,
            swept.planned_count,
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
