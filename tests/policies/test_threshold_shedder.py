"""ThresholdShedder: which brokers' history stands out, how much moves then, and the lower-boundary step."""

import math
from dataclasses import replace

import pytest

from policies.shedding.threshold_shedder import POLICY, ThresholdShedderMemory, ThresholdShedderSettings
from tests.policies.fleets import (
    Fleet,
    at,
    by_volume,
    decide,
    examined_of,
    play,
    snapshot_of,
    tried_of,
    unloads_of,
)

DEFAULT = ThresholdShedderSettings()
NO_HISTORY = ThresholdShedderMemory()
PRESENT = ThresholdShedderSettings(history_ratio=0.0, min_unload_bytes_per_s=0.0)
"""Decides on the present usage alone, however little traffic there is."""
GB = 1e9


def remembering(**ratios: float) -> ThresholdShedderMemory:
    return ThresholdShedderMemory(history_ratio=ratios)


def points(**cpu_points: float) -> Fleet:
    """Brokers with traffic worth moving, in two bundles each."""
    return {
        name: at(value, bytes_per_s=GB, bundles=by_volume(**{f"{name}1": 9e8, f"{name}2": 1e8}))
        for name, value in cpu_points.items()
    }


@pytest.mark.parametrize(
    ("before", "rounds", "expected"),
    [
        pytest.param(NO_HISTORY, [points(a=80)], {"a": 0.80}, id="the first round counts in full"),
        pytest.param(NO_HISTORY, [points(a=80), points(a=50)], {"a": 0.77}, id="80 then 50 gives 77"),
        pytest.param(remembering(a=0.9), [points(a=50)] * 2, {"a": 0.5 + 0.4 * 0.81}, id="one step a round"),
        pytest.param(
            remembering(a=0.9, gone=0.7),
            [points(a=50)],
            {"a": 0.86, "gone": 0.7},
            id="an absent broker keeps its history as it was",
        ),
    ],
)
def test_history_is_smoothed_round_by_round(
    before: ThresholdShedderMemory, rounds: list[Fleet], expected: dict[str, float]
) -> None:
    memory = play(POLICY, before, DEFAULT, *rounds)[1]
    assert dict(memory.history_ratio) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("fleet", "settings", "expected"),
    [
        pytest.param(
            points(a=75, b=25),
            replace(PRESENT, threshold_points=25.0),
            {"a": "fired", "b": "below-threshold"},
            id="a broker exactly on the threshold is shed",
        ),
        pytest.param(
            points(a=75, b=25),
            replace(PRESENT, threshold_points=25.001),
            {"a": "below-threshold", "b": "below-threshold"},
            id="a broker below the threshold is not",
        ),
        pytest.param(
            {"a": at(75, bytes_per_s=0.0, bundles=by_volume(x=0.0, y=0.0)), "b": at(25)},
            replace(PRESENT, threshold_points=25.0),
            {"a": "fired", "b": "below-threshold"},
            id="a need of 0 fires where the minimum is 0",
        ),
        pytest.param(
            points(a=75),
            replace(PRESENT, threshold_points=0.0),
            {"a": "sole-broker"},
            id="with nobody else there is nowhere to go, even where the mean itself is enough",
        ),
        pytest.param(
            points(a=0, b=0),
            PRESENT,
            {"a": "cluster-idle", "b": "cluster-idle"},
            id="an idle cluster is left alone",
        ),
        pytest.param(
            points(a=10, b=90, c=50, d=60),
            PRESENT,
            {"b": "fired", "d": "below-threshold", "c": "below-threshold", "a": "below-threshold"},
            id="brokers are taken from the highest usage",
        ),
        pytest.param(
            points(c=90, a=90, b=90, x=0, y=0, z=0),
            PRESENT,
            {
                "a": "fired",
                "b": "fired",
                "c": "fired",
                "x": "below-threshold",
                "y": "below-threshold",
                "z": "below-threshold",
            },
            id="equal usages are taken by name",
        ),
    ],
)
def test_brokers_are_judged_against_the_mean(
    fleet: Fleet, settings: ThresholdShedderSettings, expected: dict[str, str]
) -> None:
    snapshot = snapshot_of(fleet)
    examined = examined_of(snapshot, decide(POLICY, snapshot, NO_HISTORY, settings)[0])
    assert examined == expected
    assert list(examined) == list(expected)


def test_10_gb_per_s_at_80_percent_above_a_mean_of_60_moves_1_5_gb_per_s() -> None:
    bundles = by_volume(v=1.2 * GB, w=0.2 * GB, x=0.15 * GB, y=0.1 * GB)
    fleet = {"a": at(80, bytes_per_s=10 * GB, bundles=bundles), "b": at(40)}
    snapshot = snapshot_of(fleet)
    plan, _ = decide(POLICY, snapshot, NO_HISTORY, DEFAULT)
    assert plan.examined.evidence_of(0) == pytest.approx(
        {
            "usage_points": 80.0,
            "history_points": 80.0,
            "mean_points": 60.0,
            "threshold_points": 10.0,
            "broker_bytes_per_s": 10 * GB,
            "to_move_bytes_per_s": 1.5 * GB,
        }
    )
    assert plan.examined.trigger_of(0) == "upper-boundary"
    assert unloads_of(snapshot, plan) == [("v", "a", None), ("w", "a", None), ("x", "a", None)]
    assert tried_of(snapshot, plan)["y"] == "need-met"


@pytest.mark.parametrize(
    ("minimum", "outcome"),
    [
        pytest.param(0.25, "fired", id="exactly the minimum is enough"),
        pytest.param(math.nextafter(0.25, 1.0), "below-min-traffic", id="less than the minimum is not"),
    ],
)
def test_a_move_below_the_minimum_is_not_made(minimum: float, outcome: str) -> None:
    bundles = by_volume(x=1.0, y=1.0)
    fleet = {"a": at(75, bytes_per_s=5.0, bundles=bundles), "b": at(25)}
    settings = ThresholdShedderSettings(
        threshold_points=25.0, history_ratio=0.0, min_unload_bytes_per_s=minimum
    )
    snapshot = snapshot_of(fleet)
    plan, _ = decide(POLICY, snapshot, NO_HISTORY, settings)
    assert plan.examined.evidence_of(0)["to_move_bytes_per_s"] == 0.25
    assert plan.examined.outcome_of(0) == outcome
    assert bool(len(plan.unload_rows)) is (outcome == "fired")


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        pytest.param(points(a=50, b=50), "already-recovered", id="at the mean of the present"),
        pytest.param(points(a=20, b=80), "already-recovered", id="below the mean of the present"),
        pytest.param(points(a=51, b=50), "fired", id="still above the mean of the present"),
        pytest.param(points(a=0, b=0), "already-recovered", id="nobody uses anything at present"),
    ],
)
def test_require_current_above_mean_spares_a_broker_that_has_recovered(now: Fleet, outcome: str) -> None:
    settings = replace(DEFAULT, require_current_above_mean=True)
    plan, _ = decide(POLICY, snapshot_of(now), remembering(a=0.9, b=0.1), settings)
    assert plan.examined.outcome_of(0) == outcome
    assert bool(len(plan.unload_rows)) is (outcome == "fired")
