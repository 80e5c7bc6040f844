"""``python -m deploy.helm [--check]``: write the schema of the chart's values, or say that it is stale.

The schema is a hand-written frame, and in it the settings as they are declared. Secrets are left out of them, so that
Helm refuses them: the chart takes references only. What a section checks itself (limits, values that fit together) is
checked when trimtab starts, not here.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import click
from pydantic import TypeAdapter

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
    own = [member for member in members(section).values() if not is_secret(member.kind)]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {member.name: _describe(_value(member.kind), member.doc) for member in own},
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


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the schema is missing or stale.")
def main(*, check: bool) -> None:
    """Write values.schema.json anew."""
    text = render()
    if not check:
        SCHEMA.write_text(text, encoding="utf-8")
        click.echo(f"{SCHEMA} written")
    elif not SCHEMA.is_file() or SCHEMA.read_text(encoding="utf-8") != text:
        click.echo(f"{SCHEMA} is missing or stale\nRun: make docs", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
