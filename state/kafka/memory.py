"""What is remembered about a Kafka cluster between rounds, as compact bytes with a version.

Beside the policy's own memory it has the last reading of the logs, from which write rates come, the part of the cluster's
throttle that is or may be ours, and the decision whose end is not known yet. Numbers of many partitions are a table by topic and
partition, in which they are found again by column.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from policies.columns import Bools, Ints
from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import BROKER_BITS, Moves
from policies.throttle.pacing_round import PacingMemory
from policies.throttle.roles import BrokerRole
from state.events import BrokerLogs, MovesReport
from state.layouts import seal, unseal

MISSING = -1
"""Place of a partition that is not in the table."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionTable:
    """n partitions ascending by topic and partition, with k numbers each."""

    topics: tuple[str, ...]
    """Names, ascending, each once."""
    columns: Ints
    """Place in ``topics``, partition, and the numbers, (n, 2 + k)."""

    @classmethod
    def empty(cls, numbers_count: int) -> "PartitionTable":
        """A table without partitions, with so many numbers for each."""
        return cls((), np.zeros((0, 2 + numbers_count), dtype=np.int64))

    @classmethod
    def of(cls, moves: Moves, numbers: Ints, kept: Bools) -> "PartitionTable":
        """A table with ``numbers``, (len(moves), k), of the rows that are true in ``kept``."""
        columns = np.column_stack([moves.topic, moves.partition, numbers])[kept]
        used, place = np.unique(columns[:, 0], return_inverse=True)
        columns[:, 0] = place
        return cls(tuple(moves.topics[each] for each in used.tolist()), columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PartitionTable)
            and self.topics == other.topics
            and np.array_equal(self.columns, other.columns)
        )

    __hash__ = None  # type: ignore[assignment]

    def take(self, kept: Bools) -> "PartitionTable":
        """The rows that are true in ``kept``, (n,)."""
        return self if kept.all() else PartitionTable(self.topics, self.columns[kept])

    def places_of(self, moves: Moves) -> Ints:
        """Row of each partition that moves, or ``MISSING``, (len(moves),)."""
        topic = places_in({name: place for place, name in enumerate(self.topics)}, moves.topics)[moves.topic]
        wanted = partition_keys(topic, moves.partition)
        own = partition_keys(self.columns[:, 0], self.columns[:, 1])
        return find_places(own, wanted)


def places_in(places: Mapping[str, int], names: tuple[str, ...]) -> Ints:
    """Place of each name, or ``MISSING``, shape of ``names``."""
    return np.array([places.get(name, MISSING) for name in names], dtype=np.int64)


def partition_keys(topic: Ints, partition: Ints) -> Ints:
    """One integer for each partition, shapes equal; below 0 where the topic is ``MISSING``."""
    found: Ints = (topic << BROKER_BITS) | partition
    return found


def find_places(keys: Ints, wanted: Ints) -> Ints:
    """Place in ``keys``, which ascend, of each wanted key, or ``MISSING``, shape of ``wanted``."""
    if not len(keys):
        return np.full(len(wanted), MISSING, dtype=np.int64)
    places = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, MISSING)


READING = ("at_ms", "leader", "log_size_bytes", "end_offset")
"""Numbers of a partition's log at its leader at one moment; the end offset may be ``UNKNOWN``."""
KNOWN_RATE = ("write_bytes_per_s", "at_ms")
"""Numbers of a partition's last known write rate."""


class ThrottleConfigs(msgspec.Struct, frozen=True, array_like=True):
    """Kafka's dynamic configs that make a throttle: replica lists of topics, rates of brokers in bytes/s; KIP-73."""

    lists: ThrottledLists = ThrottledLists()
    rates: dict[BrokerRole, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing."""
        return not (self.lists.leader or self.lists.follower or self.rates)


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A decision whose result has not come."""

    action_id: str
    expires_ms: int
    wanted: ThrottleConfigs
    """All throttle configs of ours, once it is carried out."""


@dataclass(slots=True, kw_only=True)
class KafkaMemory:
    """The memory of one cluster; its values are replaced, never mutated in place."""

    last_ms: dict[str, int] = field(default_factory=dict)
    """Time of each broker's newest report."""
    readings: PartitionTable = field(default_factory=lambda: PartitionTable.empty(len(READING)))
    """The columns of ``READING``."""
    rates: PartitionTable = field(default_factory=lambda: PartitionTable.empty(len(KNOWN_RATE)))
    """The columns of ``KNOWN_RATE`` of the partitions that move, for rounds in which no write rate can be measured."""
    pacing: PacingMemory = field(default_factory=PacingMemory)
    """The throttle that is wanted."""
    is_shadow: bool = False
    """Whether ``pacing`` is what a dry-run decided, so that nothing of it is on the cluster."""
    asked: Asked | None = None
    confirmed: ThrottleConfigs = field(default_factory=ThrottleConfigs)
    """What is on the cluster because of us: a result or the cluster itself has shown it."""
    attempted: ThrottleConfigs = field(default_factory=ThrottleConfigs)
    """What decisions set that are not confirmed: it may be on the cluster beside ``confirmed``."""
    is_running: bool = False
    """Whether Kafka carried out any move at the last observation; a throttle may be set before that."""
    failures_count: int = 0
    """Decisions in a row that were not carried out."""
    retry_ms: int = 0
    """Nothing is decided before this time; the more failures, the later it is."""
    drift_rounds: int = 0
    """Rounds in a row in which settings of ours were not as decided."""
    tells_rates: bool = False
    """Whether reports contain rates at all: if they do not, no rate can be found missing."""
    tells_lists: bool = False
    silent_rounds: dict[int, int] = field(default_factory=dict)
    """Rounds in a row without a report, by broker of the move; only of brokers that did not report in the last round."""
    is_late: bool = False
    """Whether the move was late when its progress was last seen."""


class _Newest(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    id: str

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class WaitingLogs(_Newest, frozen=True, array_like=True):
    """A broker's newest report of an open round."""

    logs: BrokerLogs

    @property
    def rows_count(self) -> int:
        """Number of replicas in the report."""
        return len(self.logs.replicas)


class WaitingMoves(_Newest, frozen=True, array_like=True):
    """The newest report on reassignments of an open round."""

    report: MovesReport

    @property
    def rows_count(self) -> int:
        """Number of partitions in the report."""
        return len(self.report.moves)


class _MemoryBytes(msgspec.Struct, array_like=True):
    last_ms: dict[str, int]
    topics: list[str]
    readings: bytes
    rated_topics: list[str]
    rates: bytes
    pacing: PacingMemory
    is_shadow: bool
    asked: Asked | None
    confirmed: ThrottleConfigs
    attempted: ThrottleConfigs
    is_running: bool
    failures_count: int
    retry_ms: int
    drift_rounds: int
    tells_rates: bool
    tells_lists: bool
    silent_rounds: dict[int, int]
    is_late: bool


_TABLES = ("topics", "readings", "rated_topics", "rates")
_SAME = [name for name in _MemoryBytes.__struct_fields__ if name not in _TABLES]
"""Fields that are stored as they are."""

_memory = msgspec.msgpack.Decoder(_MemoryBytes)
_logs = msgspec.msgpack.Decoder(WaitingLogs)
_moves = msgspec.msgpack.Decoder(WaitingMoves)


def encode_kafka(memory: KafkaMemory) -> bytes:
    """Bytes of a memory; 80 bytes for each moving partition, and the throttled replica lists."""
    return seal(
        _MemoryBytes(
            topics=list(memory.readings.topics),
            readings=memory.readings.columns.astype("<i8").tobytes(),
            rated_topics=list(memory.rates.topics),
            rates=memory.rates.columns.astype("<i8").tobytes(),
            **{name: getattr(memory, name) for name in _SAME},
        )
    )


def decode_kafka(value: bytes) -> KafkaMemory:
    """Memory from bytes. Raises what ``unseal`` does."""
    body = _memory.decode(unseal("kafka", value))
    return KafkaMemory(
        readings=_table_of(body.topics, body.readings, READING),
        rates=_table_of(body.rated_topics, body.rates, KNOWN_RATE),
        **{name: getattr(body, name) for name in _SAME},
    )


def _table_of(topics: list[str], columns: bytes, numbers: tuple[str, ...]) -> PartitionTable:
    return PartitionTable(tuple(topics), np.frombuffer(columns, dtype="<i8").reshape(-1, 2 + len(numbers)))


def decode_logs(value: bytes) -> WaitingLogs:
    """Waiting report from its sealed bytes. Raises what ``unseal`` does."""
    return _logs.decode(unseal("logs", value))


def decode_moves(value: bytes) -> WaitingMoves:
    """Waiting report on reassignments from its sealed bytes. Raises what ``unseal`` does."""
    return _moves.decode(unseal("moves", value))
