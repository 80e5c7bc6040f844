"""What holds for every policy whatever the fleet: Hypothesis looks for a counterexample."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.columns import count_codes
from policies.shedding import avg_shedder, overload_shedder, threshold_shedder, uniform_load_shedder
from policies.shedding.avg_shedder import AvgShedderMemory, AvgShedderSettings
from policies.shedding.contract import BUNDLE_OUTCOMES, NoMemory, SheddingPlan
from policies.shedding.overload_shedder import OverloadShedderSettings
from policies.shedding.threshold_shedder import ThresholdShedderMemory, ThresholdShedderSettings
from policies.shedding.uniform_load_shedder import UniformLoadShedderSettings
from policies.shedding.view import RoundView
from tests.policies.fleets import Broker, Bundle, Fleet, decide, snapshot_of, unloads_of

AVG = AvgShedderSettings(
    low_hit_count=1, high_hit_count=1, min_unload_messages_per_s=2.0, min_unload_bytes_per_s=1.0
)
THRESHOLD = ThresholdShedderSettings(min_unload_bytes_per_s=0.5, lower_boundary_shedding=True)
OVERLOAD = OverloadShedderSettings(threshold_points=60.0)
UNIFORM = UniformLoadShedderSettings(min_unload_messages_per_s=1.0, min_unload_bytes_per_s=1.0)
CHECKED = settings(max_examples=40, deadline=None, derandomize=True)
TIMES_1024 = 1024.0
"""A power of two, so that scaling traffic is exact in binary floating point."""


@dataclass(frozen=True)
class Policy:
    """One policy with its settings, ready to decide on a fleet and a memory."""

    name: str
    decide: Callable[["Case", Fleet, float], tuple[RoundView, SheddingPlan, object]]


@dataclass(frozen=True)
class Case:
    """A fleet and what the policies with a memory remember of it."""

    fleet: Fleet
    avg: AvgShedderMemory
    threshold: ThresholdShedderMemory


def decide_avg(case: Case, fleet: Fleet, scale: float) -> tuple[RoundView, SheddingPlan, object]:
    snapshot = snapshot_of(fleet)
    minimums = replace(
        AVG,
        min_unload_messages_per_s=AVG.min_unload_messages_per_s * scale,
        min_unload_bytes_per_s=AVG.min_unload_bytes_per_s * scale,
    )
    return (snapshot, *decide(avg_shedder.POLICY, snapshot, case.avg, minimums))


def decide_threshold(case: Case, fleet: Fleet, scale: float) -> tuple[RoundView, SheddingPlan, object]:
    snapshot = snapshot_of(fleet)
    minimums = replace(THRESHOLD, min_unload_bytes_per_s=THRESHOLD.min_unload_bytes_per_s * scale)
    return (snapshot, *decide(threshold_shedder.POLICY, snapshot, case.threshold, minimums))


def decide_overload(case: Case, fleet: Fleet, scale: float) -> tuple[RoundView, SheddingPlan, object]:  # noqa: ARG001
    snapshot = snapshot_of(fleet)
    return snapshot, decide(overload_shedder.POLICY, snapshot, NoMemory(), OVERLOAD)[0], None


def decide_uniform(case: Case, fleet: Fleet, scale: float) -> tuple[RoundView, SheddingPlan, object]:  # noqa: ARG001
    snapshot = snapshot_of(fleet)
    return snapshot, decide(uniform_load_shedder.POLICY, snapshot, NoMemory(), UNIFORM)[0], None


UNITLESS = [
    Policy("avg-shedder", decide_avg),
    Policy("threshold-shedder", decide_threshold),
    Policy("overload-shedder", decide_overload),
]
"""Policies that only compare: UniformLoadShedder counts whole messages and bytes, as Pulsar does."""
ALL = pytest.mark.parametrize(
    "policy", [*UNITLESS, Policy("uniform-load-shedder", decide_uniform)], ids=lambda p: p.name
)

NAMES = st.sampled_from(["b", "a", "broker-9", "broker-10", "é", "B", "a:1"])
TRAFFIC = st.one_of(st.integers(0, 8).map(float), st.floats(0.0, 1e9, allow_subnormal=False))
POINTS = st.one_of(st.integers(0, 14).map(lambda step: step * 10.0), st.floats(0.0, 200.0))
BUNDLES = st.sampled_from(
    [
        Bundle(messages_per_s=messages, bytes_per_s=volume, movable=movable)
        for messages in (3.0, 0.0, 1.0, 2.5, 7.0, 1 / 3, 4e8)
        for volume in (2.0, 0.0, 1.0, 5e7, 0.1)
        for movable in (True, True, False)
    ]
)
"""One draw a bundle: drawing each number by itself takes most of the time."""


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    bundles = draw(st.dictionaries(NAMES, BUNDLES, max_size=5))
    return Broker(
        usage={
            "cpu": (draw(POINTS), 100.0),
            "bandwidth-in": (draw(POINTS), draw(st.sampled_from([0.0, 60.0]))),
        },
        messages_per_s=draw(TRAFFIC),
        bytes_per_s=draw(TRAFFIC),
        bundles=bundles,
        listed_count=len(bundles) + draw(st.integers(0, 1)),
        may_receive=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fleet = {
        name: replace(broker, bundles={f"{name}/{key}": bundle for key, bundle in broker.bundles.items()})
        for name, broker in draw(st.dictionaries(NAMES, brokers(), max_size=5)).items()
    }
    names = st.sampled_from([*fleet, "gone"])
    hits = st.dictionaries(names, st.integers(1, 9), max_size=3)
    history = draw(st.dictionaries(names, st.floats(0.0, 2.0), max_size=4))
    return Case(
        fleet,
        AvgShedderMemory(low_hits=draw(hits), high_hits=draw(hits)),
        ThresholdShedderMemory(history_ratio=history),
    )


@ALL
@given(case=cases(), data=st.data())
@CHECKED
def test_the_order_of_the_input_does_not_matter(policy: Policy, case: Case, data: st.DataObject) -> None:
    shuffled = {
        name: replace(
            case.fleet[name], bundles=dict(data.draw(st.permutations(list(case.fleet[name].bundles.items()))))
        )
        for name in data.draw(st.permutations(list(case.fleet)))
    }
    snapshot, plan, memory = policy.decide(case, case.fleet, 1.0)
    other_snapshot, other_plan, other_memory = policy.decide(case, shuffled, 1.0)
    assert unloads_of(snapshot, plan) == unloads_of(other_snapshot, other_plan)
    assert plan.examined.counts() == other_plan.examined.counts()
    assert memory == other_memory


@ALL
@given(case=cases(), data=st.data())
@CHECKED
def test_a_masked_bundle_is_never_moved_and_masking_changes_no_memory_of_hits(
    policy: Policy, case: Case, data: st.DataObject
) -> None:
    names = [bundle for broker in case.fleet.values() for bundle in broker.bundles]
    also_masked = set(data.draw(st.lists(st.sampled_from(names)))) if names else set()
    fleet = {
        name: replace(
            broker,
            bundles={
                key: replace(bundle, movable=bundle.movable and key not in also_masked)
                for key, bundle in broker.bundles.items()
            },
        )
        for name, broker in case.fleet.items()
    }
    snapshot, plan, memory = policy.decide(case, fleet, 1.0)
    moved = {bundle for bundle, _, _ in unloads_of(snapshot, plan)}
    assert not moved & also_masked
    assert bool(np.all(snapshot.bundles.movable[plan.unload_rows]))
    if isinstance(memory, AvgShedderMemory):
        assert memory == policy.decide(case, case.fleet, 1.0)[2]


@pytest.mark.parametrize("policy", UNITLESS, ids=lambda p: p.name)
@given(case=cases())
@CHECKED
def test_the_unit_of_traffic_does_not_matter(policy: Policy, case: Case) -> None:
    scaled = {
        name: replace(
            broker,
            messages_per_s=broker.messages_per_s * TIMES_1024,
            bytes_per_s=broker.bytes_per_s * TIMES_1024,
            bundles={
                key: replace(
                    bundle,
                    messages_per_s=bundle.messages_per_s * TIMES_1024,
                    bytes_per_s=bundle.bytes_per_s * TIMES_1024,
                )
                for key, bundle in broker.bundles.items()
            },
        )
        for name, broker in case.fleet.items()
    }
    snapshot, plan, memory = policy.decide(case, case.fleet, 1.0)
    other_snapshot, other_plan, other_memory = policy.decide(case, scaled, TIMES_1024)
    assert unloads_of(snapshot, plan) == unloads_of(other_snapshot, other_plan)
    assert np.array_equal(plan.tried_outcomes, other_plan.tried_outcomes)
    assert np.array_equal(plan.examined.outcome, other_plan.examined.outcome)
    assert memory == other_memory


@ALL
@given(case=cases())
@CHECKED
def test_everything_looked_at_has_exactly_one_outcome(policy: Policy, case: Case) -> None:
    snapshot, plan, _ = policy.decide(case, case.fleet, 1.0)
    examined = plan.examined
    assert sum(examined.counts().values()) == len(examined)
    seen = set(examined.high.tolist()) | set(examined.low.tolist()) - {-1}
    assert seen == set(range(len(snapshot.brokers)))
    fired = [row for row in range(len(examined)) if examined.outcome_of(row) == "fired"]
    expected = [
        (row, bundle)
        for row in fired
        for bundle in range(*snapshot.bundles.rows_of(int(examined.high[row])).indices(len(snapshot.bundles)))
    ]
    tried = list(zip(plan.tried_examined.tolist(), plan.tried_rows.tolist(), strict=True))
    assert sorted(tried) == sorted(expected)
    assert sum(count_codes(plan.tried_outcomes, BUNDLE_OUTCOMES).values()) == len(tried)


@ALL
@given(case=cases())
@CHECKED
def test_the_unloads_are_the_bundles_that_acted_in_the_same_order(policy: Policy, case: Case) -> None:
    snapshot, plan, _ = policy.decide(case, case.fleet, 1.0)
    acted = plan.tried_outcomes == BUNDLE_OUTCOMES.index("acted")
    assert np.array_equal(plan.tried_rows[acted], plan.unload_rows)
    assert np.array_equal(plan.tried_examined[acted], plan.unload_examined)
    assert len(np.unique(plan.unload_rows)) == len(plan.unload_rows)
    assert np.isin(plan.unload_swap_group, plan.unload_rows).all()
    assert all(plan.examined.trigger_of(row) for row in plan.unload_examined.tolist())
    for bundle, source, destination in unloads_of(snapshot, plan):
        assert bundle in case.fleet[source].bundles
        assert destination != source


@ALL
@given(case=cases())
@CHECKED
def test_every_number_shown_and_remembered_is_finite(policy: Policy, case: Case) -> None:
    _, plan, memory = policy.decide(case, case.fleet, 1.0)
    assert all(np.isfinite(column).all() for column in plan.examined.evidence.values())
    if isinstance(memory, ThresholdShedderMemory):
        assert all(math.isfinite(value) for value in memory.history_ratio.values())


@ALL
@given(case=cases())
@CHECKED
def test_the_same_input_gives_the_same_answer_and_is_left_as_it_was(policy: Policy, case: Case) -> None:
    before = (dict(case.avg.low_hits), dict(case.avg.high_hits), dict(case.threshold.history_ratio))
    first, second = policy.decide(case, case.fleet, 1.0), policy.decide(case, case.fleet, 1.0)
    assert unloads_of(*first[:2]) == unloads_of(*second[:2])
    assert first[2] == second[2]
    assert before == (case.avg.low_hits, case.avg.high_hits, case.threshold.history_ratio)
