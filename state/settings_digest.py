"""Which settings in force differ from the defaults, and their digest: equal digests mean equal settings.

The digest covers the values that differ from the defaults, and ``DEFAULTS``. So a new setting that is off by default changes
neither the digest nor the bytes of a summary where it is not used.
"""

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgspec

from state.quiet_hours import Zones

DEFAULTS = 2
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


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings in force for one kind of cluster, as its round summaries show them."""

    different: dict[str, Any]
    """Those that differ from the defaults, as a tree of field names."""
    digest: str
    """The first 16 hex digits of SHA-256 over their canonical JSON (sorted keys, no spaces), however they were written."""

    @classmethod
    def of(cls, settings: Any, zones: Zones | None = None) -> "InForce":
        """From a settings dataclass, which has a default for every field; ``zones`` are the time zones that it names."""
        different = differing(settings, type(settings)())
        deciding = {"defaults": DEFAULTS, "differing": different} | ({"zones": zones} if zones else {})
        digested = msgspec.json.encode(deciding, order="sorted")
        return cls(different, hashlib.sha256(digested).hexdigest()[:16])
