"""The fleet planner on troubled fleets: what a preview shows is what happens, and each root of a known fault ends balanced."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from state.closing import Identity
from state.controller import Controller
from state.events import Event
from state.outputs import Output
from state.settings import PulsarSettings
from state.store import DictStore
from streaming.simulator.backtest import play_closed, survey
from streaming.simulator.fleet import Fleet
from streaming.simulator.recorded import recorded_fleets
from streaming.simulator.runs import (
    CLUSTER,
    Build,
    Candidate,
    Live,
    Requests,
    UnloadRequest,
    requests_of,
    run,
)
from streaming.simulator.scenarios import BY_NAME, Shape, limit_hours
from streaming.simulator.score import Counter, Run
from streaming.simulator.setup import Measuring, Setup
from tests.bench.simulations import DEFAULTS, candidate

HOURS = 0.75
TROUBLES = ("big-messages", "small-bundles", "flapping-bundles", "few-big-messages")
CALM = Shape(brokers_count=4, bundles_per_broker=20, mean_points=34.0, topic_spread=0.1, noise_ratio=0.05)


class Recorder:
    """Moves nothing, and keeps what arrives."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:  # noqa: ARG002
        self.events += events
        return [], []


class Noting:
    """The controller, whose plans are kept round by round."""

    def __init__(self, player: Live) -> None:
        self._player = player
        self.plans: list[list[UnloadRequest]] = []

    def play(self, events: Sequence[Event], fleet: Fleet) -> Requests:
        wishes, cuts = self._player.play(events, fleet)
        self.plans += [wishes] if wishes else []
        return wishes, cuts


def build_of(scenario: str) -> Build:
    """A fleet with a trouble; the case of few big messages has four calm brokers beside them."""
    found = BY_NAME[scenario.removeprefix("few-")]
    shown = replace(found, shape=CALM) if scenario.startswith("few-") else found
    return limit_hours(shown.build, HOURS)


def planner() -> Candidate:
    return candidate("fleet-planner", DEFAULTS, with_splits=False)


@cache
def recorded(scenario: str) -> list[tuple[str, Event]]:
    """What brokers report of a trouble while nobody acts."""
    recorder = Recorder()
    run(scenario, 1, build_of(scenario), recorder, with_topics=False)
    return [(CLUSTER, event) for event in recorder.events]


@cache
def dry_run(scenario: str) -> list[list[UnloadRequest]]:
    """The unloads of a dry-run on what was recorded, round by round."""
    settings = planner().settings
    assert settings is not None
    controller = Controller(CLUSTER, DictStore(), identity=Identity(mode="dry-run"), settings=settings)
    plans: list[list[UnloadRequest]] = []
    for _, event in recorded(scenario):
        outputs: Sequence[Output] = controller.step(event).outputs
        wishes, _ = requests_of(outputs)
        plans += [wishes] if wishes else []
    return plans


def moves(plan: Sequence[UnloadRequest]) -> list[tuple[str, str | None]]:
    return [(each.bundle, each.destination) for each in plan]


def backtest(scenario: str) -> Run:
    read = recorded(scenario)
    surveyed = survey(iter(read))[CLUSTER]
    return play_closed(lambda: iter(read), surveyed, planner(), PulsarSettings(), keeps_recorded_moves=True)


@pytest.mark.parametrize("scenario", TROUBLES)
def test_the_first_plan_is_the_same_in_a_dry_run_in_a_backtest_and_in_a_simulation(scenario: str):
    player = planner().player()
    assert isinstance(player, Live)
    noting = Noting(player)
    run(scenario, 1, build_of(scenario), noting, with_topics=False)
    first = dry_run(scenario)[0]
    assert moves(noting.plans[0]) == moves(first)
    series = backtest(scenario).series
    marks = series.marks[: len(first)]
    assert len({each.minute for each in marks}) == 1, "they are one plan"
    assert [series.brokers[each.destination] for each in marks] == [each.destination for each in first]


@pytest.mark.parametrize("preview", ["dry-run", "backtest", "simulation"])
def test_of_few_big_messages_a_preview_moves_two_or_three_bundles_and_ends_balanced(preview: str):
    if preview == "dry-run":
        moved, is_balanced = sum(map(len, dry_run("few-big-messages"))), True
    elif preview == "backtest":
        score = backtest("few-big-messages").score
        moved, is_balanced = score.unloads, score.ended_balanced
    else:
        fleet = recorded_fleets(iter(recorded("few-big-messages")))[CLUSTER]
        counted = run("recorded", 1, limit_hours(fleet, HOURS), planner().player(), with_topics=False)
        moved, is_balanced = counted.score().unloads, counted.score().ended_balanced
    assert 2 <= moved <= 3
    assert is_balanced


SEED = 2


def play(build: Build, hours: float) -> Counter:
    """The fleet planner on a fleet."""
    player = candidate("fleet-planner", DEFAULTS, with_splits=False).player()
    return run("roots", SEED, limit_hours(build, hours), player, with_topics=False)


@cache
def played(scenario: str, hours: float = 2.0) -> Counter:
    """The fleet planner on a scenario."""
    return play(BY_NAME[scenario].build, hours)


def test_in_pure_noise_nothing_moves():
    assert played("noise-alone", 4.0).score().unloads == 0


@pytest.mark.parametrize("scenario", ["small-bundles", "idle-clients", "wrong-limit", "kept-apart"])
def test_a_fleet_ends_balanced_in_spite_of(scenario: str):
    assert played(scenario).score().ended_balanced


def test_a_broker_that_does_not_know_its_network_receives_nothing_from_those_that_do():
    counter = played("mixed-networks")
    first_small = len(counter.brokers) // 2
    across = [each for each in counter.marks if each.source < first_small <= each.destination]
    assert counter.marks
    assert not across


def test_bundles_that_vanish_from_reports_and_come_back_move_hardly_more_traffic():
    """The heaviest bundles may not move while they are missing, so that more and lighter ones do."""
    found = BY_NAME["flapping-bundles"]
    scores = []
    for changes in (found.changes[:1], ()):
        every_report = replace(found, changes=(*changes, _lose_nothing))
        scores.append(play(every_report.build, 2.0).score())
    gaps, without = scores
    assert 0 < gaps.moved_messages_ratio <= 2 * without.moved_messages_ratio
    assert gaps.sent_back == 0


def _lose_nothing(setup: Setup, _rng: object) -> Setup:
    return replace(setup, measuring=Measuring(lost_ratio=0.0))
