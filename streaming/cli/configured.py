"""The settings a command works with: file, environment and the options that override some of them."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from streaming.cli.options import Option, config_option, with_options
from streaming.process.exits import WrongUse
from streaming.settings import Settings, SettingsError, load


def read_settings(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings in force. Raises ``WrongUse`` naming all that is wrong."""
    try:
        return load(file=config, flags=flags, environ=os.environ).settings
    except SettingsError as error:
        raise WrongUse(str(error)) from error


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
