"""One sweep of a Kafka cluster: the moving partitions, every broker's logs of them and its throttle, then a tick.

Invariants: what could not be read is absent and named in the tick, never 0; if a broker is dead, only its own numbers are
missing; a report's time is when its broker's answer was complete here. A broker's traffic is the last reading of its metrics
page; the sweep does not wait for the page. A sweep changes nothing.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from policies.throttle.moves import NO_LEADER
from policies.throttle.rates import BrokerRole
from streaming.collector.cadence import Patience
from streaming.collector.events import EventWriter
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.network_metrics import NetworkMeter
from streaming.collector.planned import BadPlan, Planned, find_conflicts, planned_move, read_planned
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
from streaming.kafka.cluster import KafkaCluster, Partition, PartitionState, RunningMove, ThrottlesFound
from streaming.transport.side import EventSink

_LOG = logging.getLogger(__name__)
METRICS_FAILED = "metrics-failed"
READ_RESULTS = ("ok", "failed", METRICS_FAILED)
EVENTS = ("load-report", "reassignment", "tick")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep: brokers asked, and those that failed with the reason."""

    asked: tuple[int, ...]
    failed: Mapping[int, str]
    moving_count: int


class KafkaSweeper:
    """Sweeps the cluster ``cluster`` into ``sink``; ``clock_s`` is Unix time. For one thread."""

    def __init__(
        self,
        sink: EventSink,
        metrics: CollectorMetrics,
        *,
        cluster: str,
        clock_s: Callable[[], float],
        planned_file: str | None = None,
        meter: NetworkMeter | None = None,
    ) -> None:
        self._planned_file = planned_file
        self._meter = meter
        self._metrics = metrics
        self._clock_s = clock_s
        self._events = EventWriter(sink, metrics, cluster=cluster, clock_ms=self._now_ms)
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
        moves, moved_ms = self._moves(kafka, alive), self._now_ms()
        wanted = sorted(
            alive.keys() | {broker for move in moves.values() for broker in (*move.replicas, *move.adding)}
        )
        failed = self._find_left_out(wanted, alive)
        asked = [broker for broker in wanted if broker not in failed]
        throttle = kafka.throttle(topics={topic for topic, _ in moves}, brokers=asked)
        self._write_moves(moves, throttle, alive, moved_ms)
        offsets = _end_offsets(kafka, moves)
        for broker in asked:
            why = self._read_broker(kafka, broker, moves, offsets, throttle)
            if why is not None:
                failed[broker] = why
        self._events.tick(
            [str(broker) for broker in wanted],
            {str(broker): reason for broker, reason in sorted(failed.items())},
        )
        return Swept(asked=tuple(wanted), failed=failed, moving_count=len(moves))

    def _moves(self, kafka: KafkaCluster, alive: Collection[int]) -> dict[Partition, Move]:
        """The running moves, and the planned ones that do not run yet, in order."""
        running, (planned, odd) = kafka.reassignments(), self._read_planned()
        states = kafka.partitions({topic for topic, _ in (*running, *planned)})
        self._warn_of([*odd, *find_conflicts(planned, states, running, alive)])
        found = {where: _move(where, move, states.get(where)) for where, move in running.items()}
        for where, target in planned.items():
            if where not in running and where in states:
                move = planned_move(where, target, states[where])
                if move is not None:
                    found[where] = move
        return dict(sorted(found.items()))

    def _read_planned(self) -> tuple[Planned, list[str]]:
        """The plan in the file, or the one before where it cannot be read: half a file is no end of a plan."""
        try:
            self._planned, odd = read_planned(self._planned_file)
        except BadPlan as error:
            return self._planned, [str(error)]
        return self._planned, odd

    def _warn_of(self, lines: list[str]) -> None:
        """Log the lines, once until they change."""
        if lines != self._warned:
            for line in lines:
                _LOG.warning("planned_file: %s", line)
        self._warned = lines

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
        found = kafka.log_sizes(mine, [broker]) if mine else None
        why = throttle.failed.get(broker) or (None if found is None else found.failed.get(broker))
        if why is not None:
            self._metrics.count_read("failed")
            self._patience.note_failure(str(broker))
            return why
        self._metrics.count_read("ok")
        self._patience.note_answer(str(broker))
        sizes = {} if found is None else found.sizes_bytes
        replicas = [
            _replica(moves[where], broker, sizes[where][broker], offsets.get(where))
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
        self._events.write(
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
        self._events.write(
            "reassignment",
            type_of(ReassignmentMessage),
            "reassignments",
            msgspec.json.encode(data),
            time_ms=time_ms,
        )

    def _now_ms(self) -> int:
        return int(1000 * self._clock_s())


def _end_offsets(kafka: KafkaCluster, moves: Mapping[Partition, Move]) -> dict[Partition, int]:
    """End offsets of the partitions that have a leader; they only show whether a log shrank or no producer wrote to it."""
    led = [where for where, move in moves.items() if move.leader != NO_LEADER]
    try:
        return kafka.end_offsets(led)
    except ClusterError:
        return {}


def _replica(move: Move, broker: int, size: int, offset: int | None) -> Replica:
    is_leader = move.leader == broker
    return Replica(
        topic=move.topic,
        partition=move.partition,
        leader=is_leader,
        log_size_bytes=size,
        log_end_offset=offset if is_leader else None,
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
