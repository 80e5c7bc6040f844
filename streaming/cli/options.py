"""Options that several commands have, each defined once, the values that they take, and the settings that they override."""

import getpass
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from state.overlay import epoch_ms
from streaming.process.exits import WrongUse, raised_as
from streaming.transport.side import Begin

if TYPE_CHECKING:
    from streaming.settings import Settings, TargetSection

Command = Callable[..., Any]
Option = Callable[[Command], Command]

config_option: Option = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Settings file; ./trimtab.toml if there is one.",
)
verbose_option: Option = click.option("--verbose", "-v", is_flag=True, help="Log more.")


STDIN = "-"


def read_input(file: str) -> tuple[str, bytes]:
    """A file's name for messages, and what is in it; - is standard input."""
    if file == STDIN:
        return "standard input", sys.stdin.buffer.read()
    return file, Path(file).read_bytes()


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


def read_settings(config: Path | None, flags: Mapping[str, object]) -> "Settings":
    """The settings in force. Raises ``WrongUse`` naming all that is wrong."""
    from streaming.settings import SettingsError, load  # noqa: PLC0415  only some commands have settings

    with raised_as(WrongUse, SettingsError):
        return load(file=config, flags=flags, environ=os.environ).settings


_NEEDED = {
    "pulsar": "admin_url, the address of the cluster's admin API",
    "kafka": "bootstrap, addresses of the cluster's brokers",
}


def target_of(settings: "Settings", cluster: str, system: Literal["pulsar", "kafka"]) -> "TargetSection":
    """How the cluster is reached. Raises ``WrongUse`` naming the section that is missing."""
    from streaming.settings.catalog import suggest_nearest  # noqa: PLC0415  the settings are read, so it is loaded

    known = [name for name, target in settings.targets.items() if target.has(system)]
    if cluster in known:
        return settings.targets[cluster]
    hint = suggest_nearest(cluster, known) if known else f"they name no {system.capitalize()} cluster"
    raise WrongUse(
        f'there is no [targets."{cluster}".{system}] in the settings ({hint}): add it with {_NEEDED[system]}'
    )


cluster_option: Option = click.option("--cluster", metavar="NAME", help="Only of this cluster.")


class SettingOption(NamedTuple):
    """An option that overrides the setting ``key``."""

    key: str
    parameter: str
    option: Option


def setting_option(key: str, *names: str, **attributes: Any) -> SettingOption:
    """The option of click with these names and attributes."""
    parameter = key.replace(".", "_")
    return SettingOption(key, parameter, click.option(*names, parameter, **attributes))


def input_option(help_: str) -> SettingOption:
    """``--input``; ``help_`` says what the command does with it."""
    return setting_option("input.url", "--input", metavar="URL", help=help_)


def output_option(help_: str) -> SettingOption:
    """``--output``; ``help_`` says what the command does with it."""
    return setting_option("output.url", "--output", metavar="URL", help=help_)


mode_option = setting_option(
    "controller.mode", "--mode", type=click.Choice(["dry-run", "act"]), help="Overrides controller.mode."
)


def metrics_port_option(key: str) -> SettingOption:
    """``--metrics-port``; ``key`` is the program's setting."""
    help_ = "Where metrics and health are served; 0 takes a free port."
    return setting_option(key, "--metrics-port", type=int, help=help_)


def with_settings(*options: SettingOption) -> Option:
    """Adds ``--config`` and these options to a command, which gets the settings in force as ``settings``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*, config: Path | None, **others: Any) -> None:
            flags = {each.key: others.pop(each.parameter) for each in options}
            command(settings=read_settings(config, flags), **others)

        return with_options(config_option, *(each.option for each in options))(run)

    return decorate


settings_options = with_settings(
    input_option("Overrides input.url: kafka://host:port[,…] or pulsar://…."),
    output_option("Overrides output.url."),
)


class Duration(click.ParamType[timedelta]):
    """A span of time as people write it: ``90s``, ``30m``, ``2h``, ``1d``, or several of them, the longest first."""

    name = "duration"
    _PATTERN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
    _MOST = timedelta(days=365)

    @classmethod
    def looks_like(cls, text: str) -> bool:
        """Whether a text has the form of a duration, whatever its numbers."""
        return bool(text) and cls._PATTERN.fullmatch(text) is not None

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
    """A moment as RFC 3339 writes it, with its offset, ``2026-11-25T06:00:00Z``, or how far it is from now: ``10m``, ``2h``, ``7d``."""

    name = "time"

    def __init__(self, *, is_ahead: bool = False, or_words: str = "") -> None:
        """``is_ahead``: a span goes on from now, else back from now. ``or_words`` are taken, too, by who asks: for the message."""
        self._is_ahead = is_ahead
        self._or_words = or_words

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Raises ``click.BadParameter``."""
        text = str(value).strip()
        if Duration.looks_like(text):
            span = Duration().convert(text, param, ctx)
            return datetime.now(UTC) + (span if self._is_ahead else -span)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            way = "from now on" if self._is_ahead else "back from now"
            self.fail(
                f"{value!r}: expected {self._or_words}RFC 3339, such as 2026-11-25T06:00:00Z, or 10m, 2h or 7d {way}",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no offset: add Z for UTC", param, ctx)
        if self._is_ahead and moment <= datetime.now(UTC):
            self.fail(f"{value!r} is over already", param, ctx)
        return moment.astimezone(UTC)


class Whole(click.IntRange):
    """A whole number within bounds, of which the lower one is set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises ``click.BadParameter``."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            most = " on" if self.max is None else f" to {self.max:g}"
            self.fail(f"{value!r}: expected a whole number from {self.min:g}{most}", param, ctx)


class OneOf(click.Choice[str]):
    """One of many texts; a misspelt one is answered with the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What is said of a text that is none of them."""
        from streaming.settings.catalog import nearest  # noqa: PLC0415  only a wrong choice needs it

        close = nearest(str(value), self.choices)
        return super().get_invalid_choice_message(value, ctx) + (f" Did you mean {close}?" if close else "")


TIME_HELP = "TIME is RFC 3339, or 10m, 2h, 7d back from now."
"""What the help of an option says that takes a ``Start`` or a ``Moment``."""


class Start(click.ParamType[Begin]):
    """Where to begin in a topic: ``earliest``, ``latest``, or a ``Moment`` as milliseconds since the epoch."""

    name = "earliest|latest|TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Begin:
        """Raises ``click.BadParameter``."""
        if value in {"earliest", "latest"}:
            return value
        return epoch_ms(Moment(or_words="earliest, latest, ").convert(value, param, ctx))


def begin_option(help_: str = "", *, default: str | None = None) -> Option:
    """``--from``; ``help_`` says what begins there."""
    return click.option(
        "--from",
        "begin",
        type=Start(),
        metavar=Start.name,
        default=default,
        show_default=default is not None,
        help=f"{help_} {TIME_HELP}".lstrip(),
    )


def until_option(ended_by: str) -> Option:
    """``--until`` of what else lasts until the command ``ended_by``."""
    return click.option(
        "--until",
        type=Moment(is_ahead=True),
        help=f"When it ends by itself. TIME is RFC 3339, or 10m, 2h, 7d from now on. Else `{ended_by}` ends it.",
    )


_UNITS = {
    "": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"(\d{1,12})\s?([A-Za-z]{0,3})")


class Size(click.ParamType[int]):
    """Bytes, with or without a unit; at least one."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises ``click.BadParameter``."""
        found = _SIZE.fullmatch(str(value).strip())
        unit = None if found is None else _UNITS.get(found[2])
        if found is None or unit is None or int(found[1]) < 1:
            self.fail(f"{value!r}: expected a size such as 64MiB, 20GiB or 500MB", param, ctx)
        return int(found[1]) * unit


def broker_of(typed: str, known: Collection[str]) -> str:
    """The known broker that a person means, who may leave out the port; what fits none is returned as it is.

    Raises ``WrongUse`` where several fit.
    """
    fitting = sorted(each for each in known if each.rpartition(":")[0] == typed)
    if typed in known or not fitting:
        return typed
    if len(fitting) > 1:
        raise WrongUse(f"broker {typed} may be {' or '.join(fitting)}: give the port, too")
    return fitting[0]


def login_user() -> str:
    """The name of who runs the command, or the number of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
