"""One sweep of a Kafka cluster: what moves, every broker's logs of it and its throttle, then a tick.

Invariants: what could not be read is absent and named in the tick, never 0; a dead broker costs its own numbers only; a
report's time is when its broker's answer was complete here. Changes nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from policies.throttle.moves import NO_LEADER
from policies.throttle.rates import BrokerRole
from streaming.collect.cadence import Patience
from streaming.collect.metrics import CollectorMetrics
from streaming.kafka_admin.connection import ClusterError
from streaming.kafka_admin.reading import (
    Partition,
    PartitionState,
    RunningMove,
    read_brokers,
    read_end_offsets,
    read_log_sizes,
    read_partitions,
    read_reassignments,
)
from streaming.kafka_admin.throttles import ThrottlesFound, read_throttle
from streaming.sinks.input_events import EventSink
from streaming.wire.encode import encode_input
from streaming.wire.kafka import KafkaBrokerData, Move, ReassignmentData, Replica, Throttled, ThrottleRates
from streaming.wire.messages import (
    KafkaLoadReportMessage,
    ReassignmentMessage,
    TickData,
    TickMessage,
    type_of,
)

READ_RESULTS = ("ok", "failed")
EVENTS = ("load-report", "reassignment", "tick")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep came to: brokers asked, and those that failed with the reason."""

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
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self._cluster = cluster
        self._clock_s = clock_s
        self._patience = Patience()

    def sweep(self, admin: KafkaAdminClient) -> Swept:
        """Read everything once.

        Raises ``KafkaError`` or ``ClusterError`` where the cluster as a whole does not answer, and ``PublishError`` where
        nothing can be written.
        """
        running = read_reassignments(admin)
        states = read_partitions(admin, {topic for topic, _ in running})
        alive = read_brokers(admin)
        moved_ms = self._now_ms()
        wanted = sorted(alive | {broker for move in running.values() for broker in move.replicas})
        self._patience.keep_only([str(broker) for broker in wanted])
        failed = {broker: "not registered in the cluster" for broker in wanted if broker not in alive}
        left_out = {
            broker: "left out of this sweep: it failed in the last ones"
            for broker in sorted(alive)
            if self._patience.skips(str(broker))
        }
        failed |= left_out
        asked = [broker for broker in wanted if broker not in failed]
        topics = {topic for topic, _ in running if any(where[0] == topic for where in states)}
        throttle = read_throttle(admin, topics=topics, brokers=asked)
        self._say_moves(running, states, throttle, moved_ms)
        offsets = _end_offsets(admin, running, states)
        for broker in asked:
            self._read_broker(admin, broker, running, states, offsets, throttle, failed)
        self._tick(wanted, failed)
        return Swept(asked=tuple(wanted), failed=failed, moving_count=len(running))

    def _read_broker(
        self,
        admin: KafkaAdminClient,
        broker: int,
        running: Mapping[Partition, RunningMove],
        states: Mapping[Partition, PartitionState],
        offsets: Mapping[Partition, int],
        throttle: ThrottlesFound,
        failed: dict[int, str],
    ) -> None:
        mine = [where for where, move in running.items() if broker in move.replicas]
        sizes: Mapping[Partition, Mapping[int, int]] = {}
        if mine:
            found = read_log_sizes(admin, mine, [broker])
            sizes = found.sizes_bytes
            failed |= found.failed
        if broker in throttle.failed:
            failed[broker] = throttle.failed[broker]
        if broker in failed:
            self._metrics.count_read("failed")
            self._patience.failed(str(broker))
            return
        self._metrics.count_read("ok")
        self._patience.answered(str(broker))
        rates = throttle.throttle.rates_bytes_per_s
        data = KafkaBrokerData(
            broker=broker,
            throttle=ThrottleRates(
                leader_bytes_per_s=rates.get(BrokerRole("leader", broker)),
                follower_bytes_per_s=rates.get(BrokerRole("follower", broker)),
            ),
            replicas=[
                _replica(where, broker, sizes[where][broker], states, offsets)
                for where in mine
                if broker in sizes.get(where, {})
            ],
        )
        self._say("load-report", type_of(KafkaLoadReportMessage), str(broker), data, self._now_ms())

    def _say_moves(
        self,
        running: Mapping[Partition, RunningMove],
        states: Mapping[Partition, PartitionState],
        throttle: ThrottlesFound,
        time_ms: int,
    ) -> None:
        lists = throttle.throttle.lists
        data = ReassignmentData(
            moves=[_move(where, move, states.get(where)) for where, move in sorted(running.items())],
            throttled=Throttled(leader=dict(lists.leader), follower=dict(lists.follower)),
        )
        self._say("reassignment", type_of(ReassignmentMessage), "reassignments", data, time_ms)

    def _tick(self, asked: Iterable[int], failed: Mapping[int, str]) -> None:
        data = TickData(
            asked=[str(broker) for broker in asked],
            failed={str(broker): reason for broker, reason in sorted(failed.items())},
        )
        self._say("tick", type_of(TickMessage), "tick", data, self._now_ms())
        self._sink.flush()

    def _say(self, kind: str, type_: str, subject: str, data: msgspec.Struct, time_ms: int) -> None:
        event = encode_input(
            type_=type_,
            id_=f"{subject}/{time_ms}",
            source=f"/trimtab/collect/{self._cluster}",
            subject=subject,
            time_ms=time_ms,
            cluster=self._cluster,
            data=msgspec.json.encode(data),
        )
        self._sink.send(self._cluster, event)
        self._metrics.count_event(kind)

    def _now_ms(self) -> int:
        return int(1000 * self._clock_s())


def _end_offsets(
    admin: KafkaAdminClient,
    running: Mapping[Partition, RunningMove],
    states: Mapping[Partition, PartitionState],
) -> dict[Partition, int]:
    """Of the partitions that have a leader; they only tell a log that shrank from one nobody wrote to."""
    led = [where for where in running if where in states and states[where].leader != NO_LEADER]
    try:
        return read_end_offsets(admin, led)
    except (KafkaError, ClusterError):
        return {}


def _replica(
    where: Partition,
    broker: int,
    size: int,
    states: Mapping[Partition, PartitionState],
    offsets: Mapping[Partition, int],
) -> Replica:
    is_leader = where in states and states[where].leader == broker
    return Replica(
        topic=where[0],
        partition=where[1],
        leader=is_leader,
        log_size_bytes=size,
        log_end_offset=offsets.get(where) if is_leader else None,
    )


def _move(where: Partition, move: RunningMove, state: PartitionState | None) -> Move:
    leader = NO_LEADER if state is None or state.leader not in move.replicas else state.leader
    return Move(
        topic=where[0],
        partition=where[1],
        replicas=list(move.replicas),
        adding=list(move.adding),
        removing=list(move.removing),
        leader=leader,
        isr=[] if state is None else list(state.in_sync),
    )
