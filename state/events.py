"""Events: all that can change a cluster's memory, parsed and checked once, at the edge; from here on their types are trusted.

Times are event time in milliseconds since the epoch. No number is NaN or infinite, no rate or usage negative. What Kafka's
brokers and controller report about the partitions that move, or are planned to move, is kept in columns,
because a cluster may move 100,000 partitions at once. Sizes, offsets and rates are Kafka's int64; an unknown one is None or
``UNKNOWN``, never 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.throttle.copies import Copies
from policies.throttle.lists import ThrottledLists
from policies.throttle.replicas import BROKER_BITS
from policies.throttle.roles import Role
from state.facts import Facts
from state.overlay import ControlData

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
    def of_rows(
        cls, topics: Sequence[str], partitions: Sequence[int], *numbers: Sequence[int]
    ) -> "PartitionTable":
        """A table from columns in any order, one value each for each partition."""
        names = tuple(sorted(set(topics)))
        places = {name: place for place, name in enumerate(names)}
        columns = np.array([[places[name] for name in topics], partitions, *numbers], dtype=np.int64)
        return cls(names, columns[:, np.lexsort((columns[1], columns[0]))].T)

    @classmethod
    def from_copies(cls, copies: Copies, numbers: Ints, kept: Bools) -> "PartitionTable":
        """A table with ``numbers``, (len(moves), k), of the rows that are true in ``kept``."""
        columns = np.column_stack([copies.topic, copies.partition, numbers])[kept]
        used, place = np.unique(columns[:, 0], return_inverse=True)
        columns[:, 0] = place
        return cls(tuple(copies.topics[topic] for topic in used.tolist()), columns)

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

    def places_of(self, copies: Copies) -> Ints:
        """Row of each partition that moves, or ``MISSING``, (len(moves),)."""
        topic = places_in({name: place for place, name in enumerate(self.topics)}, copies.topics)[
            copies.topic
        ]
        wanted = partition_keys(topic, copies.partition)
        keys = partition_keys(self.columns[:, 0], self.columns[:, 1])
        return find_places(keys, wanted)


def places_in(places: Mapping[str, int], names: tuple[str, ...]) -> Ints:
    """Place of each name, or ``MISSING``, shape of ``names``."""
    return np.array([places.get(name, MISSING) for name in names], dtype=np.int64)


def partition_keys(topic: Ints, partition: Ints) -> Ints:
    """One integer for each partition, shapes equal; below 0 where the topic is ``MISSING``."""
    keys: Ints = (topic << BROKER_BITS) | partition
    return keys


def find_places(keys: Ints, wanted: Ints) -> Ints:
    """Place in ``keys``, which ascend, of each wanted key, or ``MISSING``, shape of ``wanted``."""
    if not len(keys):
        return np.full(len(wanted), MISSING, dtype=np.int64)
    places = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, MISSING)


class BrokerLogs(msgspec.Struct, frozen=True, array_like=True):
    """One broker: its replicas of what is copied, the throttle set on it, the traffic of its network."""

    broker: int
    replicas: PartitionTable
    """With four numbers each: log size in bytes, and end offset, missing bytes, missing bytes on another disk, or ``UNKNOWN``."""
    rates: dict[Role, int] = {}
    """Dynamic settings of the broker itself, bytes/s; without those that are not set, or not known."""
    default_rates: dict[Role, int] = {}
    """The same for all brokers that have none of their own."""
    in_bytes_per_s: int | None = None
    """None: not measured."""
    out_bytes_per_s: int | None = None
    disk_threads_count: int | None = None
    """Replicas that it moves between its disks at once; None: not known."""


class CopiesReport(msgspec.Struct, frozen=True, array_like=True):
    """All that is copied in a cluster, and the throttled replica lists of its topics; no rows if nothing is."""

    copies: Copies
    """Their rates and sizes are ``UNKNOWN``: they come from the brokers."""
    is_running: bool = False
    """Whether Kafka already carries out any of the reassignments; they may also be only planned."""
    throttled: ThrottledLists = ThrottledLists()
    live_brokers: tuple[int, ...] | None = None
    """Brokers that are registered and not fenced; None: not known."""


RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)
"""Columns of a bundle's traffic: messages/s in and out, bytes/s in and out."""
TOPICS, SESSIONS = range(2)
"""Columns of a bundle's counts."""

System = Literal["pulsar", "kafka"]

SYSTEM_NAMESPACE = "pulsar/system"
"""Pulsar's namespace of what serves the whole cluster: transaction coordinators, and the channel of the extensible load manager."""
_SYSTEM_TENANTS = ("pulsar/", "sla-monitor/")
_SYSTEM_NAMESPACE = re.compile(r"(?:pulsar|sla-monitor)/(?:[^/]+/)?[^/]+:\d+|pulsar/system")


def namespace_of(bundle: str) -> str:
    """``tenant/namespace`` (or ``tenant/cluster/namespace``) of a bundle's full name."""
    return bundle.rpartition("/")[0]


def is_system_bundle(bundle: str) -> bool:
    """Whether a bundle belongs to Pulsar itself: heartbeats, SLA monitors and ``pulsar/system`` take no part in balancing.

    Source: Pulsar ``NamespaceService.isSystemServiceNamespace`` of 4.0, which protects more than 4.2 does.
    """
    return (
        bundle.startswith(_SYSTEM_TENANTS) and _SYSTEM_NAMESPACE.fullmatch(namespace_of(bundle)) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Published:
    """What a broker publishes about itself where the extensible load manager (PIP-192) runs."""

    usage_ratio: float
    """Weighted maximum usage, smoothed by the broker, 1.0 = 100 %."""
    bytes_per_s: float
    """Throughput in + out, smoothed by the broker."""
    updated_ms: int
    """When the broker last updated it."""
    top_bundles: list[str]
    """Full names of its heaviest bundles in the broker's order, the lightest first."""
    top_bytes_per_s: Floats
    """(len(top_bundles),): throughput in + out of each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerReport:
    """One broker's load, in columns."""

    resources: Floats
    """(4, 2): usage and limit of CPU, inbound and outbound bandwidth and direct memory, the first columns of
    ``policies.usage.RESOURCES``; -1 and -1 where it was not measured."""
    messages_per_s: float
    """Message rate in + out of the broker."""
    bytes_per_s: float
    """Throughput in + out of the broker."""
    listed_count: int
    """Bundles the broker lists, its heartbeat bundles included."""
    bundles: list[str]
    """Full names of the bundles it lists, system bundles left out, ascending, each once."""
    traffic: Floats
    """(len(bundles), 4): messages/s in, out, bytes/s in, out."""
    has_traffic: Bools
    """(len(bundles),): whether the report has the bundle's traffic."""
    counts: Ints
    """(len(bundles), 2): topics and sessions (producers and consumers); 0 where the report does not have them."""
    system_bundles: Sequence[str] = ()
    """Full names of the bundles of Pulsar itself that it lists, ascending, each once."""
    busy_system_count: int = 0
    """Bundles of ``pulsar/system`` among them that have traffic."""
    unlisted_messages_per_s: float = 0.0
    """Message rate in + out of the broker beyond that of all bundles of which the report has the traffic."""
    published: Published | None = None
    """None from a broker with the modular load manager."""

    @property
    def cluster_bundles(self) -> list[str]:
        """Those of Pulsar's own that serve the whole cluster; heartbeats and SLA monitors belong to the broker and end with it."""
        return [bundle for bundle in self.system_bundles if namespace_of(bundle) == SYSTEM_NAMESPACE]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicTraffic:
    """Traffic of a broker's topics, bundle by bundle, in columns; t topics."""

    bundles: list[str]
    """Full names, each once."""
    counts: Ints
    """(len(bundles),): number of topics of each bundle; the columns below have the topics bundle after bundle."""
    topics: list[str]
    messages_per_s: Floats
    """Message rate in + out, (t,)."""
    bytes_per_s: Floats
    """Throughput in + out, (t,)."""
    sessions: Ints
    """Producers and consumers that are known of, (t,): at most what there are."""


class Coordinates(NamedTuple):
    """Where an event stands in the log; it is no part of the event, so that the same event appended twice is one event."""

    partition: int | None = None
    """Partition of the input topic; None outside a partitioned log, and for control events."""
    appended_ms: int | None = None
    """When it was appended; None where no log gives that time."""


NOWHERE = Coordinates()


class Event(msgspec.Struct, frozen=True, array_like=True):
    """What every event has; events are stored as they are (``state.layouts``)."""

    time_ms: int
    id: str

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class LoadReport(Event, frozen=True, array_like=True, eq=False):
    """A broker's load at a moment."""

    broker: str
    report: BrokerReport

    @property
    def rows_count(self) -> int:
        """Number of bundles in it."""
        return len(self.report.bundles)


class BrokerLoad(LoadReport, frozen=True, array_like=True, eq=False):
    """The load report of a broker with the extensible load manager; it has what the broker publishes about itself."""


class TopicStats(Event, frozen=True, array_like=True, eq=False):
    """Traffic of the topics of a broker, for splits; it counts for the round of its time only."""

    broker: str
    traffic: TopicTraffic

    @property
    def rows_count(self) -> int:
        """Number of topics in it."""
        return len(self.traffic.topics)


class KafkaLoadReport(Event, frozen=True, array_like=True, eq=False):
    """A Kafka broker's replicas of moving partitions, its throttle and its network at a moment."""

    broker: str
    logs: BrokerLogs

    @property
    def rows_count(self) -> int:
        """Number of replicas in the report."""
        return len(self.logs.replicas)


class Reassignment(Event, frozen=True, array_like=True, eq=False):
    """All partitions that move in a Kafka cluster at a moment."""

    report: CopiesReport

    @property
    def rows_count(self) -> int:
        """Number of partitions in the report."""
        return len(self.report.copies)


class Tick(Event, frozen=True, array_like=True):
    """A collector's sweep is complete."""

    asked: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    """Brokers that did not answer, each with the reason, ascending."""
    unowned: tuple[tuple[str, int], ...] = ()
    """Pulsar bundles that nobody owns although they are used, each with the time since when, ascending; at most a hundred."""
    unowned_count: int = 0
    """How many there are."""


ActionOutcome = Literal["succeeded", "failed", "skipped"]
"""How an action ended."""


class ActionResult(Event, frozen=True, array_like=True, order=True):
    """What became of an action."""

    action_id: str
    outcome: ActionOutcome
    is_held: bool = False
    """Whether it was skipped because the executor takes the cluster for paused."""


Verdict = Literal["approved", "rejected"]
"""A person's answer to a proposal."""


class Approval(Event, frozen=True, array_like=True):
    """A person's answer to a proposal. Its time moves no clock, and it is never late."""

    proposal_id: str
    verdict: Verdict
    who: str
    why: str


class ClusterFacts(Event, frozen=True, array_like=True):
    """What is known about a cluster besides its load; it counts from the round of its time on."""

    facts: Facts


class Control(Event, frozen=True, array_like=True):
    """All that an operator has set for one cluster; a newer event replaces all of it."""

    data: ControlData
    arrived_late: bool = False
    """Whether it came after the round it was meant for had closed; known once it is taken."""


RejectReason = Literal[
    "not-json",
    "not-cloudevent",
    "unknown-type",
    "missing-cluster",
    "invalid-cluster",
    "cluster-mismatch",
    "no-subject",
    "bad-time",
    "bad-data",
    "not-finite",
    "negative-usage",
    "negative-rate",
    "bad-bundle-name",
    "ahead-of-log",
    "too-large",
    "unknown-cluster",
    "wrong-system",
    "wrong-partition",
    "wrong-topic",
    "too-many-brokers",
    "too-many-bundles",
    "too-many-topics",
    "too-many-replicas",
    "too-many-results",
    "too-many-approvals",
    "bad-settings",
    "not-changeable",
    "internal-error",
]
"""Every reason a record can be refused for; each is a subject on the dead-letter topic."""


MAX_DETAIL_CHARACTERS = 2000
"""Longest detail of a rejection: enough to name the fault and the remedy, whatever the record contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a record cannot be used; the record itself goes to the dead letter."""

    reason: RejectReason
    detail: str
    """At most ``MAX_DETAIL_CHARACTERS``; a longer one is cut."""
    type: str | None = None
    """CloudEvents type of the record; None where it has none that is known."""

    def __post_init__(self) -> None:
        if len(self.detail) > MAX_DETAIL_CHARACTERS:
            object.__setattr__(self, "detail", f"{self.detail[: MAX_DETAIL_CHARACTERS - 1]}…")
