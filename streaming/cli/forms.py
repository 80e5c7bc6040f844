"""``--format`` (``-o``) of every command that shows something: a table for people, JSON or YAML for programs."""

import json
from typing import Any

import click

from streaming.cli.options import Option

__all__ = ["format_option", "render", "to_yaml"]

_FORMS = ("table", "json", "yaml")
_OLD_NAME = "text"


class _Form(click.Choice[str]):
    """``text`` is what ``table`` was called in 0.1.0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See click."""
        if value == _OLD_NAME:
            click.echo(
                f"warning: --format {_OLD_NAME} is called table now; the next release removes the old name",
                err=True,
            )
            value = "table"
        return super().convert(value, param, ctx)


def format_option(
    help_: str = "Output.", *, default: str = "table", forms: tuple[str, ...] = _FORMS
) -> Option:
    """``--format``; ``help_`` says what a program gets."""
    return click.option(
        "--format", "-o", "form", type=_Form(forms), default=default, show_default=True, help=help_
    )


def render(tree: Any, form: str) -> str:
    """The tree, of lists, dicts and plain values, as text that ends with a line break."""
    return to_yaml(tree) if form == "yaml" else json.dumps(tree, indent=2) + "\n"


def to_yaml(tree: Any) -> str:
    """The tree as YAML; keys keep their order."""
    import yaml  # noqa: PLC0415  only output as YAML waits for it

    return str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
