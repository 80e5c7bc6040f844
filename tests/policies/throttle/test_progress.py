"""The predicted end of a running move, by example and whatever the reports show."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.throttle.progress import (
    OBSERVED_AFTER_MS,
    SAMPLES_MAX,
    Eta,
    Sample,
    Watch,
    eta_of,
    extend_watch,
)
from policies.throttle.rates import BrokerRole, Load, RatePlan


def watch(*lefts: dict[int, int | None], step_ms: int = 10_000) -> Watch:
    found = Watch()
    for place, left in enumerate(lefts):
        found = extend_watch(
            found, at_ms=1_000_000 + place * step_ms, loads=loads(left), plan=None, is_changed=False
        )
    return found


def plan(total_s: float | None, bottleneck: BrokerRole | None = None) -> RatePlan:
    """A plan of which only the end and the bottleneck matter."""
    return RatePlan(
        rates={}, feasible=True, violations=(), durations_s={}, total_s=total_s, bottleneck=bottleneck
    )


def loads(left: Mapping[int, int | None]) -> list[Load]:
    """Bytes left by broker id: a positive id is a follower, a negative one a leader."""
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


def settled(first: dict[int, int | None], last: dict[int, int | None]) -> Watch:
    """A watch whose moments are so far apart that only the slope counts."""
    return watch(first, first, last, step_ms=50_000)


@pytest.mark.parametrize(
    ("seen", "predicted", "expected"),
    [
        (Watch(), None, (None, "unknown")),
        (one(1000), 50.0, (50.0, "predicted")),
        (one(1000, 900), 50.0, (50.0, "predicted")),
        (one(1000, 900), None, (None, "unknown")),
        (one(1000, 900, 800), 50.0, (1 / (0.8 / 50 + 0.2 / 80), "blended")),
        (one(1000, 900, 800, 700), 50.0, (1 / (0.6 / 50 + 0.4 / 70), "blended")),
        (one(1000, 900, 800, 700, 600, 500, 400), 30.0, (40.0, "observed")),
        (one(1000, 900, 800), None, (80.0, "observed")),
        (one(1000, 400, 300), None, (30.0, "observed")),
        (one(1000, 1000, 1000), 50.0, (50 / 0.8, "blended")),
        (one(1000, 1000, 1000, 1000, 1000, 1000, 1000), 50.0, (None, "not-catching-up")),
        (one(1000, 1100, 1200, 1300, 1400, 1500, 1600), 50.0, (None, "not-catching-up")),
        (one(1000, 1100, 1200), None, (None, "not-catching-up")),
        (one(1000, 1000, 1000, 1000), 50.0, (50 / 0.6, "blended")),
        (one(1000, 1000, 1000, 1000, 1000), 50.0, (None, "not-catching-up")),
        (one(1000, 500, 0), 50.0, (0.0, "done")),
        (watch({1: 1000, 2: 100}, {1: 900, 2: 50}, {1: 800, 2: 0}), None, (80.0, "observed")),
        (watch({1: 1000}, {1: 800}, {1: None}, {1: 700}), None, (70 * 2, "observed")),
    ],
)
def test_the_prediction_goes_over_into_the_observed_slope(
    seen: Watch, predicted: float | None, expected: tuple[float | None, str]
) -> None:
    found = eta_of(seen, plan(predicted))
    assert found.basis == expected[1]
    assert found.remaining_s == (None if expected[0] is None else pytest.approx(expected[0]))


def test_the_first_seconds_in_which_the_quota_window_fills_are_left_out_of_the_slope() -> None:
    assert eta_of(one(10_000, 1000, 900, 800), None).slopes_bytes_per_s == {BrokerRole("follower", 1): 10.0}


def test_the_slope_is_the_line_through_all_samples() -> None:
    found = eta_of(one(0, 900, 820, 680, 600), None).slopes_bytes_per_s[BrokerRole("follower", 1)]
    assert found == pytest.approx((15 * 900 + 5 * 820 - 5 * 680 - 15 * 600) / (2 * 15**2 + 2 * 5**2))


def test_how_sure_it_is_stands_beside_it() -> None:
    found = eta_of(one(1000, 1000, 900, 850, 700), None)
    assert (found.observed_low_s, found.observed_high_s) == (700 / 15, 140.0)
    assert eta_of(one(1000, 1000, 900, 900, 700), None).observed_high_s is None


@pytest.mark.parametrize("step_ms", [1000, 3000, 5000, 6000, 10_000, 30_000, 60_000])
def test_the_newest_samples_are_kept_and_cover_what_counts_alone_whatever_a_round_takes(step_ms: int) -> None:
    seen = Watch()
    for step in range(200):
        at_ms, left = 1_000_000 + step * step_ms, 10**6 - 7 * step
        seen = extend_watch(seen, at_ms=at_ms, loads=loads({1: left}), plan=None, is_changed=False)
        assert seen.samples[-1] == Sample(at_ms, {BrokerRole("follower", 1): left})
        assert len(seen.samples) <= SAMPLES_MAX
        assert step < 100 or seen.samples[-1].at_ms - seen.samples[0].at_ms >= OBSERVED_AFTER_MS


def test_a_bottleneck_that_is_done_does_not_end_a_move_that_goes_on() -> None:
    seen = replace(settled({1: 400, 2: 1000}, {1: 0, 2: 500}), bottleneck=BrokerRole("follower", 1))
    for at_these_rates in (plan(None), None, plan(20.0, BrokerRole("follower", 1))):
        assert eta_of(seen, at_these_rates).remaining_s == 50.0


def test_a_bottleneck_is_not_kept_while_nobody_knows_who_is_the_last() -> None:
    seen = replace(settled({1: 900, 2: 1000}, {1: 10, 2: 500}), bottleneck=BrokerRole("follower", 1))
    assert eta_of(seen, plan(None)).remaining_s == 50.0


def test_a_change_begins_anew() -> None:
    seen = extend_watch(
        one(1000, 900, 800), at_ms=1_030_000, loads=loads({1: 700}), plan=None, is_changed=True
    )
    assert eta_of(seen, plan(30.0)) == Eta(
        remaining_s=30.0, basis="predicted", predicted_s=30.0, observed_s=None, observed_weight_ratio=0.0
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (settled({1: 900, -9: 480}, {1: 500, -9: 400}), (250.0, "observed")),
        (settled({1: 900, -9: 10}, {1: 500, -9: 600}), (62.5, "observed")),
        (settled({1: 900, -9: 480}, {1: 900, -9: 400}), (None, "not-catching-up")),
    ],
    ids=["its own slope", "a leader that took over: the slowest follower", "a follower that stands still"],
)
def test_the_bottleneck_decides_unless_a_follower_stands_still(
    seen: Watch, expected: tuple[float | None, str]
) -> None:
    found = eta_of(seen, plan(30.0, BrokerRole("leader", 9)))
    assert (found.remaining_s, found.basis) == expected


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({1: 90.0, 2: 100.0}, (5, BrokerRole("follower", 1))),
        ({1: 60.0, 2: 100.0}, (1, BrokerRole("follower", 2))),
        ({1: 0.0, 2: 100.0}, (1, BrokerRole("follower", 2))),
        ({1: 100.0, 2: 10.0}, (5, BrokerRole("follower", 1))),
    ],
    ids=["about as long", "much sooner done", "done", "still the last"],
)
def test_the_slope_of_a_role_that_was_kept_waiting_says_nothing_of_its_pace(
    later: Mapping[int, float], expected: tuple[int, str]
) -> None:
    found = Watch()
    for place in range(6):
        durations = {1: 100.0, 2: 50.0} if place < 5 else later
        found = extend_watch(
            found,
            at_ms=1_000_000 + place * 10_000,
            loads=loads({1: 1000 - place, 2: 500 - place}),
            plan=plan_of(durations),
            is_changed=False,
        )
    assert (len(found.samples), found.bottleneck) == expected
    assert found.samples[-1].at_ms == 1_050_000


def plan_of(durations_s: Mapping[int, float]) -> RatePlan:
    """A plan with these durations of followers; the longest is the bottleneck."""
    roles = {BrokerRole("follower", broker): seconds for broker, seconds in durations_s.items()}
    last = max(roles, key=lambda role: roles[role])
    return RatePlan(
        rates={}, feasible=True, violations=(), durations_s=roles, total_s=roles[last], bottleneck=last
    )


CHECKED = settings(max_examples=40, deadline=None, derandomize=True)
ROLES = [
    BrokerRole("leader", 1),
    BrokerRole("leader", 2),
    BrokerRole("follower", 2),
    BrokerRole("follower", 3),
]
steps_ms = st.lists(st.integers(500, 60_000), min_size=1, max_size=40)
predictions = st.none() | st.floats(0, 10**7)


def plan_of_seed(total_s: float | None, bottleneck: BrokerRole | None) -> RatePlan:
    return RatePlan(
        rates={}, feasible=True, violations=(), durations_s={}, total_s=total_s, bottleneck=bottleneck
    )


def load(role: BrokerRole, left: int | None) -> Load:
    return Load(role=role, bytes_left=left, min_bytes_per_s=0)


def is_within(found: float, one: float, other: float) -> bool:
    return min(one, other) * (1 - 1e-6) <= found <= max(one, other) * (1 + 1e-6)


@CHECKED
@given(
    steps=steps_ms,
    bytes_per_ms=st.integers(1, 10**6),
    credit=st.integers(0, 10**9),
    predicted_ratio=st.floats(0.2, 5),
)
def test_at_a_steady_pace_it_goes_from_the_prediction_to_the_truth_and_stays_there(
    steps: list[int], bytes_per_ms: int, credit: int, predicted_ratio: float
) -> None:
    """``credit``: bytes that are let through at once at the start."""
    total_ms, now_ms, watch, observed_ms = sum(steps) + 1000, 0, Watch(), 0
    watch = extend_watch(
        watch, at_ms=0, loads=[load(ROLES[2], total_ms * bytes_per_ms + credit)], plan=None, is_changed=True
    )
    settled_ms: int | None = None
    for step in steps:
        now_ms += step
        left = (total_ms - now_ms) * bytes_per_ms
        watch = extend_watch(watch, at_ms=now_ms, loads=[load(ROLES[2], left)], plan=None, is_changed=False)
        if settled_ms is None and now_ms >= 10_000:
            settled_ms = now_ms
        observed_ms = 0 if settled_ms is None else now_ms - settled_ms
        truth_s = (total_ms - now_ms) / 1000
        found = eta_of(watch, plan_of_seed(truth_s * predicted_ratio, ROLES[2]))
        assert found.remaining_s is not None
        assert is_within(found.remaining_s, truth_s, truth_s * predicted_ratio)
        assert (found.basis == "predicted") == (observed_ms == 0)
        if observed_ms >= 50_000:
            assert found.basis == "observed"
            assert is_within(found.remaining_s, truth_s, truth_s)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, dict[BrokerRole, int | None]]]:
    """What is left at some moments, in any order of the roles; None is unknown."""
    amounts = st.integers(0, 2**63 - 1) | st.integers(0, 3) | st.none()
    at_ms, found = 0, []
    for step in draw(steps_ms):
        at_ms += step
        roles = draw(st.permutations(draw(st.sampled_from([ROLES, ROLES[:3], ROLES[2:]]))))
        found.append((at_ms, {role: draw(amounts) for role in roles}))
    return found


def end_of(
    history: list[tuple[int, dict[BrokerRole, int | None]]],
    *,
    predicted_s: float | None,
    bottleneck: BrokerRole | None,
    turned: bool = False,
) -> Eta:
    watch = Watch()
    for at_ms, lefts in history:
        rows = [load(role, left) for role, left in lefts.items()]
        watch = extend_watch(
            watch, at_ms=at_ms, loads=reversed(rows) if turned else rows, plan=None, is_changed=False
        )
    return eta_of(watch, plan_of_seed(predicted_s, bottleneck))


@CHECKED
@given(history=histories(), predicted_s=predictions, bottleneck=st.none() | st.sampled_from(ROLES))
def test_it_is_never_negative_and_does_not_depend_on_the_order_of_roles(
    history: list[tuple[int, dict[BrokerRole, int | None]]],
    predicted_s: float | None,
    bottleneck: BrokerRole | None,
) -> None:
    found = end_of(history, predicted_s=predicted_s, bottleneck=bottleneck)
    assert found.remaining_s is None or 0 <= found.remaining_s < float("inf")
    assert (found.remaining_s is None) == (found.basis in {"unknown", "not-catching-up"})
    assert 0 <= found.observed_weight_ratio <= 1
    assert end_of(history, predicted_s=predicted_s, bottleneck=bottleneck, turned=True) == found


@CHECKED
@given(history=histories())
def test_of_unknown_bytes_nothing_is_made_up(
    history: list[tuple[int, dict[BrokerRole, int | None]]],
) -> None:
    known = [lefts for _, lefts in history if None not in lefts.values()]
    assume(len(known) < 2)
    found = end_of(history, predicted_s=None, bottleneck=None)
    assert found.basis == ("done" if known and not any(known[0].values()) else "unknown")
