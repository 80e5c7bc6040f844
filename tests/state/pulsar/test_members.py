"""``calm_after_change_rounds``: when brokers count as having come or gone, and what waits for it."""

from collections.abc import Sequence

import pytest

from state.events import Event
from tests.state.traces import BUNDLES, load, run, settings_of

SETTINGS = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}


def reports(number: int, brokers: Sequence[str], *, cpu: float = 80.0) -> list[Event]:
    """b1 has more than enough to give away in every round."""
    hot = dict.fromkeys(BUNDLES[:4], 20.0)
    return [
        load(
            name,
            10 * number + 5,
            cpu=cpu if name == "b1" else 10.0,
            bundles=hot if name == "b1" else {},
            rate=90.0 if name == "b1" else 1.0,
        )
        for name in brokers
    ]


def outcomes(rounds: dict[int, Sequence[str]], *, rounds_count: int = 2, cpu: float = 80.0) -> list[str]:
    """``moved``, ``calm`` or ``neither`` for each round; every round in a batch of its own."""
    guards = {"calm_after_change_rounds": rounds_count, "bundle_cooldown_s": 0}
    batches = [reports(number, brokers, cpu=cpu) for number, brokers in rounds.items()]
    found = []
    for summary in run(batches, settings_of(**SETTINGS, guards=guards)).summaries:
        seen = summary["candidates"]["outcomes"]
        assert not {"acted", "calm-after-change"} <= seen.keys()
        found.append("calm" if "calm-after-change" in seen else "moved" if "acted" in seen else "neither")
    return found


TWO, THREE = ("b1", "b2"), ("b1", "b2", "b3")


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ({0: TWO, 1: TWO}, ["moved", "moved"]),
        ({0: TWO, 1: THREE, 2: THREE, 3: THREE}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: TWO, 3: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: THREE, 3: THREE, 4: THREE}, ["moved", "calm", "calm", "calm", "moved"]),
        ({0: THREE, 2: TWO, 3: TWO, 4: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 3: TWO}, ["moved", "calm", "moved"]),
        ({0: TWO, 40: THREE, 41: THREE}, ["moved", "moved", "moved"]),
    ],
    ids=[
        "the first round of a cluster changes nothing",
        "a broker joins",
        "a broker leaves",
        "a broker is restarted: each change counts anew",
        "a round without reports in between",
        "rounds without reports count as rounds",
        "after a long silence there is nothing to compare with",
    ],
)
def test_nothing_moves_for_some_rounds_after_a_broker_joined_or_left(
    rounds: dict[int, Sequence[str]], expected: list[str]
) -> None:
    assert outcomes(rounds) == expected
    assert set(outcomes(rounds, rounds_count=0)) == {"moved"}


def test_a_broker_above_the_overload_threshold_does_not_wait() -> None:
    rounds = {0: TWO, 1: THREE}
    assert outcomes(rounds, cpu=84.0) == ["moved", "calm"]
    assert outcomes(rounds, cpu=86.0) == ["moved", "moved"]


def test_the_summary_says_who_came_and_went_and_how_long_it_waits() -> None:
    guards = {"calm_after_change_rounds": 3}
    batches = [reports(0, ("b1", "b2", "b4")), reports(1, THREE)]
    row = run(batches, settings_of(**SETTINGS, guards=guards)).summaries[1]["candidates"]["heaviest"]
    assert "b3 joined and b4 left in round 1: nothing moves before round 4" in {
        each["detail"] for each in row
    }
