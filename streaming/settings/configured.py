"""The settings a command works with: file, environment and flags."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from state.rounds import Identity
from streaming.process.exits import WrongUse
from streaming.settings import Settings, SettingsError, load

__all__ = ["identity_of", "read_settings"]

PULSAR_ACTION_BYTES = 5_000_000
"""Largest action for an output on Pulsar: its brokers take 5 MiB (``maxMessageSize``), the envelope included."""


def identity_of(settings: Settings) -> Identity:
    """What a controller with these settings is started with."""
    controller = settings.controller
    identity = Identity(mode=controller.mode, action_ttl_s=controller.action_ttl_s)
    return replace(identity, max_action_bytes=PULSAR_ACTION_BYTES) if settings.output_is_pulsar else identity


def read_settings(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """The settings in force. Raises ``WrongUse`` naming all that is wrong."""
    try:
        return load(file=config, flags=flags, environ=os.environ).settings
    except SettingsError as error:
        raise WrongUse(str(error)) from error
