"""What is remembered about a Kafka cluster between rounds.

Beside the policy's own memory it has the last reading of the logs, from which write rates come, the part of the cluster's
throttle that is or may be ours, and the decision whose end is not known yet. Numbers of many partitions are a table by topic and
partition, in which they are found again by column.
"""

from dataclasses import dataclass, field

import msgspec

from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory
from policies.throttle.roles import BrokerRole
from state.events import PartitionTable

READING = ("at_ms", "leader", "log_size_bytes", "end_offset")
"""Numbers of a partition's log at its leader at one moment; the end offset may be ``UNKNOWN``."""
KNOWN_RATE = ("write_bytes_per_s", "at_ms")
"""Numbers of a partition's last known write rate."""
PROGRESS = ("broker", "left_bytes", "since_ms", "since_bytes")
"""Who lacks most of a partition, and how much; when that last shrank, and ``KafkaMemory.arrived_bytes`` of the broker then."""


class ThrottleConfigs(msgspec.Struct, frozen=True, array_like=True):
    """Kafka's dynamic configs that make a throttle: replica lists of topics, rates of brokers in bytes/s; KIP-73."""

    lists: ThrottledLists = ThrottledLists()
    rates: dict[BrokerRole, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing."""
        return self.lists.is_empty and not self.rates


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A decision whose result has not come."""

    action_id: str
    expires_ms: int
    wanted: ThrottleConfigs
    """All throttle configs of ours, once it is carried out."""


class Absence(msgspec.Struct, frozen=True, array_like=True):
    """A broker that is away, or was and has replicas that are behind."""

    since_ms: int
    until_ms: int | None = None
    """None: it is away."""
    is_large: bool = False
    """Whether its return was seen to be a recovery: that stays so while it catches up."""
    counted_ms: int = 0
    """Until when ``written_bytes`` counts; what was written since is not known yet."""
    written_bytes: int = 0
    """What was written to the partitions that it lacks, since it was last seen well."""


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
    running_count: int = 0
    """Copies that had begun at the last observation; a throttle may be set before any has."""
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
    """Whether the copies were late when their progress was last seen."""
    progress: PartitionTable = field(default_factory=lambda: PartitionTable.empty(len(PROGRESS)))
    """The columns of ``PROGRESS`` of the partitions that move."""
    arrived_bytes: dict[int, int] = field(default_factory=dict)
    """How much of what brokers lacked has arrived, by broker, since it was first seen."""
    absences: dict[int, Absence] = field(default_factory=dict)
    """By broker with replicas that are behind."""
    live_ms: int | None = None
    """When it was last seen who is alive; None: not yet, or too long ago to say who was away."""
