"""Helm for tests: found, or built from its Go module, or missed loudly; and what it makes of the chart."""

import os
import shutil
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/trimtab"
VERSION = "v3.18.6"
KUBERNETES = "1.31.0"
"""What the templates are told they are rendered for; Helm built from its module does not know of new ones."""
BUILD_TIMEOUT_S = 900

Manifest = dict[str, Any]


def need() -> str:
    """The program; without it the test is skipped, and a warning says what was not tested and why."""
    found = shutil.which("helm") or _built()
    if found is None:
        text = "neither helm nor go is on the PATH: the chart is NOT linted, rendered or validated"
        warnings.warn(text, stacklevel=2)
        pytest.skip(text)
    return found


@cache
def _built() -> str | None:
    """Helm in the user's cache, built there at the first call (a minute or two), where there is Go."""
    base = os.environ.get("XDG_CACHE_HOME")
    target = (Path(base) if base else Path.home() / ".cache") / "trimtab" / "helm" / VERSION
    if not (target / "helm").exists():
        go = shutil.which("go")
        if go is None:
            return None
        subprocess.run(
            [go, "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"],
            env=os.environ | {"GOBIN": str(target)},
            check=True,
            timeout=BUILD_TIMEOUT_S,
            stdout=sys.stderr,
        )
    return str(target / "helm")


def helm(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it; what it says is part of a failure."""
    return subprocess.run([need(), *arguments], capture_output=True, text=True, check=False)


def values_file(directory: Path, values: object) -> Path:
    """Values as a file."""
    made = directory / "values.yaml"
    made.write_text(yaml.safe_dump(values))
    return made


def render(*values: Path) -> list[Manifest]:
    """All manifests of a release called `ours`, with these values over the chart's."""
    options = [part for file in values for part in ("--values", str(file))]
    done = helm("template", "ours", CHART, "--kube-version", KUBERNETES, *options)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest is not None]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found
