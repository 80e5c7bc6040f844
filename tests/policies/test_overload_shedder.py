"""OverloadShedder: which brokers are above the threshold, and how much moves then."""

import pytest

from policies.shedding.contract import NoMemory, SheddingPlan
from policies.shedding.overload_shedder import POLICY, OverloadShedderSettings
from policies.shedding.view import RoundView
from tests.policies.fleets import (
    Bundle,
    Fleet,
    at,
    by_volume,
    decide,
    examined_of,
    snapshot_of,
    tried_of,
    unloads_of,
)


def shed(view: RoundView, settings: OverloadShedderSettings) -> SheddingPlan:
    return decide(POLICY, view, NoMemory(), settings)[0]


DEFAULT = OverloadShedderSettings()
MB = 1e6


def points(**cpu_points: float) -> Fleet:
    """Brokers of 100 MB/s each in two bundles."""
    return {
        name: at(value, bytes_per_s=100 * MB, bundles=by_volume(**{f"{name}1": 90 * MB, f"{name}2": 10 * MB}))
        for name, value in cpu_points.items()
    }


@pytest.mark.parametrize(
    ("fleet", "settings", "expected"),
    [
        pytest.param(
            points(a=85, b=84.9), DEFAULT, {"a": "fired", "b": "below-threshold"}, id="85 % is overloaded"
        ),
        pytest.param(
            points(a=60, b=30),
            OverloadShedderSettings(threshold_points=60.0),
            {"a": "fired", "b": "below-threshold"},
            id="60 of 100 is 60.000004 % in single precision, and not below 60",
        ),
        pytest.param(
            points(a=43, b=30),
            OverloadShedderSettings(threshold_points=43.0),
            {"a": "fired", "b": "below-threshold"},
            id="exactly on a threshold of 43",
        ),
        pytest.param(
            points(b=90, a=90, c=140),
            DEFAULT,
            {"c": "fired", "a": "fired", "b": "fired"},
            id="all of them if all are overloaded: the highest first, then by name",
        ),
        pytest.param(
            points(a=99), DEFAULT, {"a": "sole-broker"}, id="with nobody else there is nowhere to go"
        ),
        pytest.param({}, DEFAULT, {}, id="nobody"),
        pytest.param(
            {"a": at(99, bytes_per_s=MB, bundles=by_volume(x=MB)), "b": at(0)},
            DEFAULT,
            {"a": "sole-bundle", "b": "below-threshold"},
            id="the only bundle stays",
        ),
    ],
)
def test_brokers_are_judged_against_the_threshold(
    fleet: Fleet, settings: OverloadShedderSettings, expected: dict[str, str]
) -> None:
    examined = examined_of((snapshot := snapshot_of(fleet)), shed(snapshot, settings))
    assert examined == expected
    assert list(examined) == list(expected)


@pytest.mark.parametrize(
    ("bundles", "listed_count", "expected"),
    [
        pytest.param(
            by_volume(w=5.0, x=10.0, y=4.0, z=9.0),
            4,
            {"x": "acted", "z": "acted", "w": "acted", "y": "need-met"},
            id="the biggest first until the need is met",
        ),
        pytest.param(
            by_volume(x=100.0, y=1.0), 2, {"x": "acted", "y": "need-met"}, id="a bundle above the need moves"
        ),
        pytest.param(
            by_volume(c=12.0, a=12.0, b=12.0),
            3,
            {"a": "acted", "b": "acted", "c": "need-met"},
            id="equal bundles are taken by name",
        ),
        pytest.param(
            by_volume(masked="x", x=90.0, y=21.0, z=3.0),
            3,
            {"x": "masked", "y": "acted", "z": "need-met"},
            id="a masked bundle never moves and meets no need",
        ),
        pytest.param(
            by_volume(x=40.0), 2, {"x": "acted"}, id="a listed heartbeat bundle counts, as it does in Pulsar"
        ),
    ],
)
def test_the_biggest_bundles_move_until_the_need_is_met(
    bundles: dict[str, Bundle], listed_count: int, expected: dict[str, str]
) -> None:
    """Usage is 1.00 and 0.85 is allowed: 0.15 and a margin of 0.05 are a fifth of the usage, 20 of 100 bytes/s."""
    fleet = {"a": at(100, bytes_per_s=100.0, bundles=bundles, listed_count=listed_count), "b": at(10)}
    snapshot = snapshot_of(fleet)
    plan = shed(snapshot, DEFAULT)
    assert plan.examined.evidence_of(0) == pytest.approx(
        {
            "usage_points": 100.0,
            "threshold_points": 85.0,
            "broker_bytes_per_s": 100.0,
            "to_move_bytes_per_s": 20.0,
        }
    )
    assert plan.examined.trigger_of(0) == "overloaded"
    tried = tried_of(snapshot, plan)
    assert tried == expected
    assert list(tried) == list(expected)
    assert unloads_of(snapshot, plan) == [(key, "a", None) for key, why in expected.items() if why == "acted"]


def test_at_least_one_bundle_moves_even_where_nothing_flows() -> None:
    snapshot = snapshot_of({"a": at(90, bundles=by_volume(x=5.0, y=9.0)), "b": at(25)})
    assert unloads_of(snapshot, shed(snapshot, DEFAULT)) == [("y", "a", None)]


def test_a_threshold_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold_points is -1.0; it must be 0 or more"):
        OverloadShedderSettings(threshold_points=-1.0)
