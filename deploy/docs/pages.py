"""All generated pages: rendering them, writing them, and finding those that are stale."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.docs.asyncapi import asyncapi_of
from deploy.docs.kinds import KINDS
from deploy.docs.messages_page import render_messages
from deploy.docs.metrics_page import render_metrics
from deploy.docs.outcomes_table import render_outcomes
from deploy.docs.recorded import replay_recording
from deploy.docs.schemas import schema_of
from streaming.settings.reference import render_reference, render_sample

SCHEMAS = "schemas"


def render(repository: Path) -> dict[str, str]:
    """The text of every generated page, by its path below ``docs/``."""
    examples = replay_recording(repository).examples
    schemas = {kind.type: schema_of(kind, examples[kind.message]) for kind in KINDS}
    return {
        "decisions.md": render_outcomes((repository / "docs" / "decisions.md").read_text(encoding="utf-8")),
        "asyncapi.json": _json(asyncapi_of(_version(repository))),
        "messages.md": render_messages(schemas, examples),
        "metrics.md": render_metrics(),
        "settings.md": render_reference(),
        "trimtab.sample.toml": render_sample(),
        **{f"{SCHEMAS}/{kind.schema_name}": _json(schemas[kind.type]) for kind in KINDS},
    }


def write(pages: Mapping[str, str], docs: Path) -> None:
    """Write the pages, and remove schemas of messages that no longer exist."""
    for name, text in pages.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in _find_surplus(pages, docs):
        (docs / name).unlink()


def problems(pages: Mapping[str, str], docs: Path) -> list[str]:
    """One line for each page that is missing, stale or surplus."""
    found = []
    for name, text in sorted(pages.items()):
        path = docs / name
        if not path.is_file():
            found.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{path} is stale")
    return found + [f"{docs / name} is surplus: no such message" for name in _find_surplus(pages, docs)]


def _find_surplus(pages: Mapping[str, str], docs: Path) -> list[str]:
    """Files among the schemas that nothing generates."""
    files = sorted((docs / SCHEMAS).glob("*"))
    return [name for path in files if (name := f"{SCHEMAS}/{path.name}") not in pages]


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _version(repository: Path) -> str:
    with (repository / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])
