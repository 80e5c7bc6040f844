"""The settings a command works with: file, environment and flags."""

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from streaming.cli.options import config_option, input_option, output_option, with_options
from streaming.process.exits import WrongUse
from streaming.settings import Settings, SettingsError, load


def read_settings(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings in force. Raises ``WrongUse`` naming all that is wrong."""
    try:
        return load(file=config, flags=flags, environ=os.environ).settings
    except SettingsError as error:
        raise WrongUse(str(error)) from error


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds ``--config``, ``--input`` and ``--output`` to a command, which gets the resulting settings as ``settings``."""

    @wraps(command)
    def run(*, config: Path | None, input_url: str | None, output_url: str | None, **others: Any) -> None:
        flags = {"input.url": input_url, "output.url": output_url}
        command(settings=read_settings(config, flags), **others)

    decorate = with_options(
        config_option,
        input_option("Overrides input.url: kafka://host:port[,…] or pulsar://…."),
        output_option("Overrides output.url."),
    )
    decorated: Callable[..., None] = decorate(run)
    return decorated
