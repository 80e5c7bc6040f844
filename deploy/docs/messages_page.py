"""The page of all messages: their fields, read off the schemas, and a real example of each."""

import json
from collections.abc import Iterator
from typing import Any

from deploy.docs.examples import RECORDING, Event
from deploy.docs.schemas import KINDS, MessageKind
from streaming.settings.catalog import members
from streaming.settings.sections import TopicNames

Json = dict[str, Any]

SHOWN_ENTRIES = 2
"""Entries of a list, or of a table by bundle or topic, that an example shows."""

_WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false"}

_HEAD = f"""\
# Messages

<!-- Written by `python -m deploy.docs`; edit the structs, not this page. -->

For whoever sends to trimtab or reads from it. Afterwards you know every field of every message, with an example of each.

Every record is one CloudEvent 1.0 in structured JSON, and its key is the cluster's name. The JSON Schemas of whole
events are in [schemas/](schemas), with whole examples; topics, keys and headers in [asyncapi.json](asyncapi.json).

The examples are one decision of a real Pulsar cluster, from the load report to the result, made by replaying
`{RECORDING}`. Tick, facts of the cluster, result, control event and the refused record are not in the
recording and were written to fit it. Lists and tables by bundle are cut to {SHOWN_ENTRIES} entries here.

Units end a name: `_s` seconds, `_bytes_per_s`, `_messages_per_s`, `_points` percentage points, `_count`. Times are RFC
3339 in UTC. Names in `data` of load reports and statistics are Pulsar's own. Unknown fields are ignored when reading;
readers of trimtab's events should do the same.

| type | topic | |
|---|---|---|
"""

_ENVELOPE = """
## The envelope

| attribute | type | meaning |
|---|---|---|
| `specversion` | `"1.0"` | CloudEvents 1.0 |
| `id` | text | Unique for its source; of two reports of one broker at the same time, the greater `id` counts |
| `source` | text | The program or person that sent the event |
| `type` | text | One of the types above |
| `subject` | text | What it is about: see each type |
| `time` | time | When the content was true: event time, the only clock that counts |
| `cluster` | text | Name of the cluster, 1 to 100 characters of `A-Z a-z 0-9 . _ -`; the record's key |
| `datacontenttype` | `"application/json"` | |
| `recordedtime` | time | When the event was appended to its topic; only in recordings, which have no append times of their own |
| `data` | object | See each type |
"""


def render_messages(schemas: dict[str, Json], examples: dict[str, Event]) -> str:
    """The page; ``schemas`` by message type."""
    index = "".join(
        f"| [`{kind.type}`](#{_anchor(kind)}) | {_topics(kind)} | {_direction_of(kind)} |\n" for kind in KINDS
    )
    chapters = (_chapter(kind, schemas[kind.type], examples[kind.type]) for kind in KINDS)
    return _HEAD + index + _ENVELOPE + "".join(chapters)


def _chapter(kind: MessageKind, schema: Json, example: Event) -> str:
    return (
        f"\n## `{kind.type}`\n\n{kind.summary}\n\n"
        f"Topic {_topics(kind)}. [Schema](schemas/{kind.schema_name}).\n"
        + "".join(_tables(schema))
        + f"\n```json\n{json.dumps(_cut(example), indent=2, ensure_ascii=False)}\n```\n"
    )


def _tables(schema: Json) -> Iterator[str]:
    """A table of `data` and one for each struct in it."""
    data, structs = schema["properties"]["data"], schema["$defs"]
    top = data.get("$ref", "").rpartition("/")[2]
    if not top:
        yield f"\n`data`: {_kind_of(data)}.\n"
    for name in sorted(structs, key=lambda name: (name != top, list(structs).index(name))):
        struct = structs[name]
        yield f"\n{_heading(name, struct, is_top=name == top)}\n\n| field | type | meaning |\n|---|---|---|\n"
        yield "".join(_row(field, body, struct) for field, body in struct["properties"].items())


def _heading(name: str, struct: Json, *, is_top: bool) -> str:
    description = str(struct["description"])
    if is_top:
        return description if description.startswith("`data`") else f"`data`: {description}"
    return f"*{_struct_name(name)}*: {description}"


def _struct_name(name: str) -> str:
    """The name of a struct's schema; ``Section_Row_`` is how msgspec writes ``Section[Row]``."""
    return name.replace("_", "[", 1).replace("_", "]")


def _row(name: str, field: Json, struct: Json) -> str:
    optional = "" if name in struct["required"] else ", optional"
    return f"| `{name}` | {_kind_of(field)}{optional} | {_cell(field.get('description', ''))} |\n"


def _kind_of(field: Json) -> str:
    """A field's type in words."""
    if "$ref" in field:
        return f"*{_struct_name(field['$ref'].rpartition('/')[2])}*"
    if "anyOf" in field:
        return " or ".join(map(_kind_of, field["anyOf"]))
    if "enum" in field:
        return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    kind = str(field.get("type", "any value"))
    return _container_of(field) or _WORDS.get(kind, kind)


def _container_of(field: Json) -> str | None:
    if "items" in field:
        return f"list of {_kind_of(field['items'])}"
    below = field.get("additionalProperties")
    return None if below is None else f"table of {_kind_of(below)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(entry) for entry in value[:SHOWN_ENTRIES]]
    if isinstance(value, dict):
        is_by_name = any("/" in key for key in value)
        kept = list(value.items())[: SHOWN_ENTRIES if is_by_name else None]
        return {key: _cut(entry) for key, entry in kept}
    return value


def _topics(kind: MessageKind) -> str:
    return ", ".join(f"`{members(TopicNames)[name].default}`" for name in kind.topics)


def _direction_of(kind: MessageKind) -> str:
    return "read" if kind.is_read else "published"


def _anchor(kind: MessageKind) -> str:
    return kind.type.replace(".", "")
