"""Programs that are not Python's, for tests: found, or built from their Go module, or missed loudly."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.local.prometheus import INSTALL, find

BUILD_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A command of a Go module at a version."""

    name: str
    package: str
    version: str
    without_it: str
    """What is not tested where it cannot be had."""

    def need(self) -> str:
        """The program; without it the test is skipped, and a warning says what was not tested and why."""
        found = shutil.which(self.name) or self._built()
        if found is None:
            text = f"neither {self.name} nor go is on the PATH: {self.without_it}"
            warnings.warn(text, stacklevel=2)
            pytest.skip(text)
        return found

    def run(self, *arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run it; what it says is part of a failure."""
        return subprocess.run([self.need(), *arguments], capture_output=True, text=True, check=False, cwd=cwd)

    def _built(self) -> str | None:
        """In the user's cache, built there at the first call, where there is Go."""
        base = os.environ.get("XDG_CACHE_HOME")
        cache = Path(base) if base else Path.home() / ".cache"
        target = cache / "trimtab" / self.name / self.version
        made = target / self.package.rpartition("/")[2]
        if not made.exists():
            go = shutil.which("go")
            if go is None:
                return None
            subprocess.run(
                [go, "install", f"{self.package}@{self.version}"],
                env=os.environ | {"GOBIN": str(target)},
                check=True,
                timeout=BUILD_TIMEOUT_S,
                stdout=sys.stderr,
            )
        return str(made)


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


def check(
    tmp_path: Path, series: dict[str, str], expected: list[tuple[str, dict[str, float]]], *, at: str
) -> None:
    """Fails with promtool's words unless each expression has these samples ``at`` a time; a value of ``series`` a minute."""
    tests: list[dict[str, Any]] = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": at,
                    "exp_samples": [{"labels": name, "value": value} for name, value in samples.items()],
                }
                for expr, samples in expected
            ],
        }
    ]
    path = tmp_path / "asked.test.yml"
    path.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr
