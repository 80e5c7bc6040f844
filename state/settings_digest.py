"""The digest of the settings in force: two rounds with equal digests were decided under equal settings.

It covers the values that differ from the defaults, and ``DEFAULTS``. So a new setting that is off by default changes
no digest, and with it no summary's bytes, of anybody who does not use it.
"""

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

__all__ = ["DEFAULTS", "differing", "digest"]

DEFAULTS = 1
"""Raised whenever a default changes its value: the same file then means something else.
``tests/state/test_settings_digest.py`` holds the defaults that this number stands for."""


def differing(settings: Any, defaults: Any) -> dict[str, Any]:
    """The values of a settings dataclass that differ from ``defaults``, as a tree of field names."""
    found: dict[str, Any] = {}
    for each in fields(settings):
        value, default = getattr(settings, each.name), getattr(defaults, each.name)
        if is_dataclass(value) and type(value) is type(default):
            inner = differing(value, default)
            if inner:
                found[each.name] = inner
        elif value != default:
            found[each.name] = value
    return found


def digest(settings: Any) -> str:
    """The first 16 hex digits of SHA-256 over canonical JSON (sorted keys, no spaces), however the settings were written."""
    digested = {"defaults": DEFAULTS, "differing": differing(settings, type(settings)())}
    return hashlib.sha256(msgspec.json.encode(digested, order="sorted")).hexdigest()[:16]
