"""The nine topics on Kafka: how they must be set up, creating them, and checking them at start.

Existing topics are never altered: whoever made them has reasons, and some mistakes (a partition count)
cannot be undone. What differs is named with the value found, the value expected and the command that mends
it. Retention and replication are chosen for new topics only; operators may change them freely.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
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

from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.kafka.permissions import (
    ANYBODY,
    Subject,
    TopicPermissions,
    acl_command,
    beat_operations,
    controller_operations,
    missing_permissions,
)
from streaming.ports.topics import (
    ACTIONS_RETENTION_MS,
    AUDIT_RETENTION_MS,
    BEATS_RETENTION_MS,
    INPUT_RETENTION_MS,
    Difference,
    Outcome,
    StartError,
    TopicOutcome,
    TopicsWrong,
    Unreachable,
    no_beats,
)
from streaming.settings import TopicNames

__all__ = ["create", "validate"]


RECORD_HEADROOM_BYTES = 64 * 1024
"""Key, headers and batch header on top of the largest value."""

MARKER_SEGMENT_BYTES = 1024 * 1024
"""Compaction leaves the newest segment alone; a start reads it whole (some 5,000 markers)."""

REPLICAS_MAX = 3
"""Replicas of a new topic where there are as many brokers; two of them must then be in sync."""

_REACH_TIMEOUT_MS = 8_000
_REQUEST_TIMEOUT_MS = 10_000
_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_COMPACTED = {"cleanup.policy": "compact"}
_KNOWN_ANSWERS = (0, UnknownTopicOrPartitionError.errno, TopicAuthorizationFailedError.errno)
"""Others, such as a leader that is not there yet, say nothing about a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic: `fixed` settings are needed, `chosen` ones only proposed; None leaves partitions unchecked.

    A controller runs without one that is `optional`.
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


@dataclass(frozen=True, slots=True)
class _Found:
    partitions: int
    configs: Mapping[str, str]


def specs_of(names: TopicNames, *, input_partitions: int | None, max_record_bytes: int) -> list[TopicSpec]:
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
            min_message_bytes=LARGEST_RECORD_BYTES,  # the entries of an action that were not there before
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


def _chosen(specs: list[TopicSpec], only: frozenset[str] | None) -> list[TopicSpec]:
    return specs if only is None else [spec for spec in specs if spec.name in only]


def create(
    bootstrap: str,
    names: TopicNames,
    *,
    input_partitions: int,
    max_record_bytes: int,
    only: frozenset[str] | None = None,
    client_options: Mapping[str, object] = MappingProxyType({}),
    principal: str = ANYBODY,
) -> list[TopicOutcome]:
    """Create the topics that are missing (of `only`, where given), compare those that exist, and alter none.

    New topics get min(3, brokers) replicas, and need two in-sync ones where there are three. Raises
    `StartError` when the cluster cannot be reached within about 10 s or refuses.
    """
    specs = _chosen(
        specs_of(names, input_partitions=input_partitions, max_record_bytes=max_record_bytes), only
    )
    subject = Subject(bootstrap=bootstrap, principal=principal)
    with _admin(bootstrap, client_options) as admin:
        replicas = min(REPLICAS_MAX, len(admin.describe_cluster()["brokers"]))
        found, _ = _describe(admin, [spec.name for spec in specs])
        made = {
            spec.name for spec in specs if spec.name not in found and _make(admin, spec, replicas, subject)
        }
        found |= _describe(admin, [spec.name for spec in specs if spec.name not in found])[0]
    return [
        TopicOutcome(topic=spec.name, outcome=Outcome.CREATED)
        if spec.name in made
        else _compare(spec, found[spec.name], bootstrap)
        for spec in specs
    ]


def validate(
    bootstrap: str,
    names: TopicNames,
    *,
    max_record_bytes: int,
    only: frozenset[str] | None = None,
    client_options: Mapping[str, object] = MappingProxyType({}),
    principal: str = ANYBODY,
) -> list[str]:
    """Check at start that the topics (of `only`, where given) can be worked with; returns warnings.

    Raises `Unreachable` when the address cannot be reached within about 10 s, and otherwise one `StartError` naming every obstacle: a missing
    topic, a permission the controller lacks, a timestamp type other than LogAppendTime, a partition count or cleanup policy that would lose
    order or markers. A `max.message.bytes` below the largest record that is read, or written to it, is only a warning, and so is
    everything about an optional topic.
    """
    specs = _chosen(specs_of(names, input_partitions=None, max_record_bytes=max_record_bytes), only)
    specs = [spec for spec in specs if spec.name != names.executor_kafka]  # no controller touches it
    with _admin(bootstrap, client_options) as admin:
        found, permissions = _describe(admin, [spec.name for spec in specs])
    subject = Subject(bootstrap=bootstrap, principal=principal)
    refused = list(missing_permissions(subject, controller_operations(names), permissions))
    if refused:
        raise TopicsWrong("\n".join(refused))
    needed = [spec for spec in specs if not spec.optional]
    missing = [spec.name for spec in needed if spec.name not in found]
    differences = [
        difference
        for spec in needed
        if spec.name in found
        for difference in _differences(spec, found[spec.name], bootstrap)
    ]
    problems = [str(difference) for difference in differences if not difference.tolerable]
    if missing:
        problems.append(f"topics missing at {bootstrap}: {', '.join(missing)}. Run: trimtab topics create")
    if problems:
        raise TopicsWrong("\n".join(problems))
    optional = [spec for spec in specs if spec.optional]
    lacking = missing_permissions(subject, beat_operations(names), permissions)
    return [
        *map(str, differences),
        *map(no_beats, lacking),
        *(no_beats(problem) for spec in optional for problem in _optional_problems(spec, found, bootstrap)),
    ]


def _optional_problems(spec: TopicSpec, found: Mapping[str, _Found], bootstrap: str) -> Iterator[str]:
    if spec.name not in found:
        yield f"topic {spec.name} is missing at {bootstrap}. Run: trimtab topics create."
    else:
        yield from map(str, _differences(spec, found[spec.name], bootstrap))


def _compare(spec: TopicSpec, found: _Found, bootstrap: str) -> TopicOutcome:
    differences = tuple(_differences(spec, found, bootstrap))
    outcome = Outcome.DIFFERS if differences else Outcome.ALREADY_RIGHT
    return TopicOutcome(topic=spec.name, outcome=outcome, differences=differences)


def _differences(spec: TopicSpec, found: _Found, bootstrap: str) -> Iterator[Difference]:
    if spec.partitions_needed is not None and found.partitions != spec.partitions_needed:
        yield _partition_difference(spec, found.partitions, bootstrap)
    for setting, expected in spec.fixed.items():
        if found.configs.get(setting) != expected:
            yield _setting_difference(spec, setting, found.configs.get(setting, "unset"), expected, bootstrap)
    size = int(found.configs.get("max.message.bytes", 0))
    if spec.min_message_bytes is not None and size < spec.min_message_bytes:
        expected = str(spec.min_message_bytes)
        yield _setting_difference(spec, "max.message.bytes", str(size), expected, bootstrap, tolerable=True)


def _setting_difference(
    spec: TopicSpec, setting: str, found: str, expected: str, bootstrap: str, *, tolerable: bool = False
) -> Difference:
    remedy = (
        f"Run: kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics "
        f"--entity-name {spec.name} --add-config {setting}={expected}"
    )
    return Difference(
        topic=spec.name, setting=setting, found=found, expected=expected, remedy=remedy, tolerable=tolerable
    )


def _partition_difference(spec: TopicSpec, found: int, bootstrap: str) -> Difference:
    topics = f"kafka-topics.sh --bootstrap-server {bootstrap} --topic {spec.name}"
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
def _admin(bootstrap: str, client_options: Mapping[str, object]) -> Iterator[KafkaAdminClient]:
    try:
        with KafkaAdminClient(
            bootstrap_servers=bootstrap,
            bootstrap_timeout_ms=_REACH_TIMEOUT_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            **client_options,
        ) as admin:
            yield admin
    except KafkaError as error:
        kind = Unreachable if error.retriable else StartError
        raise kind(
            f"Kafka at {bootstrap} does not answer as expected: {error!r}. "
            "Check that the address is right, that the brokers are up, and the security settings."
        ) from error


def _describe(admin: KafkaAdminClient, names: list[str]) -> tuple[dict[str, _Found], list[TopicPermissions]]:
    """Partitions and settings of the topics that exist, and what may be done with those and with hidden ones."""
    if not names:
        return {}, []
    described = admin.describe_topics(names)
    for topic in described:
        if topic["error_code"] not in _KNOWN_ANSWERS:
            raise for_code(topic["error_code"])(topic["name"])
    partitions = {topic["name"]: len(topic["partitions"]) for topic in described if topic["error_code"] == 0}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in partitions]
    configs = admin.describe_configs(resources, config_filter="all").get("topic", {}) if resources else {}
    found = {
        name: _Found(count, {key: str(entry["value"]) for key, entry in configs.get(name, {}).items()})
        for name, count in partitions.items()
    }
    return found, list(_permissions(described))


def _permissions(described: list[dict[str, Any]]) -> Iterator[TopicPermissions]:
    for topic in described:
        hidden = topic["error_code"] == TopicAuthorizationFailedError.errno
        if hidden or topic["error_code"] == 0:
            yield TopicPermissions(name=topic["name"], hidden=hidden, allowed=_allowed_operations(topic))


def _allowed_operations(topic: Mapping[str, Any]) -> frozenset[str] | None:
    """Names of the operations that are allowed; None where the broker does not tell."""
    operations = topic.get("authorized_operations")
    return None if operations is None else frozenset(operations)


def _make(admin: KafkaAdminClient, spec: TopicSpec, replicas: int, subject: Subject) -> bool:
    """Create one topic; False when somebody else was faster."""
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
        needed = acl_command(subject, "topic", spec.name, ["Create", "Describe", "DescribeConfigs"])
        raise StartError(
            f"{subject.principal} lacks the permission Create on topic {spec.name}. Run: {needed}"
        ) from error
    return True
