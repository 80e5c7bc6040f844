"""UniformLoadShedder: when the busiest broker stands too far above the idlest, and which bundles then fit."""

from dataclasses import replace

import pytest

from policies.shedding.contract import NoMemory, SheddingPlan
from policies.shedding.uniform_load_shedder import POLICY, UniformLoadShedderSettings
from policies.shedding.view import RoundView
from tests.policies.fleets import (
    Broker,
    Bundle,
    Fleet,
    at,
    by_rate,
    by_volume,
    decide,
    examined_of,
    snapshot_of,
    tried_of,
    unloads_of,
)


def shed(view: RoundView, settings: UniformLoadShedderSettings) -> SheddingPlan:
    return decide(POLICY, view, NoMemory(), settings)[0]


DEFAULT = UniformLoadShedderSettings()
ANY = replace(DEFAULT, min_unload_messages_per_s=0.0, min_unload_bytes_per_s=0.0)
"""Settings that move any amount, however little."""
GIB = 2.0**30


def rates(**messages_per_s: float) -> Fleet:
    """Brokers with a message rate each, in two bundles, and equal throughput."""
    return {
        name: at(
            50,
            messages_per_s=rate,
            bytes_per_s=1e6,
            bundles=by_rate(**{f"{name}1": rate / 10, f"{name}2": rate - rate / 10}),
        )
        for name, rate in messages_per_s.items()
    }


def volumes(**bytes_per_s: float) -> Fleet:
    """Brokers with a throughput each, in two bundles, and equal message rates."""
    return {
        name: at(
            50,
            messages_per_s=1000.0,
            bytes_per_s=volume,
            bundles=by_volume(**{f"{name}1": volume / 10, f"{name}2": volume - volume / 10}),
        )
        for name, volume in bytes_per_s.items()
    }


@pytest.mark.parametrize(
    ("fleet", "settings", "expected"),
    [
        pytest.param(
            rates(a=20000, b=10000, c=12000),
            DEFAULT,
            {"a>b": "fired", "c": "not-busiest", "b": "not-busiest"},
            id="100 % above the idlest",
        ),
        pytest.param(
            rates(a=15000, b=10000),
            DEFAULT,
            {"a>b": "below-threshold", "b": "below-threshold"},
            id="exactly 50 % is not above 50 %",
        ),
        pytest.param(rates(a=15003, b=10000), DEFAULT, {"a>b": "fired", "b": "not-busiest"}, id="50.03 % is"),
        pytest.param(
            rates(a=7000, b=2000),
            replace(DEFAULT, rate_difference_percent=0.0),
            {"a>b": "below-threshold", "b": "below-threshold"},
            id="0 switches the rates off",
        ),
        pytest.param(
            rates(a=6999, b=2000),
            replace(DEFAULT, min_unload_messages_per_s=1000.0),
            {"a>b": "below-min-traffic", "b": "not-busiest"},
            id="a fifth of 4999 is 999 whole messages/s, one too few",
        ),
        pytest.param(
            rates(a=7000, b=2000), DEFAULT, {"a>b": "fired", "b": "not-busiest"}, id="1000 is just enough"
        ),
        pytest.param(
            rates(b=9000, a=9000, d=1000, c=1000),
            DEFAULT,
            {"a>c": "fired", "b": "not-busiest", "c": "not-busiest", "d": "not-busiest"},
            id="of equals the first by name",
        ),
        pytest.param(
            volumes(a=5e7, b=1e7),
            DEFAULT,
            {"a>b": "fired", "b": "not-busiest"},
            id="5 times the throughput of the idlest",
        ),
        pytest.param(
            volumes(a=4e7, b=1e7),
            DEFAULT,
            {"a": "below-threshold", "b": "below-threshold"},
            id="exactly 4 times is not more than 4 times",
        ),
        pytest.param(
            volumes(a=9e7, b=1e7),
            replace(DEFAULT, throughput_multiple=0.0),
            {"a": "below-threshold", "b": "below-threshold"},
            id="0 switches the throughput off",
        ),
        pytest.param(
            rates(a=6000, b=0),
            DEFAULT,
            {"a>b": "fired", "b": "not-busiest"},
            id="an idle broker counts as 1 message/s, so 599900 % apart",
        ),
        pytest.param(
            rates(a=0, b=0),
            ANY,
            {"a": "below-threshold", "b": "below-threshold"},
            id="nobody has traffic",
        ),
        pytest.param(rates(a=9000), DEFAULT, {"a": "sole-broker"}, id="nobody to compare with"),
        pytest.param({}, DEFAULT, {}, id="nobody at all"),
    ],
)
def test_the_busiest_is_compared_with_the_idlest(
    fleet: Fleet, settings: UniformLoadShedderSettings, expected: dict[str, str]
) -> None:
    snapshot = snapshot_of(fleet)
    examined = examined_of(snapshot, shed(snapshot, settings))
    assert examined == expected
    assert list(examined) == list(expected)


def test_the_rate_comes_first_and_too_little_of_it_hides_the_throughput() -> None:
    loud = Broker(messages_per_s=400.0, bytes_per_s=1e9, bundles=by_volume(x=1e8, y=1e7))
    snapshot = snapshot_of({"a": loud, "b": Broker(messages_per_s=100.0, bytes_per_s=1e6)})
    plan = shed(snapshot, DEFAULT)
    assert examined_of(snapshot, plan) == {"a>b": "below-min-traffic", "b": "not-busiest"}
    deaf = replace(DEFAULT, rate_difference_percent=0.0)
    assert unloads_of(snapshot, shed(snapshot, deaf)) == [("x", "a", None), ("y", "a", None)]


def test_rate_and_throughput_may_point_at_different_brokers() -> None:
    fleet = {
        "a": Broker(messages_per_s=9000.0, bytes_per_s=1e6, bundles=by_rate(x=1000.0, y=8000.0)),
        "b": Broker(messages_per_s=1000.0, bytes_per_s=9e7, bundles=by_volume(v=1e6, w=8.9e7)),
    }
    snapshot = snapshot_of(fleet)
    by_rates = shed(snapshot, DEFAULT)
    assert (unloads_of(snapshot, by_rates), by_rates.examined.trigger_of(0)) == (
        [("x", "a", None)],
        "rate-difference",
    )
    by_volumes = shed(snapshot, replace(DEFAULT, rate_difference_percent=0.0))
    assert (unloads_of(snapshot, by_volumes), by_volumes.examined.trigger_of(0)) == (
        [("v", "b", None)],
        "throughput-multiple",
    )


@pytest.mark.parametrize(
    ("bundles", "limit", "expected"),
    [
        pytest.param(
            by_rate(w=900.0, x=2500.0, y=1200.0, z=700.0),
            -1,
            {"x": "too-big", "y": "acted", "w": "need-met", "z": "acted"},
            id="each from the biggest that still fits",
        ),
        pytest.param(by_rate(x=2000.0, y=1.0), -1, {"x": "acted", "y": "need-met"}, id="an exact fit fits"),
        pytest.param(
            by_rate(x=2000.5, y=1999.0), -1, {"x": "too-big", "y": "acted"}, id="half a message too much"
        ),
        pytest.param(
            by_rate(x=1999.9, y=0.9, z=0.8),
            -1,
            {"x": "acted", "y": "acted", "z": "acted"},
            id="whole messages are subtracted: of 1999.9 only 1999, of 0.9 nothing",
        ),
        pytest.param(
            by_rate(x=2000.0, y=0.0, z=0.0),
            -1,
            {"x": "acted", "y": "acted", "z": "acted"},
            id="bundles without traffic always fit, as in Pulsar",
        ),
        pytest.param(
            by_rate(x=900.0, y=500.0, z=400.0),
            2,
            {"x": "acted", "y": "acted", "z": "bundle-limit"},
            id="at most as many as the limit",
        ),
        pytest.param(
            by_rate(masked="x", x=900.0, y=800.0, z=700.0),
            1,
            {"x": "masked", "y": "acted", "z": "bundle-limit"},
            id="a masked bundle does not count towards the limit",
        ),
        pytest.param(
            by_rate(c=900.0, a=900.0, b=900.0),
            -1,
            {"a": "acted", "b": "acted", "c": "need-met"},
            id="equal bundles by name",
        ),
    ],
)
def test_bundles_move_while_they_fit(
    bundles: dict[str, Bundle], limit: int, expected: dict[str, str]
) -> None:
    """12000 against 2000 messages/s: a fifth of the difference is 2000."""
    fleet = {"a": at(50, messages_per_s=12000.0, bundles=bundles), "b": at(50, messages_per_s=2000.0)}
    snapshot = snapshot_of(fleet)
    plan = shed(snapshot, replace(DEFAULT, max_unload_bundles_count=limit))
    tried = tried_of(snapshot, plan)
    assert tried == expected
    assert list(tried) == list(expected)
    assert unloads_of(snapshot, plan) == [(key, "a", None) for key, why in expected.items() if why == "acted"]


def test_the_evidence_says_what_was_compared_and_what_would_move() -> None:
    fleet = {"a": at(50, messages_per_s=12000.0, bytes_per_s=3e6), "b": at(50, messages_per_s=2000.0)}
    plan = shed(snapshot_of(fleet), DEFAULT)
    assert plan.examined.evidence_of(0) == {
        "broker_messages_per_s": 12000.0,
        "lowest_messages_per_s": 2000.0,
        "difference_percent": 500.0,
        "allowed_difference_percent": 50.0,
        "to_move_messages_per_s": 2000.0,
        "broker_bytes_per_s": 3e6,
        "lowest_bytes_per_s": 1.0,
        "throughput_multiple": 3e6,
        "allowed_throughput_multiple": 4.0,
        "to_move_bytes_per_s": 599999.0,
    }


@pytest.mark.parametrize(
    ("listed_count", "outcome"),
    [pytest.param(1, "sole-bundle", id="alone"), pytest.param(2, "fired", id="two")],
)
def test_the_only_bundle_stays_unless_a_heartbeat_is_listed_beside_it(
    listed_count: int, outcome: str
) -> None:
    busy = at(50, messages_per_s=12000.0, bundles=by_rate(x=100.0), listed_count=listed_count)
    snapshot = snapshot_of({"a": busy, "b": at(50, messages_per_s=2000.0)})
    assert shed(snapshot, DEFAULT).examined.outcome_of(0) == outcome


def test_above_2_gib_per_s_everywhere_a_balanced_fleet_fires_as_in_pulsar() -> None:
    """The throughput of the idlest broker is then taken as 2147483647 bytes/s, and 9 GiB/s are more than 4 times that."""
    snapshot = snapshot_of(volumes(a=9 * GIB, b=9 * GIB))
    plan = shed(snapshot, DEFAULT)
    assert plan.examined.evidence_of(0)["lowest_bytes_per_s"] == 2147483647.0
    assert unloads_of(snapshot, plan) == [("a1", "a", None)]


def test_no_more_than_2_gib_per_s_move_at_once_as_in_pulsar() -> None:
    snapshot = snapshot_of(volumes(a=30 * GIB, b=1 * GIB))
    plan = shed(snapshot, replace(DEFAULT, max_unload_ratio=0.5))
    assert plan.examined.evidence_of(0)["to_move_bytes_per_s"] == 2147483647.0
    assert tried_of(snapshot, plan) == {"a2": "too-big", "a1": "too-big"}
