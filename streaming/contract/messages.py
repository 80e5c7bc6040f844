"""Every message trimtab reads, as typed structs; the JSON Schemas in ``docs/`` are generated from them.

The envelope is decoded strictly; unknown fields of ``data`` are ignored, because Pulsar adds some in every release.
Field names inside ``data`` of load reports are Pulsar's own.
"""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from streaming.contract.kafka import KafkaBrokerData, ReassignmentData

CLUSTER_PATTERN = r"^[A-Za-z0-9._-]{1,100}(?![\s\S])"
"""A valid cluster name; the look-ahead is an end that no trailing newline slips past."""

MAX_NUMBER = 1e18
"""Largest rate or usage taken: a million times what any broker reaches, and far from overflowing single precision."""

MAX_NAME_CHARACTERS = 2048
"""Longest name, id or subject taken: whatever is said of it has to fit in a record."""

SHOWN_CHARACTERS = 200
"""How much of what a stranger sent is shown in a message about it."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Cluster = Annotated[str, Meta(pattern=CLUSTER_PATTERN)]
Time = Annotated[datetime, Meta(tz=True)]


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


class BundleStats(Traffic, frozen=True, gc=False):
    """What trimtab reads of Pulsar's `NamespaceBundleStats`."""

    topics: float | None = 0.0
    """How many; a whole number."""
    producerCount: float | None = 0.0  # noqa: N815
    """How many; a whole number."""
    consumerCount: float | None = 0.0  # noqa: N815
    """How many; a whole number."""


class LocalBrokerData(msgspec.Struct, frozen=True):
    """What trimtab reads of Pulsar's `LocalBrokerData`; every field is optional."""

    cpu: Resource | None = None
    """Percent of one core, summed; limit 100 x cores."""
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
    """What the broker lists; absent: the keys of `lastStats`."""


class TopBundle(msgspec.Struct, frozen=True):
    """One of a broker's heaviest bundles."""

    bundleName: str  # noqa: N815
    """Full name."""
    stats: BundleStats
    """Its traffic, topics and clients."""


class BrokerLoadData(msgspec.Struct, frozen=True):
    """What a broker publishes where Pulsar's extensible load manager (PIP-192) runs, and what it owns.

    The fields up to `updatedAt` are those of Pulsar's `BrokerLoadData`, as the broker last published them.
    """

    weightedMaxEMA: float  # noqa: N815
    """Weighted maximum usage, smoothed by the broker; 1 is 100 %."""
    msgThroughputEMA: float  # noqa: N815
    """Bytes/s in and out, smoothed by the broker."""
    updatedAt: int  # noqa: N815
    """When the broker last worked its numbers out, milliseconds since 1970. It may be a quarter of an hour before the event's
    time: a broker whose load is steady publishes no sooner."""
    cpu: Resource | None = None
    """Percent of one core, summed; limit 100 x cores."""
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
    """Everything the broker owns; absent: the bundles above."""


class TickData(msgspec.Struct, frozen=True):
    """A collector's sweep is complete."""

    asked: list[str] = []
    """Brokers the collector asked."""
    failed: dict[str, str] = {}
    """Broker to reason."""


PAUSED_REASON: Final = "paused: the cluster is paused"
"""What the reason of a result begins with where the action was skipped because the cluster is paused."""


class ActionResultData(msgspec.Struct, frozen=True):
    """What became of an action; the subject is the action's id."""

    outcome: Literal["succeeded", "failed", "skipped"]
    """`failed` ends the cooldown of its target, so that it may be tried again."""
    reason: str | None = None
    """Why it failed or was skipped, for a person; also where a bundle landed instead of its destination. It begins with
    `paused: the cluster is paused` where that is why it was skipped."""
    broker: str | None = None
    """Owner of the bundle after an unload; null: not looked at, or nobody."""
    bundles: list[str] = []
    """Bundles that a split made, ascending."""
    was_done_before: bool = False
    """Whether its aim was found reached already, so that nothing was called."""
    took_s: float | None = None
    """From taking it up to having seen what became of it."""


class ApprovalData(msgspec.Struct, frozen=True):
    """A person's word on a proposal; the subject is the proposal's id."""

    verdict: Literal["approved", "rejected"]
    """`approved`: the action goes out if nothing is against it when the round closes; `rejected`: the proposal is dropped."""
    who: str | None = None
    """Who says so; shown in the round summary."""
    why: str | None = None
    """For which reason; shown there too."""


class PulsarBrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker is configured to do by itself; null: it could not be asked."""

    load_manager: str | None = None
    """Class name without its package."""
    shedding_enabled: bool | None = None
    """Whether Pulsar's own shedding is on there. Pulsar: ``loadBalancerSheddingEnabled``."""
    auto_split_enabled: bool | None = None
    """Whether Pulsar's own splitting is on there. Pulsar: ``loadBalancerAutoBundleSplitEnabled``."""
    split_algorithms: list[str] | None = None
    """Algorithms it allows a split to ask for. Pulsar: ``supportedNamespaceBundleSplitAlgorithms``."""


class IsolationPolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One of Pulsar's namespace isolation policies; all are regular expressions that must match whole names."""

    namespaces: list[str]
    """Namespaces it is about."""
    primary: list[str]
    """Hosts of the brokers they belong on."""
    secondary: list[str]
    """Hosts of the brokers they may use when too few primary ones are left."""


class PulsarClusterData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.pulsar.cluster.v1`: replaces what the one before it said."""

    pulsar_cluster: str
    """Pulsar's own name of the cluster."""
    brokers: dict[str, PulsarBrokerFacts]
    """By broker id."""
    isolation_policies: dict[str, IsolationPolicyFacts]
    """By name; empty where there are none."""
    anti_affinity_groups: dict[str, list[str]]
    """Namespaces of each group, ascending. Pulsar spreads them over brokers and failure domains."""
    failure_domains: dict[str, list[str]] = {}
    """Brokers of each failure domain, ascending; empty where there are none."""
    own_topics: dict[str, dict[str, Traffic]] = {}
    """Traffic of trimtab's own topics, by bundle and topic; empty where they are not on this cluster."""


class SpellData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Since when, until when and why a broker or namespace is under maintenance, or a broker is drained."""

    since: Time
    """When it was asked for."""
    until: Time | None = None
    """When it ends by itself: it holds the rounds that begin before, and executors until then. Null: a person ends it."""
    who: str | None = None
    """Who asked for it."""
    why: str | None = None
    """For which reason."""

    def holds_at(self, now: datetime) -> bool:
        """Whether it holds then."""
        return self.until is None or now < self.until


class ControlData(msgspec.Struct, frozen=True):
    """The whole overlay of one cluster; a newer event replaces it whole."""

    paused: bool = False
    """Hold every action; the policies go on counting."""
    mode: Literal["dry-run", "act"] | None = None
    """Overrides `controller.mode`; null: as configured."""
    settings: dict[str, object] = {}
    """Overlay over any key of the cluster's settings but the rounds, e.g. `{"pulsar": {"avg_shedder": {…}}}`."""
    who: str | None = None
    """Who asked for it; shown in the round summaries."""
    why: str | None = None
    """For which reason; shown there too."""
    resumed_at: Time | None = None
    """When a person said that what made actions fail is mended, at most the event's own time: a cluster held `failing`
    since before acts again. Later events keep it: said again it changes nothing."""
    until: Time | None = None
    """When the pause ends by itself: it holds the rounds that begin before, and executors until then. Null: a person ends it."""
    forget: bool = False
    """Begin anew with the cluster's memory: with the first round the event holds for, or at once where the cluster has been
    silent for longer than `max_report_age_s`. The rest of the event holds as ever; later events do not repeat it."""
    maintenance_brokers: dict[Text, SpellData] = {}
    """By broker id, brokers under maintenance: neither source nor destination, and not missed. Of a Pulsar cluster; so for the next two."""
    maintenance_namespaces: dict[Text, SpellData] = {}
    """By `tenant/namespace`, namespaces under maintenance: their bundles stay where they are."""
    drained_brokers: dict[Text, SpellData] = {}
    """By broker id, brokers that are emptied, and as under maintenance when they are empty."""
    approval: Literal["none", "required"] | None = None
    """Overrides `controller.approval`; null: as configured. Left out by those who do not know of it."""

    def is_paused_at(self, now: datetime) -> bool:
        """Whether nothing may be carried out then."""
        return self.paused and (self.until is None or now < self.until)


class Envelope(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """CloudEvents 1.0 attributes."""

    specversion: Literal["1.0"]
    id: Text
    """Unique for its source; of two reports of one broker and time the greater one counts."""
    source: Text
    """Who says it."""
    subject: Text
    """What it is about."""
    time: Time
    """When it was so: event time, the only clock there is."""
    cluster: Cluster
    """The record's key, too."""
    datacontenttype: str | None = "application/json"
    recordedtime: Time | None = None
    """When a log took the event; only in recordings, where no log says so."""


class LoadReportMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.load-report.v1"):
    """A broker's load; the subject is the broker id."""

    data: LocalBrokerData


class BrokerLoadMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.broker-load.v1"):
    """A broker's load where the extensible load manager runs, once a sweep; the subject is the broker id."""

    data: BrokerLoadData


class TopicStatsMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.topic-stats.v1"):
    """Traffic by bundle and topic; the subject is the broker id."""

    data: dict[str, dict[str, Traffic]]


class KafkaLoadReportMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.kafka.load-report.v1"):
    """A Kafka broker's replicas that move, its throttle and its network; the subject is the broker id."""

    data: KafkaBrokerData


class ReassignmentMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.kafka.reassignment.v1"):
    """All that moves in a Kafka cluster, sent every sweep, also when nothing does; the subject is `reassignments`."""

    data: ReassignmentData


class TickMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.tick.v1"):
    """A collector's sweep is complete: it moves the cluster's clock."""

    data: TickData = TickData()


class ActionResultMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.action-result.v1"):
    """What became of an action."""

    data: ActionResultData


class ApprovalMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.approval.v1"):
    """A person approves or rejects a proposal. It moves no clock and is never late, whatever its `time` says."""

    data: ApprovalData


class PulsarClusterMessage(Envelope, frozen=True, kw_only=True, tag="trimtab.pulsar.cluster.v1"):
    """Who else balances a Pulsar cluster, and what must stay where; the subject is `cluster`."""

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
