"""What the shedders share: the order in which bundles are taken, and settings that they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from policies.columns import Code
from policies.shedding import overload_shedder, threshold_shedder
from policies.shedding.avg_shedder import AvgShedderSettings
from policies.shedding.contract import NoMemory, SheddingPlan
from policies.shedding.overload_shedder import OverloadShedderSettings
from policies.shedding.threshold_shedder import ThresholdShedderMemory, ThresholdShedderSettings
from policies.shedding.uniform_load_shedder import UniformLoadShedderSettings
from policies.shedding.view import RoundView
from tests.policies.fleets import Bundle, at, by_volume, decide, snapshot_of, tried_of, unloads_of

Decide = Callable[[RoundView], SheddingPlan]


def by_threshold(view: RoundView) -> SheddingPlan:
    """Usage 75 against a mean of 50 and a threshold of 12.5: 0.175 of what flows is to move."""
    settings = ThresholdShedderSettings(threshold_points=12.5, history_ratio=0.0, min_unload_bytes_per_s=0.0)
    return decide(threshold_shedder.POLICY, view, ThresholdShedderMemory(), settings)[0]


def by_overload(view: RoundView) -> SheddingPlan:
    """Usage 75 where 62.5 is allowed, and a margin of 5: 0.175 of what flows is to move."""
    settings = OverloadShedderSettings(threshold_points=62.5)
    return decide(overload_shedder.POLICY, view, NoMemory(), settings)[0]


def test_codes_are_numbered_in_order_and_do_not_widen_the_columns_they_are_compared_with() -> None:
    kinds = Code.__subclasses__()
    assert len(kinds) > 3
    for kind in kinds:
        codes = [getattr(kind, name.upper().replace("-", "_")) for name in kind.names()]
        assert codes == list(range(len(codes)))
        assert all(np.result_type(np.int8, code) == np.int8 for code in codes)


BIGGEST_FIRST = pytest.mark.parametrize("decide_on", [by_threshold, by_overload])


@BIGGEST_FIRST
@pytest.mark.parametrize(
    ("bundles", "listed_count", "expected"),
    [
        pytest.param(
            by_volume(w=5.0, x=30.0, y=9.0, z=20.0),
            4,
            {"x": "acted", "z": "acted", "y": "need-met", "w": "need-met"},
            id="the biggest first until the need is met",
        ),
        pytest.param(
            by_volume(x=35.0, y=1.0), 2, {"x": "acted", "y": "need-met"}, id="a need met exactly is met"
        ),
        pytest.param(
            by_volume(x=34.5, y=1.0, z=0.5),
            3,
            {"x": "acted", "y": "acted", "z": "need-met"},
            id="the last bundle may overshoot",
        ),
        pytest.param(
            by_volume(x=100.0, y=1.0), 2, {"x": "acted", "y": "need-met"}, id="a bundle above the need moves"
        ),
        pytest.param(
            by_volume(x=0.0, y=0.0), 2, {"x": "acted", "y": "acted"}, id="bundles without traffic move too"
        ),
        pytest.param(
            by_volume(c=20.0, a=20.0, b=20.0),
            3,
            {"a": "acted", "b": "acted", "c": "need-met"},
            id="equal bundles are taken by name",
        ),
        pytest.param(
            by_volume(masked="x", x=90.0, y=40.0, z=30.0),
            3,
            {"x": "masked", "y": "acted", "z": "need-met"},
            id="a masked bundle never moves and meets no need",
        ),
        pytest.param(
            by_volume(masked="z", x=40.0, z=30.0),
            2,
            {"x": "acted", "z": "masked"},
            id="masked even behind the need",
        ),
        pytest.param(
            by_volume(masked="x y", x=90.0, y=1.0), 2, {"x": "masked", "y": "masked"}, id="all are masked"
        ),
        pytest.param(by_volume(x=40.0), 1, {}, id="the only bundle stays"),
        pytest.param(
            by_volume(x=40.0), 2, {"x": "acted"}, id="a listed heartbeat bundle counts, as it does in Pulsar"
        ),
        pytest.param({}, 0, {}, id="a broker without bundles has nothing to move"),
    ],
)
def test_the_biggest_bundles_move_until_the_need_is_met(
    decide_on: Decide, bundles: dict[str, Bundle], listed_count: int, expected: dict[str, str]
) -> None:
    """The need is 35 of 200 bytes/s."""
    view = snapshot_of(
        {"a": at(75, bytes_per_s=200.0, bundles=bundles, listed_count=listed_count), "b": at(25)}
    )
    plan = decide_on(view)
    assert list(tried_of(view, plan).items()) == list(expected.items())
    acted = [name for name, why in expected.items() if why == "acted"]
    assert unloads_of(view, plan) == [(name, "a", None) for name in acted]
    assert plan.examined.outcome_of(0) == ("fired" if listed_count > 1 else "sole-bundle")


@BIGGEST_FIRST
def test_at_least_one_bundle_moves_even_where_nothing_flows(decide_on: Decide) -> None:
    view = snapshot_of({"a": at(75, bundles=by_volume(x=5.0, y=9.0)), "b": at(25)})
    assert unloads_of(view, decide_on(view)) == [("y", "a", None)]


@pytest.mark.parametrize(
    ("settings", "wrong", "message"),
    [
        (
            AvgShedderSettings,
            {"low_threshold_points": 50.0},
            "the low threshold must not exceed the high one",
        ),
        (AvgShedderSettings, {"max_unload_ratio": 1.5}, "max_unload_ratio is 1.5; expected from 0 to 1"),
        (
            OverloadShedderSettings,
            {"threshold_points": -1.0},
            "threshold_points is -1.0; expected 0 or more",
        ),
        (ThresholdShedderSettings, {"history_ratio": 1.1}, "history_ratio is 1.1; expected from 0 to 1"),
        (
            UniformLoadShedderSettings,
            {"rate_difference_percent": -1.0},
            r"rate_difference_percent is -1.0; expected 0 or more \(0 switches it off\)",
        ),
        (
            UniformLoadShedderSettings,
            {"throughput_multiple": -1.0},
            r"throughput_multiple is -1.0; expected 0 or more \(0 switches it off\)",
        ),
        (
            UniformLoadShedderSettings,
            {"max_unload_ratio": 1.5},
            "max_unload_ratio is 1.5; expected from 0 to 1",
        ),
        (
            UniformLoadShedderSettings,
            {"max_unload_bundles_count": 0},
            r"max_unload_bundles_count is 0; expected 1 or more, or -1 \(no limit\)",
        ),
        (
            UniformLoadShedderSettings,
            {"max_unload_bundles_count": -2},
            r"max_unload_bundles_count is -2; expected 1 or more, or -1 \(no limit\)",
        ),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: Any, wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**wrong)
