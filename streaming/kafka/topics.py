"""The nine topics on Kafka: how they must be set up, making them, and examining them.

Existing topics are never altered: their settings may be deliberate, and some mistakes (a partition count)
cannot be undone. Each difference is named with the value found, the value expected and the command that corrects
it. Retention and replication are chosen for new topics only; operators may change them freely.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from policies.wording import counted
from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.kafka.client import as_no_answer, explain_unanswered, open_admin
from streaming.kafka.link import (
    KafkaLink,
    TopicPermissions,
    acl_command,
    find_denied,
)
from streaming.settings import Settings, TopicNames
from streaming.transport.errors import StartError, Unreachable
from streaming.transport.topics import (
    ACTIONS_RETENTION_MS,
    AUDIT_RETENTION_MS,
    BEATS_RETENTION_MS,
    INPUT_RETENTION_MS,
    BrokersSeen,
    Difference,
    Outcome,
    TopicOutcome,
    TopicsSeen,
)

REPLICAS_MAX = 3
"""Replicas of a new topic if there are that many brokers; two of them must then be in sync."""

_AT_LEAST = ("retention.ms", "min.compaction.lag.ms")
"""Settings that are chosen for new topics; a smaller value takes records away early."""
_WITHOUT_LIMIT = -1

_KNOWN_ANSWERS = (0, UnknownTopicOrPartitionError.errno, TopicAuthorizationFailedError.errno)
"""Error codes that describe a topic; others, such as for a leader that is not there yet, do not."""
RECORD_HEADROOM_BYTES = 64 * 1024
"""Key, headers and batch header on top of the largest value."""
MARKER_SEGMENT_BYTES = 1024 * 1024
"""Compaction leaves the newest segment alone; a start reads it whole (some 5,000 markers)."""
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic: `fixed` settings are needed, `chosen` ones only proposed; None for `partitions_needed` leaves them unchecked.

    A controller runs without a topic that is `optional`.
    """

    name: str
    partitions: int
    partitions_needed: int | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    min_message_bytes: int | None = None
    optional: bool = False

    @property
    def configs(self) -> dict[str, str]:
        size = {} if self.min_message_bytes is None else {"max.message.bytes": str(self.min_message_bytes)}
        return {**self.chosen, **size, **self.fixed}


def specs_of(names: TopicNames, *, input_partitions: int | None, max_record_bytes: int) -> list[TopicSpec]:
    """All topics as they are made; partitions of the input are not compared where ``input_partitions`` is None."""
    return [
        TopicSpec(
            name=names.input,
            partitions=input_partitions or 1,
            partitions_needed=input_partitions,
            fixed=_APPEND_TIME,
            chosen={"retention.ms": str(INPUT_RETENTION_MS)},
            min_message_bytes=max_record_bytes + RECORD_HEADROOM_BYTES,
        ),
        TopicSpec(
            name=names.control,
            partitions=1,
            partitions_needed=1,
            fixed=_APPEND_TIME | _COMPACTED,
            # as long as input can be read again, so can the control events that were in force
            chosen={"min.compaction.lag.ms": str(INPUT_RETENTION_MS)},
        ),
        _output(names.actions, ACTIONS_RETENTION_MS, min_message_bytes=LARGEST_RECORD_BYTES),
        _output(names.actions_dry_run, ACTIONS_RETENTION_MS, min_message_bytes=LARGEST_RECORD_BYTES),
        _output(names.audit, AUDIT_RETENTION_MS),
        _output(names.dead_letter, ACTIONS_RETENTION_MS),
        TopicSpec(
            name=names.executor_kafka,
            partitions=1,
            partitions_needed=1,
            fixed=_COMPACTED,
            min_message_bytes=LARGEST_RECORD_BYTES,  # it holds the entries that an action added
        ),
        TopicSpec(
            name=names.commits,
            partitions=1,
            partitions_needed=1,
            fixed=_COMPACTED,
            chosen={"segment.bytes": str(MARKER_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.1"},
        ),
        TopicSpec(
            name=names.beats,
            partitions=1,
            partitions_needed=1,
            fixed=_APPEND_TIME,
            # only a segment that is no longer written is deleted
            chosen={"retention.ms": str(BEATS_RETENTION_MS), "segment.ms": str(BEATS_RETENTION_MS)},
            optional=True,
        ),
    ]


def _output(name: str, retention_ms: int, *, min_message_bytes: int | None = None) -> TopicSpec:
    chosen = {"retention.ms": str(retention_ms)}
    return TopicSpec(name=name, partitions=1, chosen=chosen, min_message_bytes=min_message_bytes)


def _specs(
    settings: Settings, only: frozenset[str], *, input_partitions: int | None = None
) -> list[TopicSpec]:
    size = settings.controller.max_record_bytes
    specs = specs_of(settings.topics, input_partitions=input_partitions, max_record_bytes=size)
    return [spec for spec in specs if spec.name in only]


@dataclass(frozen=True, slots=True)
class PartitionFound:
    """How a partition is served: the broker that leads it (None: it has no leader), its replicas, and those in sync."""

    number: int
    leader: int | None
    replicas_count: int
    in_sync_count: int


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic as its brokers describe it."""

    states: tuple[PartitionFound, ...]
    configs: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.states)


def create(
    link: KafkaLink, settings: Settings, only: frozenset[str], *, input_partitions: int
) -> list[TopicOutcome]:
    """Create the topics that are missing (of `only`), compare those that exist, and alter none.

    New topics get min(3, brokers) replicas, and need two in-sync ones where there are three. Raises
    `StartError` when the cluster cannot be reached within about 10 s or refuses.
    """
    specs = _specs(settings, only, input_partitions=input_partitions)
    with connected_admin(link) as admin:
        replicas = min(REPLICAS_MAX, len(admin.describe_cluster()["brokers"]))
        existing, _ = describe(admin, [spec.name for spec in specs])
        made = {
            spec.name for spec in specs if spec.name not in existing and _make(admin, spec, replicas, link)
        }
        existing |= describe(admin, [spec.name for spec in specs if spec.name not in existing])[0]
    return [
        TopicOutcome(topic=spec.name, outcome=Outcome.CREATED)
        if spec.name in made
        else _compare(spec, existing[spec.name], link)
        for spec in specs
    ]


def _compare(spec: TopicSpec, topic: TopicFound, link: KafkaLink) -> TopicOutcome:
    differences = tuple(differences_of(spec, topic, link))
    outcome = Outcome.DIFFERS if differences else Outcome.ALREADY_RIGHT
    return TopicOutcome(topic=spec.name, outcome=outcome, differences=differences)


def differences_of(spec: TopicSpec, topic: TopicFound, link: KafkaLink) -> Iterator[Difference]:
    """Differences that keep a controller from starting, or from reading the largest records (tolerable)."""
    if spec.partitions_needed is not None and topic.partitions != spec.partitions_needed:
        yield _partition_difference(spec, topic.partitions, link)
    for setting, expected in spec.fixed.items():
        if topic.configs.get(setting) != expected:
            yield setting_difference(spec, setting, topic.configs.get(setting, "unset"), expected, link)
    size = int(topic.configs.get("max.message.bytes", 0))
    if spec.min_message_bytes is not None and size < spec.min_message_bytes:
        expected = str(spec.min_message_bytes)
        yield setting_difference(spec, "max.message.bytes", str(size), expected, link, tolerable=True)


def setting_difference(
    spec: TopicSpec,
    setting: str,
    found: str,
    expected: str,
    link: KafkaLink,
    *,
    value: str | None = None,
    tolerable: bool = False,
) -> Difference:
    """What the topic has, what it should have, and the command that sets it (to ``value``, if that is not ``expected``)."""
    remedy = (
        f"Run: kafka-configs.sh --bootstrap-server {link.bootstrap} --alter --entity-type topics "
        f"--entity-name {spec.name} --add-config {setting}={value or expected}"
    )
    return Difference(
        topic=spec.name, setting=setting, found=found, expected=expected, remedy=remedy, tolerable=tolerable
    )


def _partition_difference(spec: TopicSpec, found: int, link: KafkaLink) -> Difference:
    topics = f"kafka-topics.sh --bootstrap-server {link.bootstrap} --topic {spec.name}"
    expected = spec.partitions_needed
    if expected is not None and found < expected:
        remedy = f"Run: {topics} --alter --partitions {expected}"
    else:
        remedy = (
            f"Partitions cannot be removed. Its records are lost by: {topics} --delete; trimtab topics create"
        )
    return Difference(
        topic=spec.name, setting="partitions", found=str(found), expected=str(expected), remedy=remedy
    )


@contextlib.contextmanager
def connected_admin(link: KafkaLink) -> Iterator[KafkaAdminClient]:
    """Open an admin client, and close it at the end. Raises ``Unreachable`` or ``StartError``."""
    try:
        with open_admin(link) as admin:
            yield admin
    except KafkaError as error:
        kind = Unreachable if error.retriable else StartError
        raise kind(explain_unanswered(link, error)) from error


def describe(
    admin: KafkaAdminClient, names: list[str]
) -> tuple[dict[str, TopicFound], list[TopicPermissions]]:
    """Partitions and settings of the topics that exist, and our permissions on those and on hidden ones."""
    if not names:
        return {}, []
    described = admin.describe_topics(names)
    for topic in described:
        if topic["error_code"] not in _KNOWN_ANSWERS:
            raise for_code(topic["error_code"])(topic["name"])
    states = {topic["name"]: tuple(_states(topic)) for topic in described if topic["error_code"] == 0}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in states]
    configs = admin.describe_configs(resources, config_filter="all").get("topic", {}) if resources else {}
    topics = {
        name: TopicFound(served, {key: str(entry["value"]) for key, entry in configs.get(name, {}).items()})
        for name, served in states.items()
    }
    return topics, list(_permissions(described))


def _states(topic: Mapping[str, Any]) -> Iterator[PartitionFound]:
    for entry in sorted(topic["partitions"], key=lambda entry: int(entry["partition_index"])):
        leader = int(entry["leader_id"])
        yield PartitionFound(
            number=int(entry["partition_index"]),
            leader=leader if leader >= 0 else None,
            replicas_count=len(entry["replica_nodes"]),
            in_sync_count=len(entry["isr_nodes"]),
        )


def _permissions(described: list[dict[str, Any]]) -> Iterator[TopicPermissions]:
    for topic in described:
        hidden = topic["error_code"] == TopicAuthorizationFailedError.errno
        if hidden or topic["error_code"] == 0:
            operations = topic.get("authorized_operations")
            allowed = None if operations is None else frozenset(operations)
            yield TopicPermissions(name=topic["name"], hidden=hidden, allowed=allowed)


def _make(admin: KafkaAdminClient, spec: TopicSpec, replicas: int, link: KafkaLink) -> bool:
    """Create one topic; False if another process created it first."""
    durable = {"min.insync.replicas": "2"} if replicas == REPLICAS_MAX else {}
    options = {
        "num_partitions": spec.partitions,
        "replication_factor": replicas,
        "configs": {**durable, **spec.configs},
    }
    try:
        admin.create_topics({spec.name: options}, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return False
    except TopicAuthorizationFailedError as error:
        needed = acl_command(link, "topic", spec.name, ["Create", "Describe", "DescribeConfigs"])
        raise StartError(
            f"{link.principal} lacks the permission Create on topic {spec.name}. Run: {needed}"
        ) from error
    return True


def brokers_seen(link: KafkaLink, topic: str) -> BrokersSeen:
    """The brokers that answer; ``topic`` is not asked for. Raises ``Unreachable`` or ``StartError``.

    Kafka does not report the time of its clocks.
    """
    del topic
    with connected_admin(link) as admin:
        brokers = admin.describe_cluster()["brokers"]
        version = admin.get_broker_version_data(int(brokers[0]["broker_id"])).broker_version
    count = len(brokers)
    return BrokersSeen(text=f"{counted(count, 'broker')} of Kafka", version=".".join(map(str, version)))


def topics_seen(link: KafkaLink, settings: Settings, only: frozenset[str]) -> TopicsSeen:
    """The topics in ``only``, as they are now. Raises ``Unreachable`` when the address does not answer, or ``StartError``."""
    names = settings.topics
    specs = _specs(settings, only)
    with connected_admin(link) as admin:
        existing, permissions = describe(admin, [spec.name for spec in specs])
    hidden = {topic.name for topic in permissions if topic.hidden}
    optional = {names.executor_kafka, *(spec.name for spec in specs if spec.optional)}
    gone = [spec.name for spec in specs if spec.name not in existing and spec.name not in hidden]
    there = [(spec, existing[spec.name]) for spec in specs if spec.name in existing]
    return TopicsSeen(
        count=len(specs),
        missing=tuple(name for name in gone if name not in optional),
        missing_optional=tuple(name for name in gone if name in optional),
        differences=tuple(
            difference
            for spec, topic in there
            if topic.configs  # Kafka leaves them out if we may not DescribeConfigs
            for difference in differences_of(spec, topic, link)
        ),
        unwell=tuple(
            difference
            for spec, topic in there
            for difference in (*_find_shorter_retention(spec, topic, link), *_find_unwell(spec, topic, link))
        ),
        denied=tuple(find_denied(link, names, permissions)),
    )


def _find_shorter_retention(spec: TopicSpec, topic: TopicFound, link: KafkaLink) -> Iterator[Difference]:
    for setting in _AT_LEAST:
        wanted, kept = int(spec.chosen.get(setting, 0)), int(topic.configs.get(setting, _WITHOUT_LIMIT))
        if _WITHOUT_LIMIT < kept < wanted:
            yield setting_difference(
                spec,
                setting,
                str(kept),
                f"{wanted} or more",
                link,
                value=str(wanted),
                tolerable=True,
            )


def _find_unwell(spec: TopicSpec, topic: TopicFound, link: KafkaLink) -> Iterator[Difference]:
    needed = int(topic.configs.get("min.insync.replicas", 1))
    for state in topic.states:
        if state.leader is None:
            yield _make_difference(spec, f"leader of partition {state.number}", "none", "a broker", link)
        elif state.in_sync_count < state.replicas_count:
            yield _make_difference(
                spec,
                f"replicas in sync of partition {state.number}",
                str(state.in_sync_count),
                f"{state.replicas_count}, and {needed} to write",
                link,
                tolerable=state.in_sync_count >= needed,
            )


def _make_difference(
    spec: TopicSpec, what: str, found: str, expected: str, link: KafkaLink, *, tolerable: bool = False
) -> Difference:
    return Difference(
        topic=spec.name,
        setting=what,
        found=found,
        expected=expected,
        remedy=f"Bring its brokers back: kafka-topics.sh --bootstrap-server {link.bootstrap} --describe --topic {spec.name}",
        tolerable=tolerable,
    )


def topic_ids(link: KafkaLink, names: Sequence[str]) -> dict[str, str]:
    """Ids of those topics that have one. Raises ``NoAnswer``."""
    with as_no_answer(), open_admin(link) as admin:
        described = admin.describe_topics(list(names))
    return {
        topic["name"]: str(topic["topic_id"])
        for topic in described
        if topic["error_code"] == 0 and int(str(topic.get("topic_id") or "0").replace("-", ""), 16) > 0
    }
