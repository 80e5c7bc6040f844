"""A machine that is too busy to start Python: Spark gives up after 10 s, and the controller starts its query again."""

from pathlib import Path

import pytest

from tests.live.driving import TRIMTAB, Child
from tests.live.loads import played
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.slow]

DELAY = """
import pathlib, sys, time

flag = pathlib.Path({flag!r})
if any("transform_with_state_driver_worker" in each for each in sys.orig_argv) and not flag.exists():
    flag.touch()
    time.sleep(12)
"""


def test_a_python_that_starts_too_late_is_named_and_the_next_start_of_the_query_goes_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "was-late"
    (tmp_path / "sitecustomize.py").write_text(DELAY.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = stage.settings()
    wanted = replayed(config, played(range(3)))
    stage.send(played(range(3)))
    with Child((*TRIMTAB, "run", "--config", str(config), "--from", "earliest"), tmp_path / "run.log") as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert flag.exists()
    assert "is restarted in 1 s: this machine was too busy to start a Python process" in run.output
    assert stage.published() == wanted
