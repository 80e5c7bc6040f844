"""ThresholdShedder's lower-boundary step: no broker stands out above the mean, but one is far below it."""

from dataclasses import replace

import pytest

from policies.shedding.threshold_shedder import POLICY, ThresholdShedderMemory, ThresholdShedderSettings
from tests.policies.fleets import (
    Bundle,
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

LOWER = ThresholdShedderSettings(history_ratio=0.0, min_unload_bytes_per_s=0.0, lower_boundary_shedding=True)
"""Decides on the present usage alone, however little traffic there is."""
NO_HISTORY = ThresholdShedderMemory()


def points(**cpu_points: float) -> Fleet:
    """Brokers of 1000 bytes/s in two bundles each."""
    return {
        name: at(value, bytes_per_s=1000.0, bundles=by_volume(**{f"{name}1": 40.0, f"{name}2": 30.0}))
        for name, value in cpu_points.items()
    }


ONE_COLD = points(a=50, b=50, c=50, d=50, e=50, f=0)
HOT = at(60, bytes_per_s=1000.0, bundles=by_volume(h=70.0), listed_count=1)


def remembering(**ratios: float) -> ThresholdShedderMemory:
    return ThresholdShedderMemory(history_ratio=ratios)


@pytest.mark.parametrize(
    ("fleet", "settings", "expected"),
    [
        pytest.param(
            ONE_COLD, LOWER, ["a1", "a2"], id="five at 50 and one at 0: half the threshold of the first moves"
        ),
        pytest.param(
            points(a=12, b=2, c=1, d=1),
            LOWER,
            [],
            id="12, 2, 1, 1: nobody can be 10 points below a mean of 4",
        ),
        pytest.param(
            points(a=50, b=50, c=50, d=25),
            replace(LOWER, threshold_points=18.75),
            [],
            id="exactly on the lower boundary is not below it",
        ),
        pytest.param(
            points(a=50, b=50, c=50, d=25),
            replace(LOWER, threshold_points=18.7),
            ["a1", "a2"],
            id="a little below it is",
        ),
        pytest.param(
            points(a=50, b=51, c=52, d=52, e=50, f=10),
            LOWER,
            ["c1", "c2"],
            id="the busiest sheds, ties by name",
        ),
        pytest.param(
            {**points(a=50, b=50, c=51, d=50, f=0), "h": HOT},
            LOWER,
            ["c1", "c2"],
            id="not a broker with a sole bundle",
        ),
    ],
)
def test_the_busiest_sheds_a_little_to_warm_a_cold_broker(
    fleet: Fleet, settings: ThresholdShedderSettings, expected: list[str]
) -> None:
    unloads, _ = play(POLICY, NO_HISTORY, settings, fleet)
    assert [bundle for bundle, _, _ in unloads[0]] == expected


def test_the_explanation_names_the_step_and_its_need() -> None:
    snapshot = snapshot_of(ONE_COLD)
    plan, _ = decide(POLICY, snapshot, NO_HISTORY, LOWER)
    assert examined_of(snapshot, plan) == {"a": "fired", **dict.fromkeys("bcdef", "below-threshold")}
    assert [plan.examined.trigger_of(row) for row in range(6)] == ["lower-boundary"] + [""] * 5
    assert plan.examined.evidence_of(0)["to_move_bytes_per_s"] == pytest.approx(50.0)


def test_a_need_below_the_minimum_is_named() -> None:
    snapshot = snapshot_of(ONE_COLD)
    plan, _ = decide(POLICY, snapshot, NO_HISTORY, replace(LOWER, min_unload_bytes_per_s=51.0))
    assert examined_of(snapshot, plan)["a"] == "below-min-traffic"


@pytest.mark.parametrize(
    ("fleet", "settings", "expected"),
    [
        pytest.param(points(a=40), LOWER, {"a": 0.5}, id="history moves a second step"),
        pytest.param(
            {**points(a=40), "x": at(0)},
            LOWER,
            {"a": 0.6, "x": 0.0},
            id="not where somebody was shed already",
        ),
        pytest.param(
            {**points(b=40), "h": HOT},
            replace(LOWER, min_unload_bytes_per_s=9e9),
            {"b": 0.4, "h": 0.6},
            id="it moves even where nothing then happens",
        ),
    ],
)
def test_history_moves_twice_in_a_round_that_takes_the_step(
    fleet: Fleet, settings: ThresholdShedderSettings, expected: dict[str, float]
) -> None:
    memory = play(POLICY, remembering(a=0.8), replace(settings, history_ratio=0.5), fleet)[1]
    assert dict(memory.history_ratio) == pytest.approx({"a": 0.8} | expected, rel=1e-7)


def masked(*names: str) -> dict[str, Bundle]:
    return by_volume(masked=" ".join(names), **dict.fromkeys(names, 9.0))


def test_the_step_follows_where_everything_above_the_mean_was_masked() -> None:
    """Each broker that fired keeps its outcome and its trigger, and each of its bundles one outcome."""
    fleet = {
        **points(a=50, b=50, f=0),
        "hot": at(70, bytes_per_s=1000.0, bundles=masked("h1", "h2"), listed_count=2),
        "hotter": at(80, bytes_per_s=1000.0, bundles=masked("i1", "i2"), listed_count=2),
    }
    snapshot = snapshot_of(fleet)
    plan, _ = decide(POLICY, snapshot, NO_HISTORY, LOWER)
    assert unloads_of(snapshot, plan) == []
    assert tried_of(snapshot, plan) == dict.fromkeys(["i1", "i2", "h1", "h2"], "masked")
    triggers = [plan.examined.trigger_of(row) for row in range(5)]
    assert triggers == ["upper-boundary", "upper-boundary", "", "", ""]


def test_bundles_tried_keep_their_broker_when_the_second_step_reorders_the_fleet() -> None:
    """After the first step "was" leads with 0.70 before "is" (0.58); after the second "is" leads with 0.66."""
    fleet = {
        "was": at(10, bytes_per_s=1000.0, bundles=masked("w1", "w2")),
        "is": at(90, bytes_per_s=1000.0, bundles=by_volume(i1=120.0, i2=1.0)),
        "cold": at(0, bytes_per_s=1000.0),
    }
    settings = replace(LOWER, history_ratio=0.8, threshold_points=22.0)
    snapshot = snapshot_of(fleet)
    plan, _ = decide(POLICY, snapshot, remembering(was=0.85, **{"is": 0.50}, cold=0.0), settings)
    assert unloads_of(snapshot, plan) == [("i1", "is", None)]
    names = snapshot.brokers.names
    of_broker = {
        snapshot.bundles.names[row]: names[plan.examined.high[examined]]
        for row, examined in zip(plan.tried_rows.tolist(), plan.tried_examined.tolist(), strict=True)
    }
    assert of_broker == {"w1": "was", "w2": "was", "i1": "is", "i2": "is"}
    assert examined_of(snapshot, plan) == {"was": "fired", "is": "fired", "cold": "below-threshold"}
