"""Options that several commands have, each defined once."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
    "--metrics-port", type=int, help="Where metrics and health are served; 0 takes a free port."
)
verbose_option: Option = click.option("--verbose", "-v", is_flag=True, help="Log more.")


class Duration(click.ParamType[timedelta]):
    """A span of time as people write it: ``90s``, ``30m``, ``2h``, ``1d``, or several of them, the longest first."""

    name = "duration"
    _PATTERN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
    _MOST = timedelta(days=365)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Raises ``click.BadParameter``."""
        text = str(value).strip()
        found = self._PATTERN.fullmatch(text)
        if found is None or not text:
            self.fail(f"{text!r}: expected a duration such as 90s, 30m, 2h, 1d or 1h30m", param, ctx)
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        if max(days, hours, minutes, seconds) > self._MOST.total_seconds():
            self.fail(f"{text!r}: at most {self._MOST.days}d", param, ctx)
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if not timedelta() < span <= self._MOST:
            self.fail(f"{text!r}: expected more than 0 and at most {self._MOST.days}d", param, ctx)
        return span


class Moment(click.ParamType[datetime]):
    """A moment as RFC 3339 writes it, with its offset: ``2026-11-25T06:00:00Z``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Raises ``click.BadParameter``."""
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r}: expected RFC 3339, such as 2026-11-25T06:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no offset: add Z for UTC", param, ctx)
        return moment.astimezone(UTC)


def input_option(help_: str) -> Option:
    """``--input``; ``help_`` says what the command does with it."""
    return click.option("--input", "input_url", metavar="URL", help=help_)


def output_option(help_: str) -> Option:
    """``--output``; ``help_`` says what the command does with it."""
    return click.option("--output", "output_url", metavar="URL", help=help_)


def example(line: str) -> str:
    """The end of a command's help: how it is called."""
    return f"\b\nExample:\n  {line}"


def with_options(*options: Option) -> Option:
    """All these options as one decorator; the help shows them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
