"""What always holds for the predicted end of a running move, whatever the reports show."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.throttle.progress import Eta, Watch, eta_of, extend_watch
from policies.throttle.rates import BrokerRole, Load, RatePlan

CHECKED = settings(max_examples=40, deadline=None, derandomize=True)
ROLES = [
    BrokerRole("leader", 1),
    BrokerRole("leader", 2),
    BrokerRole("follower", 2),
    BrokerRole("follower", 3),
]
steps_ms = st.lists(st.integers(500, 60_000), min_size=1, max_size=40)
predictions = st.none() | st.floats(0, 10**7)


def plan(total_s: float | None, bottleneck: BrokerRole | None) -> RatePlan:
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
        found = eta_of(watch, plan(truth_s * predicted_ratio, ROLES[2]))
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
    return eta_of(watch, plan(predicted_s, bottleneck))


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
