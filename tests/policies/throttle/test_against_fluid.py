"""Minimum, duration and ETA against a fluid that follows Kafka's rule and knows none of our formulas."""

from collections.abc import Sequence
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.throttle.needs import needs_of
from policies.throttle.progress import Watch, eta_of, extend_watch
from policies.throttle.rates import (
    BrokerRole,
    Load,
    RateRule,
    loads_of,
    per_broker_plan,
    plan_at,
    uniform_plan,
)
from tests.policies.throttle.fluid import Copy, copies_of, seconds
from tests.policies.throttle.moving import GB, MB, WORKED_EXAMPLE, Partition
from tests.policies.throttle.moving import copies_of as table_of

ROLES = ("leader:101", "leader:102", "leader:103", "follower:103", "follower:104")
LONG_S = 50_000


def ends_after(
    partitions: Sequence[Partition], rates: dict[str, float], *, most_s: int = LONG_S
) -> int | None:
    """Seconds; None: not within ``most_s``."""
    copies = copies_of(partitions)
    took = sum(1 for _ in islice(seconds(copies, rates), most_s))
    return took if all(copy.is_in_sync for copy in copies) else None


@pytest.mark.parametrize(
    ("rate", "expected"), [(19.2, None), (21.6, None), (26.0, None), (27.0, 42_000), (31.2, 8077)]
)
def test_the_worked_example_ends_when_the_formula_says_or_never(rate: float, expected: int | None) -> None:
    found = ends_after(WORKED_EXAMPLE, dict.fromkeys(ROLES, rate * MB))
    assert found == (None if expected is None else pytest.approx(expected, rel=0.001))


NAMES = [f"t-{number}" for number in range(6)]


@st.composite
def reassignments(draw: st.DrawFn) -> list[Partition]:
    found = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        replicas = draw(st.permutations([1, 2, 3, 4]))[: draw(st.integers(1, 3))]
        target = draw(st.permutations([3, 4, 5, 6]))[: draw(st.integers(1, 3))]
        found.append(
            Partition(name, replicas, target, draw(st.integers(1, 20)), draw(st.integers(500, 1500)))
        )
    return found


@settings(max_examples=15, deadline=None, derandomize=True)
@given(partitions=reassignments(), own=st.booleans())
def test_a_feasible_plan_ends_and_about_when_it_says(partitions: list[Partition], own: bool) -> None:  # noqa: FBT001
    """It never ends before the bottleneck's time and not later than twice that: brokers wait for one another a little."""
    loads = loads_of(needs_of(table_of(*partitions)))
    rule = RateRule(floor_bytes_per_s=1)
    plan = per_broker_plan(loads, rule) if own else uniform_plan(loads, rule).plan
    if not loads or plan.total_s is None:
        return
    rates = {str(role): float(rate or 0) for role, rate in plan.rates.items()}
    found = ends_after(partitions, rates, most_s=round(2 * plan.total_s) + 100)
    assert found is not None
    assert found >= plan.total_s - 1


@settings(max_examples=15, deadline=None, derandomize=True)
@given(partitions=reassignments())
def test_a_rate_at_the_minimum_never_ends(partitions: list[Partition]) -> None:
    needs = needs_of(table_of(*partitions))
    for role, minimum in needs.min_bytes_per_s.items():
        rates = {f"{kind}:{number}": 1e9 for kind in ("leader", "follower") for number in range(7)}
        rates[str(role)] = float(minimum or 0)
        copies = copies_of(partitions)
        for _ in islice(seconds(copies, rates), 200):
            pass
        served = [
            copy
            for copy in copies
            if (copy.leader if role.role == "leader" else copy.follower) == role.broker
        ]
        assert not all(copy.is_in_sync for copy in served)


BACK = (Partition("t-0", [1, 2, 3], [1, 2, 3], 4 * MB, 9 * GB, isr=[1, 2], recovering=[3], missing={3: GB}),)
"""Its followers' traffic is 8 MB/s at leader 1, twice what producers write."""
ON_DISKS = tuple(
    Partition(f"t-{number}", [5, 6], [5, 6], writes * MB, GB, isr=[5, 6], between_disks=[5])
    for number, writes in enumerate((3, 2))
)
"""Both are copied at once, so broker 5 has to copy 5 MB/s, more than is written to either."""


@pytest.mark.parametrize(
    ("partitions", "low", "enough", "expected_s"),
    [(BACK, 6 * MB, 9 * MB, 1000), (ON_DISKS, 4 * MB, 9 * MB, 500)],
    ids=["recovery", "disk"],
)
def test_a_rate_between_the_write_rate_and_the_minimum_never_ends_and_is_refused(
    partitions: Sequence[Partition], low: int, enough: int, expected_s: int
) -> None:
    assert all((row.writes or 0) < low for row in partitions), "the usual rule takes it for enough"
    loads = loads_of(needs_of(table_of(*partitions)))
    for rate, seconds_expected in ((low, None), (enough, expected_s)):
        plan = uniform_plan(loads, RateRule(fixed_bytes_per_s=rate)).plan
        assert (plan.feasible, plan.total_s) == (seconds_expected is not None, seconds_expected)
        rates = dict.fromkeys(map(str, plan.rates), float(rate))
        ends_s = ends_after(partitions, rates, most_s=5_000)
        assert ends_s == (None if seconds_expected is None else pytest.approx(seconds_expected, rel=0.1))


def loads_left(copies: Sequence[Copy]) -> list[Load]:
    """What is left by role, with the minimums of the whole move: finished copies still use their part of them."""
    left: dict[BrokerRole, int] = {}
    for copy in copies:
        for role in (BrokerRole("leader", copy.leader), BrokerRole("follower", copy.follower)):
            left[role] = left.get(role, 0) + round(max(copy.left, 0))
    minimums = {load.role: load.min_bytes_per_s for load in loads_of(needs_of(table_of(*WORKED_EXAMPLE)))}
    return [Load(role=role, bytes_left=size, min_bytes_per_s=minimums[role]) for role, size in left.items()]


@pytest.mark.parametrize("rate", [30 * MB, 40 * MB, 60 * MB])
def test_from_half_a_minute_on_the_eta_is_right_within_a_tenth_three_times_of_four(rate: int) -> None:
    """The other times a partition has just finished, and the slope has just changed."""
    copies = copies_of(WORKED_EXAMPLE)
    watch, explanation = Watch(), []
    for second, _ in enumerate(seconds(copies, dict.fromkeys(ROLES, float(rate)))):
        if second % 10 == 0:
            loads = loads_left(copies)
            plan = plan_at({load.role: rate for load in loads}, loads)
            watch = extend_watch(watch, at_ms=second * 1000, loads=loads, plan=plan, is_changed=False)
            explanation.append((second, eta_of(watch, plan)))
    assert {found.basis for _, found in explanation} - {"done"} == {"predicted", "blended", "observed"}
    checked = [(second - at, found.remaining_s) for at, found in explanation if at >= 30]
    right = [found == pytest.approx(left, rel=0.1, abs=10) for left, found in checked]
    assert len(checked) > 100
    assert sum(right) > 0.75 * len(right)
