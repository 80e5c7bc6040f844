"""The settings: one tree, and those of its sections that decide nothing about a cluster.

They say where messages come from and go, and how the process runs. Units are last in a name. A value that is unset is
``None``. Bounds stand in the annotations; a section whose settings do not fit together raises ValueError, to which the loader
adds the section's name and where they were written.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MinLen, Predicate
from pydantic import ConfigDict, Field

from policies.bounds import Count, NotNegative, Positive, check_bounds
from policies.throttle.checked_copies import TOPIC_PATTERN
from state.guard_settings import Approval
from state.settings import KafkaSettings, Mode, PulsarSettings
from streaming.settings.targets import (
    HOST_PORT,
    PORT_MAX,
    PORTS,
    PulsarTarget,
    SecuritySettings,
    TargetSection,
)

NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Names that are used as record keys, metric labels and parts of URIs: clusters and the controller itself."""
_Name = Annotated[str, Predicate(NAME_PATTERN.fullmatch), "1 to 100 of A-Z a-z 0-9 . _ -"]
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,100}")
_Patterns = Annotated[
    tuple[str, ...],
    Predicate(lambda patterns: all(map(_PATTERN.fullmatch, patterns))),
    "names of 1 to 100 of A-Z a-z 0-9 . _ -, or patterns with * and ?",
]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""How pydantic reads a tree of settings; the sections below inherit it."""

_KAFKA_URL = re.compile(rf"kafka://({HOST_PORT}(?:,{HOST_PORT})*)/?")
_URL = re.compile(rf"(?:kafka|pulsar(?:\+ssl)?)://{HOST_PORT}(?:,{HOST_PORT})*/?")
_Url = Annotated[
    str,
    Predicate(_URL.fullmatch),
    f"kafka://host:port[,host:port] or pulsar://host:port[,host:port], {PORTS}",
]
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|\[::1\]")
_NAMESPACE = re.compile(r"[^/\s]+/[^/\s]+")
_MEMORY = re.compile(r"[1-9][0-9]*[kmgtKMGT]")

_Session = Annotated[float, Ge(1), Le(600)]
"""A garbage collection or a slow broker can take a second; the topic of beats keeps an hour."""
_Port = Annotated[int, Ge(0), Le(PORT_MAX)]
"""0 is any free one."""
_Topic = Annotated[str, Predicate(re.compile(TOPIC_PATTERN).fullmatch), "a name Kafka allows for a topic"]


def kafka_bootstrap(url: str) -> str:
    """``host:port[,host:port]`` of a Kafka URL; raises ValueError for anything else."""
    match = _KAFKA_URL.fullmatch(url)
    if match is None:
        raise ValueError(f"url is {url!r}; expected kafka://host:port[,host:port], {PORTS}")
    return match[1]


def is_pulsar_url(url: str) -> bool:
    """Whether an address is that of a Pulsar; every other one is a Kafka's."""
    return url.startswith("pulsar")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Who this controller is, and whether executors obey it."""

    name: _Name = "trimtab"
    """Name of the controller: its transactional id (on Pulsar: its producers' name), its marker's key and the ``source``
    of its events. A second controller of the same name takes over from the first, so each needs its own.
    Kafka: ``transactional.id``."""
    mode: Mode = "dry-run"
    """``dry-run`` writes decisions to a topic of their own, which no executor reads; ``act`` writes them to the
    topic that executors obey. A moved bundle should surprise nobody, so ``act`` has to be set explicitly."""
    approval: Approval = "none"
    """``required`` turns unloads and splits into proposals in mode ``act``: each waits for ``trimtab approve``, and is dropped after
    ``proposal_ttl_s``. Kafka throttles are published as always, because one that waits could leave a throttle behind. It is meant
    for the first weeks."""
    proposal_ttl_s: Positive = 3600.0
    """How long a proposal waits for approval. An hour, because later the load has changed."""
    action_ttl_s: Positive = 180.0
    """How long after its round's end an action may still be carried out; later the load has changed. The default is three rounds."""
    warm_start_s: NotNegative = 900.0
    """How far back the first start reads the input, so that averages and history do not begin empty. 0 = from now."""
    max_record_bytes: Count = 33554432
    """Largest input record that is read, in bytes; a larger one goes to the dead letter. 32 MiB, because the report of
    a broker with 100,000 bundles is about 28 MB. Kafka: ``max.message.bytes``."""
    start_wait_s: NotNegative = 600.0
    """How long a start waits for brokers, or a checkpoint's store, that do not answer, before it ends with exit code 6. Meanwhile
    it is not ready and says so. Ten minutes are longer than the restart of a machine with its brokers; a wrong address looks the
    same as such a restart. 0 = do not wait. Executors and collectors wait as long."""
    when_refused: Literal["end", "stay"] = "end"
    """What a controller does when it is superseded or refused: ``end`` with its exit code (4 or 5), or ``stay``, not ready and
    saying why, until it is told to stop. ``stay`` is for supervisors that restart every process that ends, as Kubernetes does:
    otherwise two controllers of one name would take over from each other for ever."""
    standby: bool = False
    """Whether this controller stands by while another one of its name leads, and takes over when that one is silent or says
    that it ends. When it is superseded, it stands by again instead of ending. Run two or more controllers, all with this on."""
    session_s: _Session = 10.0
    """If no beat of the leader comes for so long, the first standby takes over; each other one waits as long again. A leader sends five beats in this time. A shorter time
    notices a failure sooner; a longer one tolerates brokers that are slow to accept a beat."""
    accepted_clusters: _Patterns = ("*",)
    """Names of the clusters that are accepted, or patterns with ``*`` and ``?`` as in ``east-*``; records of other clusters are
    refused as ``unknown-cluster`` and nothing is remembered of them. The default is all, so that a first start sees something;
    name your clusters if senders other than your collectors can write to the input topic."""
    log_format: Literal["console", "json"] = "console"
    """``console`` for people; ``json`` for collectors of logs: one object a line, with ``cluster``, ``round`` and
    ``action_id`` where they apply."""

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarTopics:
    """Where topics on Pulsar are and how their brokers are reached, besides ``url``; unused for Kafka."""

    admin_url: str = "http://127.0.0.1:8080"
    """Web service of the brokers, ``http://host:port[,host:port]`` or ``https://…``: topics and their policies are made
    and checked there, and the ledgers of logs are read there. Pulsar: ``webServiceUrl`` of ``client.conf``."""
    namespace: Annotated[str, Predicate(_NAMESPACE.fullmatch), "tenant/namespace"] = "public/default"
    """Tenant and namespace of the topics; its retention must outlast the longest outage."""
    token_file: str | None = None
    """File with the token; unset = no token. Pulsar: ``authParams`` ``file://…``."""
    ca_file: str | None = None
    """Certificates (PEM) of the authorities that sign the brokers' certificates. Pulsar: ``tlsTrustCertsFilePath``."""

    def __post_init__(self) -> None:
        PulsarTarget(admin_url=self.admin_url, token_file=self.token_file)
        check_bounds(self)

    def full_name(self, topic: str) -> str:
        """``persistent://tenant/namespace/topic``."""
        return f"persistent://{self.namespace}/{topic}"


def _check_same_place(url: str, place: PulsarTopics) -> None:
    """Raise ValueError where the brokers are elsewhere and the admin API is the default, that of this machine's Pulsar."""
    default = PulsarTopics().admin_url
    if not is_pulsar_url(url) or place.admin_url != default:
        return
    hosts = [host.rpartition(":")[0] for host in url.partition("://")[2].split(",")]
    elsewhere = next((host for host in hosts if not _LOOPBACK.fullmatch(host)), None)
    if elsewhere is not None:
        secure, port = ("s", 8443) if url.startswith("pulsar+ssl") else ("", 8080)
        raise ValueError(
            f"pulsar.admin_url is the default, {default}, and url is at {elsewhere}: set it to the web service of those brokers, such as "
            f"http{secure}://{elsewhere}:{port}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarInput(PulsarTopics):
    """What reading the input from Pulsar needs besides ``input.url``; unused for Kafka."""

    subscription: Annotated[str, MinLen(1), "a name"] = "trimtab"
    """Durable subscription that keeps unread records; one with another name does not keep what the old one kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """Where load reports and control events are read."""

    url: _Url = "kafka://127.0.0.1:9092"
    """Address of the brokers, ``kafka://host:port[,host:port]`` or ``pulsar://…`` (``pulsar+ssl://…``). The default is
    a Kafka on this machine. Kafka: ``bootstrap.servers``."""
    pulsar: PulsarInput = field(default_factory=PulsarInput)
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        check_bounds(self)
        _check_same_place(self.url, self.pulsar)

    @property
    def is_pulsar(self) -> bool:
        """Whether the input is on Pulsar."""
        return is_pulsar_url(self.url)

    @property
    def bootstrap(self) -> str:
        """The address as Kafka's clients take it, ``host:port[,host:port]``. Raises ValueError for Pulsar."""
        return kafka_bootstrap(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Where actions, summaries, rejected records and the publisher's markers are written."""

    url: _Url | None = None
    """Address of the brokers, ``kafka://host:port[,host:port]`` or ``pulsar://…`` (``pulsar+ssl://…``), of either system
    whatever the input's is; unset = that of ``[input]``, which is the usual case. Kafka: ``bootstrap.servers``."""
    pulsar: PulsarTopics = field(default_factory=PulsarTopics)
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.url is not None:
            _check_same_place(self.url, self.pulsar)
            return
        for name, default in (("security", SecuritySettings()), ("pulsar", PulsarTopics())):
            if getattr(self, name) != default:
                raise ValueError(
                    f"url is unset, so the connection of [input] is used: set url too, or remove {name}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The names of the nine topics; ``trimtab topics create`` makes them."""

    input: _Topic = "trimtab.input"
    """Load reports, statistics, ticks and results of actions."""
    control: _Topic = "trimtab.control"
    """Pause, mode and settings of each cluster; one partition, compacted."""
    actions: _Topic = "trimtab.actions"
    """Decisions that executors obey."""
    actions_dry_run: _Topic = "trimtab.actions.dry-run"
    """Decisions of the dry-run; a topic of its own, so that no executor obeys one by mistake."""
    audit: _Topic = "trimtab.audit"
    """One summary for each round."""
    dead_letter: _Topic = "trimtab.dead-letter"
    """Records that were rejected, each with its reason."""
    executor_kafka: _Topic = "trimtab.executor.kafka"
    """Throttles that ``trimtab execute kafka`` set on each cluster, so that it removes exactly those; one partition, compacted."""
    commits: _Topic = "trimtab.commits"
    """The publisher's markers; one partition, compacted. They make publishing exactly-once. On Pulsar each controller has
    one of its own, named after it: ``trimtab.commits-<name>``."""
    beats: _Topic = "trimtab.beats"
    """Which controllers run: each one writes a beat here every few seconds; one partition, kept for an hour."""

    def __post_init__(self) -> None:
        check_bounds(self)
        by_topic: dict[str, str] = {}
        for name in self.__slots__:
            topic = getattr(self, name)
            if topic in by_topic:
                raise ValueError(
                    f"{by_topic[topic]} and {name} are both {topic!r}; every topic needs its own name"
                )
            by_topic[topic] = name

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all nine topics."""
        return tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How the streaming query runs. What ``spark-submit`` sets wins over what is unset here."""

    master: str | None = None
    """Where Spark runs, such as ``local[*]`` or ``spark://host:7077``; unset = what ``spark-submit`` sets, else
    ``local[*]``. Spark: ``spark.master``."""
    checkpoint: Annotated[str, MinLen(1), "a directory or a URL"] = "checkpoint"
    """Directory or URL of the query's checkpoint: offsets and every cluster's memory. The default is a local directory; a
    Spark cluster needs a URL that every node can reach. Spark: ``checkpointLocation``."""
    trigger_interval_s: Annotated[
        float,
        Gt(0),
        Le(30),
        "more than 0 and at most 30, because Spark kills Python workers that idle for 60 s",
    ] = 1.0
    """Time between looks at the input, above 0 and at most 30: Spark kills Python workers that idle for 60 s, and each
    batch would then begin with starting them. One second is well below any round. Spark: ``processingTime``."""
    shuffle_partitions: Count = 2
    """Partitions of the clusters' memory; a cluster is one key, so more partitions than cores or clusters gain nothing,
    and each costs time in every batch. Fixed once a checkpoint exists. Spark: ``spark.sql.shuffle.partitions``."""
    max_records_per_trigger_count: Count = 2000
    """Largest number of records of one micro-batch, so that catching up needs bounded memory; 1,000 brokers report 1,000 times
    a round. Spark: ``maxOffsetsPerTrigger``."""
    jars_dir: str | None = None
    """Directory with the Kafka connector's jars, for machines without a network; unset = the cache, filled once."""
    driver_memory: Annotated[str, Predicate(_MEMORY.fullmatch), 'a size such as "1g" or "512m"'] = "1g"
    """Heap of the Spark driver, which in local mode does all the work. Spark: ``spark.driver.memory``."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Any other Spark configuration, each key in quotes with its value as text. Spark: the key itself."""

    def __post_init__(self) -> None:
        check_bounds(self)


Program = Literal["controller", "collector", "executor"]
"""The programs that run permanently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where ``/metrics``, ``/healthz`` and ``/readyz`` are served. Each program has its own port, so that all run on one host."""

    host: Annotated[str, MinLen(1), "an address"] = "127.0.0.1"
    """Address to listen on; this machine only, because the page asks for no password. ``0.0.0.0`` = every address."""
    port: _Port = 9464
    """Port of ``trimtab run``; the one OpenTelemetry's Prometheus exporters use. 0 = any free port, for all programs."""
    collector_port: _Port | None = None
    """Port of ``trimtab collect``; unset = 9465, next to the controller's. Give further collectors on a host ``--metrics-port``."""
    executor_port: _Port | None = None
    """Port of ``trimtab execute``; unset = 9466, next to the collector's. Give further executors on a host ``--metrics-port``."""

    def __post_init__(self) -> None:
        check_bounds(self)

    def port_of(self, program: Program) -> int:
        """The port that this program listens on; 0 is any free one."""
        if program == "controller":
            return self.port
        port, usual = (self.collector_port, 9465) if program == "collector" else (self.executor_port, 9466)
        return port if port is not None else usual if self.port else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """What differs for one cluster: any keys of ``pulsar.*`` and ``kafka.*``; the other keys are as for all clusters."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)


Tree = dict[str, Any]
"""Settings as read, nested by section; it stays inside this package."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """``over`` laid over ``base``, table by table and key by key; neither is changed."""
    tree = dict(base)
    for key, value in over.items():
        below = tree.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        tree[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return tree


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path of every single value of a tree, with the value; an empty table holds none."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from leaves(below, (*path, name))
    else:
        yield path, value


_CLUSTERS = """By cluster name the settings in force there, ``[pulsar]`` and ``[kafka]`` included; clusters without a section
are absent."""
_TARGETS = """By cluster name how collectors and executors reach the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of trimtab. ``Settings()`` has the defaults alone."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    controller: ControllerSettings = field(default_factory=ControllerSettings)
    input: InputSettings = field(default_factory=InputSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    topics: TopicNames = field(default_factory=TopicNames)
    spark: SparkSettings = field(default_factory=SparkSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    clusters: Annotated[Mapping[_Name, ClusterSection], Field(description=_CLUSTERS)] = field(
        default_factory=dict
    )
    targets: Annotated[Mapping[_Name, TargetSection], Field(description=_TARGETS)] = field(
        default_factory=dict
    )

    @property
    def output_url(self) -> str:
        """Where decisions go: the input's address where the output has none of its own."""
        return self.output.url or self.input.url

    @property
    def output_is_pulsar(self) -> bool:
        """Whether decisions go to Pulsar."""
        return is_pulsar_url(self.output_url)

    @property
    def output_bootstrap(self) -> str:
        """The output's address as Kafka's clients take it, ``host:port[,host:port]``. Raises ValueError for Pulsar."""
        return kafka_bootstrap(self.output_url)
