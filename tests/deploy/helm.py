"""What Helm makes of the chart. It is built from its Go module where it is not there."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.go_programs import GoProgram

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/trimtab"
HELM = GoProgram(
    "helm", "helm.sh/helm/v3/cmd/helm", "v3.18.6", "the chart is NOT linted, rendered or validated"
)
KUBERNETES = "1.31.0"
"""What the templates are told they are rendered for; Helm built from its module does not know of new ones."""

Manifest = dict[str, Any]


def helm(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it; what it says is part of a failure."""
    return HELM.run(*arguments)


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
