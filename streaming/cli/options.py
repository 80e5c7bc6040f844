"""Options that several commands have, each said once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]
Option = Callable[[Command], Command]

config_option: Option = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Settings file; ./trimtab.toml if there is one.",
)
metrics_port_option: Option = click.option(
    "--metrics-port", type=int, help="Overrides metrics.port; 0 takes a free one."
)
verbose_option: Option = click.option("--verbose", "-v", is_flag=True, help="Log more.")


def input_option(help_: str) -> Option:
    """``--input`` of a command that says what it does with it."""
    return click.option("--input", "input_url", metavar="URL", help=help_)


def output_option(help_: str) -> Option:
    """``--output`` of a command that says what it does with it."""
    return click.option("--output", "output_url", metavar="URL", help=help_)


def example(line: str) -> str:
    """The end of a command's help: how it is called."""
    return f"\b\nExample:\n  {line}"


def with_options(*options: Option) -> Option:
    """All of them, shown in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
