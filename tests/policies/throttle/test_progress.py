"""The end of a running move: first as predicted, then as observed, and how sure that is."""

from collections.abc import Mapping, Sequence

import pytest

from policies.throttle.progress import SAMPLES_MAX, Eta, Watch, eta_of, watched
from policies.throttle.rates import BrokerRole, Load, RatePlan


def watch(*lefts: dict[int, int | None], step_ms: int = 10_000) -> Watch:
    found = Watch()
    for place, left in enumerate(lefts):
        found = watched(found, at_ms=1_000_000 + place * step_ms, loads=loads(left), is_changed=False)
    return found


def plan(total_s: float | None, bottleneck: BrokerRole | None = None) -> RatePlan:
    """Of which only the end and the bottleneck count."""
    return RatePlan(
        rates={}, feasible=True, violations=(), durations_s={}, total_s=total_s, bottleneck=bottleneck
    )


def loads(left: Mapping[int, int | None]) -> list[Load]:
    """Followers by their id; below 0, leaders."""
    return [
        Load(
            role=BrokerRole("leader" if broker < 0 else "follower", abs(broker)),
            bytes_left=size,
            min_bytes_per_s=0,
        )
        for broker, size in left.items()
    ]


def one(*lefts: int) -> Watch:
    return watch(*({1: left} for left in lefts))


@pytest.mark.parametrize(
    ("seen", "predicted", "expected"),
    [
        (Watch(), None, (None, "unknown")),
        (one(1000), 50.0, (50.0, "predicted")),
        (one(1000, 900), 50.0, (50.0, "predicted")),
        (one(1000, 900), None, (90.0, "observed")),
        (one(1000, 900, 800), 50.0, (80.0, "observed")),
        (watch({1: 1000}, {1: 850}, step_ms=15_000), 50.0, (0.5 * 50 + 0.5 * 85, "blended")),
        (one(1000, 400, 300), 50.0, (30.0, "observed")),
        (one(1000, 1000, 1000), 50.0, (None, "not-catching-up")),
        (one(1000, 1100, 1200), 50.0, (None, "not-catching-up")),
        (one(1000, 500, 0), 50.0, (0.0, "done")),
        (watch({1: 1000, 2: 100}, {1: 900, 2: 50}, {1: 800, 2: 0}), 50.0, (80.0, "observed")),
        (watch({1: 1000}, {1: None}, {1: 700}), 50.0, (70 / 3 * 2, "observed")),
    ],
)
def test_the_prediction_goes_over_into_the_observed_slope(
    seen: Watch, predicted: float | None, expected: tuple[float | None, str]
) -> None:
    found = eta_of(seen, plan(predicted))
    assert found.basis == expected[1]
    assert found.remaining_s == (None if expected[0] is None else pytest.approx(expected[0]))


def test_what_the_full_quota_window_let_through_at_once_is_left_out_of_the_slope() -> None:
    assert eta_of(one(10_000, 1000, 900, 800), None).slopes_bytes_per_s == {"follower:1": 10.0}


def test_how_sure_it_is_stands_beside_it() -> None:
    found = eta_of(one(1000, 900, 850, 700), None)
    assert (found.observed_low_s, found.observed_high_s) == (700 / 15, 140.0)
    assert eta_of(one(1000, 900, 900, 700), None).observed_high_s is None


@pytest.mark.parametrize("lefts", [[1000, 900, 800], [1000 - 7 * step for step in range(100)]])
def test_the_newest_samples_are_kept(lefts: Sequence[int]) -> None:
    assert len(one(*lefts).samples) == min(len(lefts), SAMPLES_MAX)


def test_a_change_begins_anew() -> None:
    seen = watched(one(1000, 900, 800), at_ms=1_030_000, loads=loads({1: 700}), is_changed=True)
    assert eta_of(seen, plan(30.0)) == Eta(
        remaining_s=30.0, basis="predicted", predicted_s=30.0, observed_s=None, observed_weight_ratio=0.0
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (watch({1: 1000, -9: 500}, {1: 900, -9: 480}, {1: 800, -9: 460}), (230.0, "observed")),
        (watch({1: 1000, -9: 500}, {1: 900, -9: 10}, {1: 800, -9: 600}), (80.0, "observed")),
        (watch({1: 1000, -9: 500}, {1: 1000, -9: 480}, {1: 1000, -9: 460}), (None, "not-catching-up")),
    ],
    ids=["its own slope", "a leader that took over: the slowest follower", "a follower that stands still"],
)
def test_the_bottleneck_decides_unless_a_follower_stands_still(
    seen: Watch, expected: tuple[float | None, str]
) -> None:
    found = eta_of(seen, plan(50.0, BrokerRole("leader", 9)))
    assert (found.remaining_s, found.basis) == expected
