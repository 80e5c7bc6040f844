"""The fleet planner on fleets that have each root of a known fault: what a user may rely on there."""

from dataclasses import replace
from functools import cache

import pytest

from streaming.simulator.runs import Build, run
from streaming.simulator.scenarios import LimitedScenario, find_scenario
from streaming.simulator.score import Counter
from streaming.simulator.setup import Measuring, Setup
from tests.bench.simulations import DEFAULTS, candidate

SEED = 2


def play(build: Build, hours: float) -> Counter:
    """The fleet planner on a fleet."""
    player = candidate("fleet-planner", DEFAULTS, with_splits=False).player()
    return run("roots", SEED, LimitedScenario(build, hours), player, with_topics=False)


@cache
def played(scenario: str, hours: float = 2.0) -> Counter:
    """The fleet planner on a scenario."""
    found = find_scenario(scenario)
    assert found is not None
    return play(found.build, hours)


def test_in_pure_noise_nothing_moves() -> None:
    assert played("noise-alone", 4.0).score().unloads == 0


@pytest.mark.parametrize("scenario", ["small-bundles", "idle-clients", "wrong-limit", "kept-apart"])
def test_a_fleet_ends_balanced_in_spite_of(scenario: str) -> None:
    assert played(scenario).score().ended_balanced


def test_a_broker_that_does_not_know_its_network_receives_nothing_from_those_that_do() -> None:
    counter = played("mixed-networks")
    first_small = len(counter.brokers) // 2
    across = [each for each in counter.marks if each.source < first_small <= each.destination]
    assert counter.marks
    assert not across


def test_bundles_that_vanish_from_reports_and_come_back_move_hardly_more_traffic() -> None:
    """The heaviest bundles may not move while they are missing, so that more and lighter ones do."""
    found = find_scenario("flapping-bundles")
    assert found is not None
    scores = []
    for changes in (found.changes[:1], ()):
        every_report = replace(found, changes=(*changes, _lose_nothing))
        scores.append(play(every_report.build, 2.0).score())
    gaps, without = scores
    assert 0 < gaps.moved_messages_ratio <= 2 * without.moved_messages_ratio
    assert gaps.sent_back == 0


def _lose_nothing(setup: Setup, _rng: object) -> Setup:
    return replace(setup, measuring=Measuring(lost_ratio=0.0))
