"""The AsyncAPI 3.0 document: topics with their default names, messages, keys, headers, and how Kafka keeps them.

JSON, which every AsyncAPI tool reads. Payloads refer to the schemas beside it.
"""

from typing import Any

from deploy.docs.schemas import KINDS, MessageKind
from streaming.contract.envelope import EPOCH_HEADER
from streaming.contract.messages import CLUSTER_PATTERN
from streaming.contract.published import LeaderMessage, SkippedMessage
from streaming.kafka.topics import specs_of
from streaming.settings.catalog import members
from streaming.settings.sections import ControllerSettings, TopicNames

Json = dict[str, Any]

BINDING_VERSION = "0.5.0"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
CONTENT_TYPE = "application/cloudevents+json"

_BOUND_SETTINGS = ("cleanup.policy", "retention.ms", "max.message.bytes")
"""Topic settings the Kafka binding has a place for."""

_DESCRIPTION = """\
Every record is one CloudEvent 1.0 in structured JSON; its key is the cluster's name. Names of topics are defaults, see
`[topics]` of the settings. Consumers of what trimtab publishes read with `isolation.level=read_committed`. They keep the
highest `trimtab-epoch` of each `source` and partition, and drop actions with a lower one."""

_HEADERS = {
    "type": "object",
    "required": [EPOCH_HEADER],
    "properties": {
        EPOCH_HEADER: {
            "type": "string",
            "pattern": "^[1-9][0-9]*$",
            "description": "Rises at every start of the controller of that `source`; drop records "
            "with a lower one than the highest so far.",
        }
    },
}
_KEY = {"type": "string", "pattern": CLUSTER_PATTERN, "description": "The cluster's name."}
_EMPTY_KEY = {"type": "string", "const": "", "description": "Empty: it is about no cluster in particular."}
_REJECTED_KEY = {"type": "string", "description": "The record's cluster, empty where that is not valid."}


def asyncapi_of(version: str) -> Json:
    """The document for a version of trimtab."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "trimtab",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {name: _channel(name) for name in members(TopicNames)},
        "operations": {
            operation: body for name in members(TopicNames) for operation, body in _operation(name).items()
        },
        "components": {"messages": {kind.type: _message(kind) for kind in KINDS}},
    }


def _kinds_on(name: str) -> list[MessageKind]:
    return [kind for kind in KINDS if name in kind.topics]


def _channel(name: str) -> Json:
    topic = members(TopicNames)[name]
    return {
        "address": topic.default,
        "description": topic.doc,
        "messages": {kind.type: {"$ref": f"#/components/messages/{kind.type}"} for kind in _kinds_on(name)},
        "bindings": {"kafka": _binding(str(topic.default))},
    }


def _binding(topic: str) -> Json:
    """How `trimtab topics create` makes a topic."""
    specs = specs_of(
        TopicNames(), input_partitions=None, max_record_bytes=ControllerSettings().max_record_bytes
    )
    spec = next(spec for spec in specs if spec.name == topic)
    configs = {name: spec.configs[name] for name in _BOUND_SETTINGS if name in spec.configs}
    return {
        "topic": topic,
        "partitions": spec.partitions,
        "topicConfiguration": {
            name: [value] if name == "cleanup.policy" else int(value) for name, value in configs.items()
        },
        "bindingVersion": BINDING_VERSION,
    }


def _operation(name: str) -> Json:
    """What trimtab does on a topic; empty for topics that only trimtab itself reads, such as that of the markers."""
    kinds = _kinds_on(name)
    if not kinds:
        return {}
    action = "receive" if kinds[0].is_read else "send"
    return {
        f"{action}.{name}": {
            "action": action,
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{kind.type}"} for kind in kinds],
        }
    }


def _key(kind: MessageKind) -> Json:
    if kind.message in (LeaderMessage, SkippedMessage):
        return _EMPTY_KEY
    return _REJECTED_KEY if "dead_letter" in kind.topics else _KEY


def _message(kind: MessageKind) -> Json:
    key = _key(kind)
    return {
        "name": kind.type,
        "title": kind.type,
        "summary": kind.summary,
        "contentType": CONTENT_TYPE,
        **({} if kind.is_read else {"headers": _HEADERS}),
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"schemas/{kind.schema_name}"}},
        "bindings": {"kafka": {"key": key, "bindingVersion": BINDING_VERSION}},
    }
