"""The permissions that the controller needs on each topic, checked before it starts.

Kafka's description of a topic lists what the asking user may do there; without an authorizer that is everything. So a
missing access control entry is named, with the command that adds it, instead of failing later and elsewhere.
docs/security.md has the entries of every component.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streaming.settings import TopicNames

ANYBODY = "User:ANONYMOUS"
"""The user that brokers see if they ask clients for no name."""


Operation = Literal["AlterConfigs", "Create", "Describe", "DescribeConfigs", "Read", "Write"]
"""Operations as kafka-acls.sh spells them."""

Resource = Literal["topic", "transactional-id", "group", "cluster"]

_KAFKA_NAMES: Mapping[Operation, str] = {
    "AlterConfigs": "ALTER_CONFIGS",
    "Create": "CREATE",
    "Describe": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
    "Read": "READ",
    "Write": "WRITE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A user, and the brokers that it asks."""

    bootstrap: str
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPermissions:
    """The permissions in a topic's description; ``allowed`` are Kafka's names of operations, None if they are not in it."""

    name: str
    hidden: bool
    """Whether even its description is refused."""
    allowed: frozenset[str] | None


def controller_operations(names: TopicNames) -> dict[str, tuple[Operation, ...]]:
    """What `trimtab run` needs, by topic."""
    reads: tuple[Operation, ...] = ("Read", "DescribeConfigs")
    writes: tuple[Operation, ...] = ("Write", "DescribeConfigs")
    return {
        names.input: reads,
        names.control: reads,
        names.actions: writes,
        names.actions_dry_run: writes,
        names.audit: writes,
        names.dead_letter: writes,
        names.commits: ("Read", *writes),
    }


def beat_operations(names: TopicNames) -> dict[str, tuple[Operation, ...]]:
    """What `trimtab run` uses if it is allowed, by topic; it also runs without."""
    return {names.beats: ("Write", "DescribeConfigs")}


def missing_permissions(
    subject: Subject, needed: Mapping[str, Sequence[Operation]], permissions: Sequence[TopicPermissions]
) -> Iterator[str]:
    """One sentence for each topic on which a permission is missing, with the command that grants it."""
    for topic, operations in missing_by_topic(needed, permissions):
        yield describe_missing(subject, "topic", topic, operations)


def missing_by_topic(
    needed: Mapping[str, Sequence[Operation]], permissions: Sequence[TopicPermissions]
) -> Iterator[tuple[str, list[Operation]]]:
    """Each topic on which permissions are missing, with the operations."""
    for topic in permissions:
        operations = [each for each in needed.get(topic.name, ()) if _is_missing(topic, each)]
        if operations:
            yield topic.name, operations


def _is_missing(topic: TopicPermissions, operation: Operation) -> bool:
    if topic.hidden:  # Read and Write include Describe; nothing is known about the others
        return operation in {"Read", "Write", "Describe"}
    return topic.allowed is not None and _KAFKA_NAMES[operation] not in topic.allowed


def describe_missing(subject: Subject, resource: Resource, name: str, operations: Sequence[Operation]) -> str:
    """The sentence about permissions that are missing; a cluster has no name."""
    what = f"{resource.replace('-', ' ')} {name}" if name else f"the {resource}"
    return (
        f"{subject.principal} lacks the permission {' and '.join(operations)} on {what}. "
        f"Run: {acl_command(subject, resource, name, operations)}"
    )


def describe_hidden_topic(subject: Subject, topic: str, operation: Operation) -> str:
    """The sentence about a topic that we do not see: Kafka hides topics that we may not even describe."""
    return (
        f"there is no topic {topic} at {subject.bootstrap}: run `trimtab topics create`. If there is one, "
        f"{describe_missing(subject, 'topic', topic, [operation])}"
    )


def acl_command(subject: Subject, resource: Resource, name: str, operations: Sequence[Operation]) -> str:
    """The command that grants the operations; an administrator of the brokers runs it."""
    asked = " ".join(f"--operation {each}" for each in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {subject.bootstrap} --add "
        f"--allow-principal '{subject.principal}' {asked} --{resource} {name}"
    ).rstrip()
