"""All generated pages: rendering them, writing them, and finding those that are stale.

One table is part of a page that people write: what a policy says of a pair or broker, in ``docs/decisions.md``.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.docs.asyncapi import asyncapi_of
from deploy.docs.messages_page import render_messages
from deploy.docs.metrics_page import render_metrics
from deploy.docs.recorded import replay_recording
from deploy.docs.schemas import KINDS, schema_of
from policies.shedding.outcomes import OutcomeText
from policies.shedding.registry import POLICIES
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


BEGIN, END = (
    "<!-- outcomes: written by `python -m deploy.docs` from the policies -->\n",
    "<!-- end of outcomes -->\n",
)


def render_outcomes(page: str) -> str:
    """The page with its table written anew. Raises ValueError if a mark is missing."""
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:before]}{''.join(_lines())}{page[after:]}"


def _lines() -> Iterator[str]:
    yield "| outcome | meaning | what to do |\n|---|---|---|\n"
    for name, text in _texts().items():
        advice = f" {text.advice} " if text.advice else " "
        yield f"| `{text.example or name}` | {text.meaning} |{advice}|\n"


def _texts() -> dict[str, OutcomeText]:
    """Every outcome once, in the order of the policies."""
    found: dict[str, OutcomeText] = {}
    for policy in POLICIES:
        for outcome in policy.outcomes:
            found.setdefault(outcome, policy.text_of(outcome))
    return found
