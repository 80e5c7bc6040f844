"""Golden scenarios: every ``*.txt`` beside this file is played, and what comes out must be what stands in it."""

from pathlib import Path

import pytest

from tests.scenarios.stage import play

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_the_scenario_comes_out_as_it_is_written(path: Path, request: pytest.FixtureRequest):
    written = path.read_text(encoding="utf-8")
    played = play(written)
    if request.config.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
        written = played
    assert played.splitlines() == written.splitlines()


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 17
