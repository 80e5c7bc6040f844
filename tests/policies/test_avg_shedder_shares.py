"""How much AvgShedder moves, and the evidence that it gives."""

from dataclasses import replace

import pytest

from policies.shedding.avg_shedder import POLICY, AvgShedderMemory, AvgShedderSettings
from tests.policies.fleets import (
    Broker,
    at,
    by_rate,
    decide,
    play,
    snapshot_of,
)
from tests.policies.test_avg_shedder import AT_ONCE, DEFAULT, NO_HITS, half_of, moving


@pytest.mark.parametrize(
    ("ratio", "moved"),
    [
        pytest.param(0.2, ["z"], id="a fifth"),
        pytest.param(0.5, ["y", "z"], id="half"),
        pytest.param(1.0, ["x", "y"], id="all of it"),
        pytest.param(0.0, [], id="nothing"),
    ],
)
def test_the_share_of_the_difference_is_a_setting(ratio: float, moved: list[str]) -> None:
    fleet = half_of(10000.0, {"x": 6000.0, "y": 4000.0, "z": 1000.0})
    unloads, _ = play(POLICY, NO_HITS, replace(AT_ONCE, max_unload_ratio=ratio), fleet)
    assert unloads == [[(name, "a", "b") for name in moved]]


def test_a_sole_bundle_may_move_if_it_fits() -> None:
    settings = replace(AT_ONCE, max_unload_ratio=1.0)
    assert play(POLICY, NO_HITS, settings, half_of(5000.0, {"x": 5000.0}))[0] == [[("x", "a", "b")]]


def test_every_pair_that_fires_moves_its_own_the_widest_first_equal_bundles_to_their_own_partner() -> None:
    busy = {"messages_per_s": 8000.0}
    fleet = {
        "a": at(80, **busy, bundles=by_rate(x=2000.0)),
        "b": at(90, **busy, bundles=by_rate(y=2000.0)),
        "c": at(20),
        "d": at(10),
    }
    assert play(POLICY, NO_HITS, AT_ONCE, fleet)[0] == [[("y", "b", "d"), ("x", "a", "c")]]


@pytest.mark.parametrize(
    ("before", "high", "trigger", "expected"),
    [
        pytest.param(NO_HITS, 60, "", (15.0, 1, 8), id="counting towards the low threshold"),
        pytest.param(NO_HITS, 90, "", (40.0, 1, 2), id="counting towards the high threshold"),
        pytest.param(NO_HITS, 65, "", (40.0, 1, 2), id="exactly 40 points count towards the high threshold"),
        pytest.param(
            AvgShedderMemory(low_hits={"a": 7}),
            60,
            "low-threshold",
            (15.0, 8, 8),
            id="fired by the low threshold",
        ),
        pytest.param(
            AvgShedderMemory(high_hits={"b": 1}),
            90,
            "high-threshold",
            (40.0, 2, 2),
            id="fired by the high threshold",
        ),
        pytest.param(
            AvgShedderMemory(low_hits={"a": 7}),
            90,
            "low-threshold",
            (15.0, 8, 8),
            id="fired by the low threshold in a glaring round",
        ),
    ],
)
def test_the_evidence_shows_the_count_that_decided(
    before: AvgShedderMemory, high: float, trigger: str, expected: tuple[float, int, int]
) -> None:
    examined = decide(POLICY, snapshot_of(moving(high, 25)), before, DEFAULT)[0].examined
    evidence = examined.evidence_of(0)
    assert examined.trigger_of(0) == trigger
    assert tuple(evidence[key] for key in ("threshold_points", "hit_count", "needed_hit_count")) == expected


def test_the_evidence_carries_the_numbers_of_both_sides() -> None:
    fleet = {"a": Broker(usage={"cpu": (75, 100)}, messages_per_s=9000.0, bytes_per_s=64.0), "b": at(25)}
    evidence = decide(POLICY, snapshot_of(fleet), NO_HITS, DEFAULT)[0].examined.evidence_of(0)
    assert evidence == {
        "high_usage_points": 75.0,
        "low_usage_points": 25.0,
        "difference_points": 50.0,
        "threshold_points": 40.0,
        "hit_count": 1,
        "needed_hit_count": 2,
        "to_move_messages_per_s": 4500.0,
        "to_move_bytes_per_s": 32.0,
    }


def test_settings_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="the low threshold must not exceed the high one"):
        AvgShedderSettings(low_threshold_points=50.0)
    with pytest.raises(ValueError, match=r"max_unload_ratio is 1.5; it must be from 0 to 1"):
        AvgShedderSettings(max_unload_ratio=1.5)
