"""``python -m deploy.helm [--check]``: write the schema of the chart's values, or say that it is stale.

The schema is a hand-written frame, and in it the settings as they are declared. Secrets are left out of them, so that
Helm refuses them: the chart takes references only. What a section checks itself (limits, values that fit together) is
checked when trimtab starts, not here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic import TypeAdapter

from deploy.generated import command
from streaming.settings import Settings
from streaming.settings.catalog import free_names_of, is_section, members
from streaming.settings.targets import is_secret

FRAME = Path(__file__).with_name("chart.schema.json")
SCHEMA = Path(__file__).with_name("trimtab") / "values.schema.json"

_Json = Mapping[str, Any]


def render() -> str:
    """The text of values.schema.json."""
    schema = json.loads(FRAME.read_text(encoding="utf-8"))
    schema["properties"]["settings"] = _table(Settings)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _table(section: type) -> _Json:
    """A section: every setting that is no secret, and nothing else."""
    settings = [member for member in members(section).values() if not is_secret(member.kind)]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {member.name: _describe(_value(member.kind), member.doc) for member in settings},
    }


def _value(kind: Any) -> _Json:
    """What may be written for a type; unset is written by leaving the key out."""
    below = free_names_of(kind)
    if is_section(kind):
        return _table(kind)
    if below is not None:
        return {"type": "object", "additionalProperties": _value(below)}
    choices = [choice for choice in get_args(kind) if choice is not NoneType]
    if NoneType in get_args(kind) and len(choices) == 1:
        return _value(choices[0])
    return TypeAdapter(kind).json_schema()


def _describe(schema: _Json, doc: str) -> _Json:
    return {"description": doc.replace("``", "`"), **schema} if doc else schema


main = command(lambda: {SCHEMA.name: render()}, SCHEMA.parent, owned=SCHEMA.name)

if __name__ == "__main__":
    main()
