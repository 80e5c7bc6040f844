"""Prometheus' own programs for tests: found, or missed loudly."""

import subprocess
import warnings
from pathlib import Path

import pytest

from deploy.local.prometheus import INSTALL, find


def need(program: str) -> Path:
    """`prometheus` or `promtool`; without it the test is skipped, and a warning says what was not tested and why."""
    found = find(program)
    if found is None:
        text = f"{program} is missing, so dashboards and alerts are NOT tested against it: {INSTALL}"
        warnings.warn(text, stacklevel=2)
        pytest.skip(text)
    return found


def promtool(*arguments: str | Path, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run it on what is given; what it says is part of a failure."""
    return subprocess.run(
        [need("promtool"), *arguments], capture_output=True, text=True, check=False, input=given
    )
