"""The settings a command works with: file, environment and flags."""

import os
from collections.abc import Mapping
from pathlib import Path

from streaming.process.exits import WrongUse
from streaming.settings import Settings, SettingsError, load

__all__ = ["read_settings"]


def read_settings(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings in force. Raises ``WrongUse`` naming all that is wrong."""
    try:
        return load(file=config, flags=flags, environ=os.environ).settings
    except SettingsError as error:
        raise WrongUse(str(error)) from error
