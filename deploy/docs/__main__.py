"""``python -m deploy.docs [--check]``: write the generated documentation, or say what of it is stale.

One table is part of a page that people write: what a policy says of a pair or broker, in ``docs/understand/outcomes.md``.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.docs.asyncapi import asyncapi_of
from deploy.docs.commands_page import render_commands
from deploy.docs.examples import REPOSITORY, golden_messages
from deploy.docs.messages_page import render_messages
from deploy.docs.metrics_page import render_metrics
from deploy.docs.names_page import render_names
from deploy.docs.schemas import KINDS, schema_of
from deploy.generated import command
from policies.shedding.contract import OutcomeText
from policies.shedding.registry import POLICIES
from streaming.settings.reference import render_reference, render_sample

FOLDER = REPOSITORY / "docs"
OUTCOMES = "understand/outcomes.md"


def render() -> dict[str, str]:
    """The text of every generated page, by its path below ``docs/``."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        version = str(tomllib.load(file)["project"]["version"])
    examples = golden_messages(version)
    schemas = {kind.type: schema_of(kind, examples[kind.type]) for kind in KINDS}
    return {
        OUTCOMES: render_outcomes((FOLDER / OUTCOMES).read_text(encoding="utf-8")),
        "reference/commands.md": render_commands(),
        "reference/asyncapi.json": _json(asyncapi_of(version)),
        "reference/messages.md": render_messages(schemas, examples),
        "reference/metrics.md": render_metrics(),
        "reference/names.md": render_names(schemas),
        "reference/settings.md": render_reference(),
        "reference/trimtab.sample.toml": render_sample(),
        **{f"reference/schemas/{kind.schema_name}": _json(schemas[kind.type]) for kind in KINDS},
    }


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


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
    texts: dict[str, OutcomeText] = {}
    for policy in POLICIES:
        for outcome in policy.outcomes:
            texts.setdefault(outcome, policy.text_of(outcome))
    return texts


main = command(render, FOLDER, owned="reference/schemas/*")

if __name__ == "__main__":
    main()
