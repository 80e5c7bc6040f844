"""What a broker refuses, told by the permission that is missing and the command that grants it."""

from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streaming.kafka.permissions import Operation, Resource, Subject, lacking

__all__ = ["denied_resource", "explain_denied"]


def denied_resource(error: KafkaError) -> Resource | None:
    """On what kind of thing something was not allowed; None where that is not what is wrong."""
    match error:
        case TopicAuthorizationFailedError():
            return "topic"
        case GroupAuthorizationFailedError():
            return "group"
        case ClusterAuthorizationFailedError():
            return "cluster"
    return "topic" if _has_no_producer_id(error) else None


def _has_no_producer_id(error: KafkaError) -> bool:
    """An idempotent producer is given an id if it may write to any topic at all (KIP-679); the client says so in words."""
    text = str(error)
    return "InitProducerId" in text and "ClusterAuthorizationFailed" in text


def explain_denied(
    error: KafkaError, subject: Subject, operation: Operation, *, topic: str = "", group: str = ""
) -> str:
    """The missing permission, where that is what is wrong, and otherwise Kafka's own words.

    Kafka says on what kind of thing something was not allowed, but not what: ``operation`` is what was tried on the topic
    or the cluster; a group is only ever read.
    """
    match denied_resource(error):
        case "topic":
            return lacking(subject, "topic", topic, [operation])
        case "group":
            return lacking(subject, "group", group, ["Read"])
        case "cluster":
            return lacking(subject, "cluster", "", [operation])
    return repr(error)
