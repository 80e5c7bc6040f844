"""``--format`` (``-o``) of every command that shows something: a table for people, JSON or YAML for programs."""

import json
from typing import Any

import click

from streaming.cli.options import Option

_FORMS = ("table", "json", "yaml")


def format_option(
    help_: str = "Output.", *, default: str = "table", forms: tuple[str, ...] = _FORMS
) -> Option:
    """``--format``; ``help_`` says what a program gets."""
    return click.option(
        "--format", "-o", "form", type=click.Choice(forms), default=default, show_default=True, help=help_
    )


def render(tree: Any, form: str) -> str:
    """The tree, of lists, dicts and plain values, as text that ends with a line break."""
    return to_yaml(tree) if form == "yaml" else json.dumps(tree, indent=2) + "\n"


def to_yaml(tree: Any) -> str:
    """The tree as YAML; keys keep their order."""
    import yaml  # noqa: PLC0415  only output as YAML waits for it

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
