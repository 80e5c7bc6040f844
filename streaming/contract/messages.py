"""Every message that trimtab reads, as typed structs; the JSON Schemas in ``docs/`` are generated from them.

The envelope is decoded strictly; unknown fields of ``data`` are ignored, because Pulsar adds some in every release.
Field names inside ``data`` of load reports are Pulsar's own.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from state.overlay import ControlData, Text, Time
from streaming.contract.kafka import KafkaBrokerData, ReassignmentData

CLUSTER_PATTERN = r"^[A-Za-z0-9._-]{1,100}(?![\s\S])"
"""A valid cluster name; it ends in the look-ahead because `$` would allow a trailing newline."""

MAX_NUMBER = 1e18
"""Largest rate or usage that is accepted: a million times what any broker reaches, and far from overflowing single precision."""

MAX_UNOWNED_COUNT = 100
"""Bundles without an owner that a tick names."""

SHOWN_CHARACTERS = 200
"""How many characters of foreign input a message about it shows."""

Cluster = Annotated[str, Meta(pattern=CLUSTER_PATTERN)]


class Resource(msgspec.Struct, frozen=True, gc=False):
    """Pulsar's `ResourceUsage`; -1 and -1, or one of them absent, where the broker could not measure."""

    usage: float | None = None
    """In the unit of the resource, 0 or more."""
    limit: float | None = None
    """What 100 % is, in the same unit; 0 or less: not measured."""


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Rates of a bundle or topic: messages/s and bytes/s; an absent one counts as 0, as in Pulsar."""

    msgRateIn: float | None = 0.0  # noqa: N815
    """Messages/s."""
    msgRateOut: float | None = 0.0  # noqa: N815
    """Messages/s."""
    msgThroughputIn: float | None = 0.0  # noqa: N815
    """Bytes/s."""
    msgThroughputOut: float | None = 0.0  # noqa: N815
    """Bytes/s."""


class TopicLoad(Traffic, frozen=True, gc=False):
    """A topic's traffic and clients."""

    producers: float | None = None
    """Number of producers; a whole number; absent: not known."""
    consumers: float | None = None
    """Number of consumers of all its subscriptions; a whole number; absent: not known."""


class BundleStats(Traffic, frozen=True, gc=False):
    """What trimtab reads of Pulsar's `NamespaceBundleStats`."""

    topics: float | None = 0.0
    """Number of topics; a whole number."""
    producerCount: float | None = 0.0  # noqa: N815
    """Number of producers; a whole number."""
    consumerCount: float | None = 0.0  # noqa: N815
    """Number of consumers; a whole number."""


class LocalBrokerData(msgspec.Struct, frozen=True):
    """What trimtab reads of Pulsar's `LocalBrokerData`; every field is optional, but one of them has to say something."""

    cpu: Resource | None = None
    """Percent of one core, summed over all cores; the limit is 100 x cores."""
    bandwidthIn: Resource | None = None  # noqa: N815
    """Kbit/s."""
    bandwidthOut: Resource | None = None  # noqa: N815
    """Kbit/s."""
    directMemory: Resource | None = None  # noqa: N815
    """MiB."""
    memory: Resource | None = None
    """MiB of heap; checked, never part of the score."""
    msgRateIn: float | None = None  # noqa: N815
    """Messages/s; absent: the sum over `lastStats`."""
    msgRateOut: float | None = None  # noqa: N815
    """Messages/s; absent: the sum over `lastStats`."""
    msgThroughputIn: float | None = None  # noqa: N815
    """Bytes/s; absent: the sum over `lastStats`."""
    msgThroughputOut: float | None = None  # noqa: N815
    """Bytes/s; absent: the sum over `lastStats`."""
    lastStats: dict[str, BundleStats] | None = None  # noqa: N815
    """Traffic, topics and clients by bundle."""
    bundles: list[str] | None = None
    """Bundles that the broker lists; absent: the keys of `lastStats`."""
    systemBundles: list[str] | None = None  # noqa: N815
    """Bundles of `pulsar/system` that the broker owns; not of Pulsar, which lists only those with loaded topics. `trimtab collect pulsar`
    adds them; absent: those that are listed."""


class TopBundle(msgspec.Struct, frozen=True):
    """One of a broker's heaviest bundles."""

    bundleName: str  # noqa: N815
    """Full name."""
    stats: BundleStats
    """Its traffic, topics and clients."""


class BrokerLoadData(msgspec.Struct, frozen=True):
    """What a broker publishes where Pulsar's extensible load manager (PIP-192) runs, and the bundles that it owns.

    The fields up to `updatedAt` are those of Pulsar's `BrokerLoadData`, as the broker last published them.
    """

    weightedMaxEMA: float  # noqa: N815
    """Weighted maximum usage, smoothed by the broker; 1 is 100 %."""
    msgThroughputEMA: float  # noqa: N815
    """Bytes/s in and out, smoothed by the broker."""
    updatedAt: int  # noqa: N815
    """When the broker last computed its numbers, in milliseconds since 1970. It may be a quarter of an hour before the event's
    time, because a broker with a steady load publishes no sooner."""
    cpu: Resource | None = None
    """Percent of one core, summed over all cores; the limit is 100 x cores."""
    bandwidthIn: Resource | None = None  # noqa: N815
    """Kbit/s."""
    bandwidthOut: Resource | None = None  # noqa: N815
    """Kbit/s."""
    directMemory: Resource | None = None  # noqa: N815
    """MiB."""
    memory: Resource | None = None
    """MiB of heap; checked, never part of the score."""
    msgRateIn: float | None = None  # noqa: N815
    """Messages/s; absent: the sum over the bundles below."""
    msgRateOut: float | None = None  # noqa: N815
    """Messages/s; absent: the sum over the bundles below."""
    msgThroughputIn: float | None = None  # noqa: N815
    """Bytes/s; absent: the sum over the bundles below."""
    msgThroughputOut: float | None = None  # noqa: N815
    """Bytes/s; absent: the sum over the bundles below."""
    topBundlesLoadData: list[TopBundle] = []  # noqa: N815
    """The broker's heaviest bundles as it last published them, the lightest first. Pulsar: `TopBundlesLoadData`."""
    otherBundles: dict[str, BundleStats] = {}  # noqa: N815
    """Traffic and topics of other bundles, summed up from the statistics of their topics; empty where those are not collected."""
    bundles: list[str] | None = None
    """All bundles that the broker owns; absent: the bundles above."""


class TickData(msgspec.Struct, frozen=True):
    """A collector's sweep is complete."""

    asked: list[str] = []
    """Brokers that the collector tried to read."""
    failed: dict[str, str] = {}
    """Brokers that could not be read, each with the reason."""
    unowned: dict[Text, Time] | msgspec.UnsetType = msgspec.UNSET
    """Bundles of a Pulsar cluster that no broker owns although they had clients or traffic when one last listed them, each with the
    time since when; the first hundred by name. Left out where there is none."""
    unowned_count: int | msgspec.UnsetType = msgspec.UNSET
    """How many there are."""


PAUSED_REASON: Final = "paused: the cluster is paused"
"""The beginning of a result's reason where the action was skipped because the cluster is paused."""


class ActionResultData(msgspec.Struct, frozen=True):
    """What became of an action; the subject is the action's id."""

    outcome: Literal["succeeded", "failed", "skipped"]
    """`failed` ends the cooldown of the action's target, so that the action may be tried again."""
    reason: str | None = None
    """Why it failed or was skipped, as text for people; also where a bundle landed instead of its destination. The text begins
    with `paused: the cluster is paused` if the action was skipped because of a pause."""
    broker: str | None = None
    """Owner of the bundle after an unload; null: not looked up, or no owner."""
    bundles: list[str] = []
    """Bundles that a split made, ascending."""
    done_before: bool = False
    """Whether the aim of the action was reached already, so that no call was made."""
    duration_s: float | None = None
    """Seconds from taking up the action until its result was seen."""


class ApprovalData(msgspec.Struct, frozen=True):
    """A person's answer to a proposal; the subject is the proposal's id."""

    verdict: Literal["approved", "rejected"]
    """`approved`: the action is published if nothing prevents it when the round closes; `rejected`: the proposal is dropped."""
    who: str | None = None
    """Who answered; shown in the round summary."""
    why: str | None = None
    """The reason; shown there too."""


class PulsarBrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker is configured to do by itself; null: it could not be read."""

    load_manager: str | None = None
    """Class name without its package."""
    shedding_enabled: bool | None = None
    """Whether Pulsar's own shedding is on there. Pulsar: ``loadBalancerSheddingEnabled``."""
    auto_split_enabled: bool | None = None
    """Whether Pulsar's own splitting is on there. Pulsar: ``loadBalancerAutoBundleSplitEnabled``."""
    split_algorithms: list[str] | None = None
    """Algorithms that the broker allows for a split. Pulsar: ``supportedNamespaceBundleSplitAlgorithms``."""


class IsolationPolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of Pulsar's namespace isolation policies; all are regular expressions that must match whole names."""

    namespaces: list[str]
    """Namespaces that the policy applies to."""
    primary: list[str]
    """Hosts of the brokers that these namespaces belong on."""
    secondary: list[str]
    """Hosts of the brokers they may use when too few primary ones are left."""


class PulsarClusterData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.pulsar.cluster.v1`; it replaces the data of the event before it."""

    pulsar_cluster: str
    """Pulsar's own name of the cluster."""
    brokers: dict[str, PulsarBrokerFacts]
    """Configuration of each broker, by broker id."""
    isolation_policies: dict[str, IsolationPolicyFacts]
    """Isolation policies by name; empty where there are none."""
    anti_affinity_groups: dict[str, list[str]]
    """Namespaces of each group, ascending. Pulsar spreads them over brokers and failure domains."""
    failure_domains: dict[str, list[str]] = {}
    """Brokers of each failure domain, ascending; empty where there are none."""
    trimtab_topics: dict[str, dict[str, Traffic]] = {}
    """Traffic of trimtab's own topics, by bundle and topic; empty where they are not on this cluster."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """CloudEvents 1.0 attributes."""

    specversion: Literal["1.0"]
    id: Text
    """Unique for its source. If a broker has two reports with the same time, the one with the greater id counts."""
    source: Text
    """Sender of the event."""
    subject: Text
    """What the event is about."""
    time: Time
    """Event time: when `data` was true. Decisions use no other clock."""
    cluster: Cluster
    """Name of the cluster; it is the record's key, too."""
    datacontenttype: str | None = "application/json"
    recordedtime: Time | None = None
    """When the event was appended to a log; only in recordings, which have no append times of their own."""


class LoadReportMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.load-report.v1"):
    """A broker's load; the subject is the broker id."""

    data: LocalBrokerData


class BrokerLoadMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.broker-load.v1"):
    """A broker's load where the extensible load manager runs, once a sweep; the subject is the broker id."""

    data: BrokerLoadData


class TopicStatsMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.topic-stats.v1"):
    """Traffic and clients by bundle and topic; the subject is the broker id."""

    data: dict[str, dict[str, TopicLoad]]


class KafkaLoadReportMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.kafka.load-report.v1"):
    """A Kafka broker's replicas that move, its throttle and its network; the subject is the broker id."""

    data: KafkaBrokerData


class ReassignmentMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.kafka.reassignment.v1"):
    """All that moves in a Kafka cluster, sent in every sweep, even when nothing moves; the subject is `reassignments`."""

    data: ReassignmentData


class TickMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.tick.v1"):
    """A collector's sweep is complete: this event moves the cluster's clock."""

    data: TickData = TickData()


class ActionResultMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.action-result.v1"):
    """What became of an action."""

    data: ActionResultData


class ApprovalMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.approval.v1"):
    """A person approves or rejects a proposal, or all that are open of a round: the subject is the proposal's id, or `round/` and the number.

    It does not move the cluster's clock and is never late, whatever its `time` is.
    """

    data: ApprovalData


class PulsarClusterMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.cluster.v1"):
    """What else balances a Pulsar cluster, and which rules limit where bundles may be; the subject is `cluster`."""

    data: PulsarClusterData


class ControlMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.control.v1"):
    """An operator's overlay of one cluster."""

    data: ControlData


PulsarMessage = LoadReportMessage | BrokerLoadMessage | TopicStatsMessage | PulsarClusterMessage
KafkaMessage = KafkaLoadReportMessage | ReassignmentMessage
CommonMessage = TickMessage | ActionResultMessage | ApprovalMessage | ControlMessage
Message = PulsarMessage | KafkaMessage | CommonMessage

INPUT_TYPES: tuple[type[Envelope], ...] = (
    LoadReportMessage,
    BrokerLoadMessage,
    TopicStatsMessage,
    KafkaLoadReportMessage,
    ReassignmentMessage,
    TickMessage,
    PulsarClusterMessage,
    ActionResultMessage,
    ApprovalMessage,
)
MESSAGE_TYPES: tuple[type[Envelope], ...] = (*INPUT_TYPES, ControlMessage)


def type_of(message: type[msgspec.Struct]) -> str:
    """CloudEvents type of a message class."""
    tag = message.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
