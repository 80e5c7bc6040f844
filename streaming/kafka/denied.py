"""Explains a broker's refusal: the permission that is missing, and the command that grants it."""

from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streaming.kafka.permissions import Operation, Resource, Subject, describe_missing


def denied_resource(error: KafkaError) -> Resource | None:
    """The kind of resource that was refused; None if the error is not about a missing permission."""
    match error:
        case TopicAuthorizationFailedError():
            return "topic"
        case GroupAuthorizationFailedError():
            return "group"
        case ClusterAuthorizationFailedError():
            return "cluster"
    return "topic" if _has_no_producer_id(error) else None


def _has_no_producer_id(error: KafkaError) -> bool:
    """Whether an idempotent producer got no id, which it gets if it may write to any topic (KIP-679); only the text shows it."""
    text = str(error)
    return "InitProducerId" in text and "ClusterAuthorizationFailed" in text


def explain_denied(
    error: KafkaError, subject: Subject, operation: Operation, *, topic: str = "", group: str = ""
) -> str:
    """The missing permission, if the error is about one, and otherwise Kafka's own words.

    Kafka names the kind of resource that was refused, but not the operation: ``operation`` is what was tried on the topic
    or the cluster; a group is only ever read.
    """
    match denied_resource(error):
        case "topic":
            return describe_missing(subject, "topic", topic, [operation])
        case "group":
            return describe_missing(subject, "group", group, ["Read"])
        case "cluster":
            return describe_missing(subject, "cluster", "", [operation])
    return repr(error)
