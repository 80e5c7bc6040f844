"""OverloadShedder: which brokers are above the threshold, and how much moves then."""

import pytest

from policies.shedding.contract import NoMemory, SheddingPlan
from policies.shedding.overload_shedder import POLICY, OverloadShedderSettings
from policies.shedding.view import RoundView
from tests.policies.fleets import (
    Fleet,
    at,
    by_volume,
    decide,
    examined_of,
    snapshot_of,
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


def test_a_fifth_of_what_flows_is_to_move_at_100_percent() -> None:
    """Usage is 1.00 and 0.85 is allowed: 0.15 and a margin of 0.05."""
    plan = shed(
        snapshot_of({"a": at(100, bytes_per_s=100.0, bundles=by_volume(x=9.0, y=1.0)), "b": at(10)}), DEFAULT
    )
    assert plan.examined.evidence_of(0) == pytest.approx(
        {
            "usage_points": 100.0,
            "threshold_points": 85.0,
            "broker_bytes_per_s": 100.0,
            "to_move_bytes_per_s": 20.0,
        }
    )
    assert plan.examined.trigger_of(0) == "overloaded"
