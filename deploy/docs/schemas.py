"""Which messages are on which topics, and a JSON Schema (2020-12) of each, generated from the structs that decode and encode it.

Descriptions are the strings below the fields. What ``streaming.contract.decode`` checks beyond the types is added, so that
a producer learns from the schema what trimtab would refuse. As in the decoder, unknown fields are allowed: a later
version may add some. A schema cannot express these refusals: a time too far ahead of its log, the wrong topic, a
``resumed_at`` after the event's own time, a regular expression that Python does not understand.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from state import outputs, overlay
from streaming.contract import encode, kafka, messages, published
from streaming.contract.bundles import BUNDLE
from streaming.contract.messages import (
    INPUT_TYPES,
    MAX_NUMBER,
    BrokerLoadData,
    ControlMessage,
    Envelope,
    LocalBrokerData,
    Resource,
    TopBundle,
    TopicStatsMessage,
    Traffic,
    type_of,
)
from streaming.contract.published import (
    LeaderMessage,
    RejectedMessage,
    RoundMessage,
    SkippedMessage,
    SplitMessage,
    ThrottleMessage,
    UnloadMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKind:
    """A message type with the topics it is found on, as the names of the settings in ``[topics]``."""

    message: type[msgspec.Struct]
    topics: tuple[str, ...]
    is_read: bool
    """Whether trimtab reads it; otherwise it publishes it."""

    @property
    def type(self) -> str:
        """CloudEvents type."""
        return type_of(self.message)

    @property
    def summary(self) -> str:
        """The docstring of the message, in one line."""
        return " ".join((inspect.getdoc(self.message) or "").split())

    @property
    def schema_name(self) -> str:
        """File name, and `$id`, of its schema."""
        return f"{self.type}.schema.json"


KINDS = (
    *(MessageKind(message=message, topics=("input",), is_read=True) for message in INPUT_TYPES),
    MessageKind(message=ControlMessage, topics=("control",), is_read=True),
    MessageKind(message=UnloadMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=SplitMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=ThrottleMessage, topics=("actions", "actions_dry_run"), is_read=False),
    MessageKind(message=LeaderMessage, topics=("actions",), is_read=False),
    MessageKind(message=RoundMessage, topics=("audit",), is_read=False),
    MessageKind(message=SkippedMessage, topics=("audit",), is_read=False),
    MessageKind(message=RejectedMessage, topics=("dead_letter",), is_read=False),
)


Json = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

BUNDLE_PATTERN = rf"^{BUNDLE.pattern}(?![\s\S])"
"""A bundle's full name, as the decoder accepts it."""

_RATE = {"minimum": 0, "maximum": MAX_NUMBER}
_BUNDLE_KEYS = {"propertyNames": {"pattern": BUNDLE_PATTERN}}

_CHECKED: Mapping[type, Mapping[str, Json]] = {
    Envelope: {"datacontenttype": {"pattern": "^application/json"}},
    Traffic: dict.fromkeys(Traffic.__struct_fields__, _RATE),
    Resource: {"usage": {"maximum": MAX_NUMBER}, "limit": {"maximum": MAX_NUMBER}},
    LocalBrokerData: {
        **{name: _RATE for name in LocalBrokerData.__struct_fields__ if name.startswith("msg")},
        "lastStats": _BUNDLE_KEYS,
        "bundles": {"items": {"pattern": BUNDLE_PATTERN}},
    },
    BrokerLoadData: {
        **{name: _RATE for name in BrokerLoadData.__struct_fields__ if name.startswith("msg")},
        "weightedMaxEMA": _RATE,
        "updatedAt": {"minimum": 0},
        "otherBundles": _BUNDLE_KEYS,
        "bundles": {"items": {"pattern": BUNDLE_PATTERN}},
    },
    TopBundle: {"bundleName": {"pattern": BUNDLE_PATTERN}},
    TopicStatsMessage: {"data": _BUNDLE_KEYS},
}
"""What the decoder checks in the values of fields, by the struct that declares the field."""

_MEASURED_OR_NOT = [
    {"properties": {"usage": {"minimum": 0}}},
    {"properties": {"usage": {"const": -1}, "limit": {"enum": [-1, None]}}},
]
"""The two valid forms of usage and limit: a usage that was measured or is absent, or -1, by which Pulsar says that it was not measured."""


_STRUCTS: Mapping[str, type[msgspec.Struct]] = {
    name: member
    for module in (messages, kafka, encode, outputs, overlay, published)
    for name, member in vars(module).items()
    if isinstance(member, type) and issubclass(member, msgspec.Struct)
}
"""Every struct a message is made of, by its name."""


def schema_of(kind: MessageKind, example: Json) -> Json:
    """The schema of a message type, with a whole event of it as its example."""
    _, components = msgspec.json.schema_components(
        [kind.message], schema_hook=_schema_of_object, ref_template="#/$defs/{name}"
    )
    for component in components.values():
        _describe(component, _STRUCTS[component["title"].partition("[")[0]])
    event = components.pop(kind.message.__name__)
    return {
        "$schema": DIALECT,
        "$id": kind.schema_name,
        **event,
        "title": kind.type,
        "description": kind.summary,
        "$defs": components,
        "examples": [example],
    }


def _schema_of_object(kind: type) -> Json:
    """The schema of `object`, the values of a settings overlay; msgspec knows none."""
    if kind is not object:
        raise NotImplementedError(f"no JSON Schema for {kind}: use a type msgspec knows in messages")
    return {"description": "Any JSON value."}


def _attribute_docs(struct: type[msgspec.Struct]) -> Json:
    """The string below each field that a struct declares itself, in one line; msgspec does not read them."""
    [declared] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(declared, ast.ClassDef)
    return {
        ast.unparse(field.target): " ".join(str(ast.literal_eval(below.value)).split())
        for field, below in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _describe(component: Json, struct: type[msgspec.Struct]) -> None:
    """Add to each field its description from the struct's source, and what the decoder checks."""
    for declared in reversed(struct.__mro__):
        if declared in {msgspec.Struct, object} or not issubclass(declared, msgspec.Struct):
            continue
        docs, checked = _attribute_docs(declared), _CHECKED.get(declared, {})
        for name, field in component["properties"].items():
            field.update(checked.get(name, {}))
            if name in docs:
                field["description"] = docs[name].replace("``", "`")
    if struct is Resource:
        component["anyOf"] = _MEASURED_OR_NOT
