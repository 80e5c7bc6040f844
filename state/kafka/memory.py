"""What is remembered of a Kafka cluster between rounds, as compact bytes with a version.

Beside the policy's own memory: the logs as they were read last, from which write rates come, and the decision whose end
is not known yet.
"""

from dataclasses import dataclass, field

import msgspec
import numpy as np

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_plan import PacingMemory
from policies.throttle.rates import Role
from state.engine.layouts import seal, unseal
from state.kafka.partition_table import PartitionTable
from state.kafka_reports import BrokerLogs, MovesReport

READING = ("at_ms", "leader", "log_size_bytes", "end_offset")
"""Numbers of a partition's log at its leader at one moment; the end offset may be ``UNKNOWN``."""
KNOWN_RATE = ("write_bytes_per_s", "at_ms")
"""Numbers of what was written to a partition when that was known last."""


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A decision whose result has not come."""

    action_id: str
    expires_ms: int
    before: PacingMemory
    """To go back to if it was not carried out."""
    added: ThrottledLists
    """Entries it adds."""
    leader_rates: dict[int, int]
    """As they shall be."""
    follower_rates: dict[int, int]
    cleared: list[tuple[Role, int]]
    """Rates that it takes off."""


@dataclass(slots=True, kw_only=True)
class KafkaMemory:
    """One cluster; replaced values, never mutated in place."""

    last_ms: dict[str, int] = field(default_factory=dict)
    """Time of each broker's newest report."""
    readings: PartitionTable = field(default_factory=lambda: PartitionTable.empty(len(READING)))
    """The columns of ``READING``."""
    rates: PartitionTable = field(default_factory=lambda: PartitionTable.empty(len(KNOWN_RATE)))
    """The columns of ``KNOWN_RATE``, of the partitions that move, for rounds in which none is reported."""
    pacing: PacingMemory = field(default_factory=PacingMemory)
    pending: Pending | None = None
    attempted: ThrottledLists = field(default_factory=ThrottledLists)
    """Entries of decisions that failed: some may be on the cluster all the same, and they are nobody else's."""
    is_running: bool = False
    """Whether Kafka carried anything out when it was looked at last; a throttle may be set before."""
    failures_count: int = 0
    """Decisions in a row that were not carried out."""
    retry_ms: int = 0
    """Nothing is decided before; the more failures, the later."""
    real: PacingMemory | None = None
    """What is on the cluster while ``pacing`` is what a dry-run decided; None: ``pacing`` itself."""
    drift_rounds: int = 0
    """Rounds in a row in which settings of ours were not as decided."""
    tells_rates: bool = False
    """Whether reports tell rates at all: from one that does not, nothing can be missing."""
    tells_lists: bool = False
    changed_rates: dict[str, int] = field(default_factory=dict)
    """Rates in force that somebody set in place of ours, by role as in ``leader:101``."""


class WaitingLogs(msgspec.Struct, frozen=True, array_like=True):
    """A broker's newest report of an open round."""

    time_ms: int
    id: str
    logs: BrokerLogs

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)

    @property
    def rows_count(self) -> int:
        """Replicas that it tells of."""
        return len(self.logs.replicas)


class WaitingMoves(msgspec.Struct, frozen=True, array_like=True):
    """The newest word on reassignments of an open round."""

    time_ms: int
    id: str
    report: MovesReport

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)

    @property
    def rows_count(self) -> int:
        """Partitions that it tells of."""
        return len(self.report.moves)


class _MemoryBytes(msgspec.Struct, array_like=True):
    last_ms: dict[str, int]
    topics: list[str]
    columns: bytes
    pacing: PacingMemory
    pending: Pending | None
    attempted: ThrottledLists
    is_running: bool
    failures_count: int
    retry_ms: int
    real: PacingMemory | None
    drift_rounds: int = 0
    tells_rates: bool = False
    tells_lists: bool = False
    changed_rates: dict[str, int] = {}
    rated_topics: list[str] = []
    rates: bytes = b""


_memory = msgspec.msgpack.Decoder(_MemoryBytes)
_logs = msgspec.msgpack.Decoder(WaitingLogs)
_moves = msgspec.msgpack.Decoder(WaitingMoves)


def encode_kafka(memory: KafkaMemory) -> bytes:
    """Bytes of a memory; 80 bytes a moving partition, and the throttled replica lists."""
    return seal(
        _MemoryBytes(
            memory.last_ms,
            *_bytes_of(memory.readings),
            memory.pacing,
            memory.pending,
            memory.attempted,
            memory.is_running,
            memory.failures_count,
            memory.retry_ms,
            memory.real,
            memory.drift_rounds,
            memory.tells_rates,
            memory.tells_lists,
            memory.changed_rates,
            *_bytes_of(memory.rates),
        )
    )


def decode_kafka(value: bytes) -> KafkaMemory:
    """Memory from bytes. Raises what ``unseal`` does."""
    body = _memory.decode(unseal("kafka", value))
    return KafkaMemory(
        last_ms=body.last_ms,
        readings=_table_of(body.topics, body.columns, READING),
        pacing=body.pacing,
        pending=body.pending,
        attempted=body.attempted,
        is_running=body.is_running,
        failures_count=body.failures_count,
        retry_ms=body.retry_ms,
        real=body.real,
        drift_rounds=body.drift_rounds,
        tells_rates=body.tells_rates,
        tells_lists=body.tells_lists,
        changed_rates=body.changed_rates,
        rates=_table_of(body.rated_topics, body.rates, KNOWN_RATE),
    )


def _bytes_of(table: PartitionTable) -> tuple[list[str], bytes]:
    return list(table.topics), table.columns.astype("<i8").tobytes()


def _table_of(topics: list[str], columns: bytes, numbers: tuple[str, ...]) -> PartitionTable:
    return PartitionTable(tuple(topics), np.frombuffer(columns, dtype="<i8").reshape(-1, 2 + len(numbers)))


def encode_logs(waiting: WaitingLogs) -> bytes:
    """Bytes of a waiting report."""
    return seal(waiting)


def decode_logs(value: bytes) -> WaitingLogs:
    """Waiting report from bytes. Raises what ``unseal`` does."""
    return _logs.decode(unseal("logs", value))


def encode_moves(waiting: WaitingMoves) -> bytes:
    """Bytes of a waiting word on reassignments."""
    return seal(waiting)


def decode_moves(value: bytes) -> WaitingMoves:
    """Waiting word on reassignments from bytes. Raises what ``unseal`` does."""
    return _moves.decode(unseal("moves", value))
