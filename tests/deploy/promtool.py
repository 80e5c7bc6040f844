"""Prometheus' own programs for tests: found, or missed loudly."""

import json
import subprocess
import warnings
from pathlib import Path
from typing import Any

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
