"""Guards only take actions away, whatever the trace."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.events import Event, namespace_of
from tests.state.pulsar.test_invariants import EAGER
from tests.state.traces import (
    run,
    settings_of,
    some_reports,
)


@pytest.mark.parametrize(
    ("policy", "placement"),
    [
        ("avg-shedder", "broker"),
        ("threshold-shedder", "broker"),
        ("overload-shedder", "least-long-term-message-rate"),
        ("uniform-load-shedder", "least-resource-usage"),
    ],
)
@pytest.mark.parametrize(
    "constraint",
    [
        {"max_unloads_per_round_count": 1},
        {"max_unloads_per_hour_count": 1},
        {"max_unloads_per_broker_count": 1},
        {"max_unloads_per_namespace_count": 1},
        {"keep_sole_bundle": True},
        {"min_unload_benefit_points": 10.0},
        {"calm_after_change_rounds": 3},
    ],
    ids=str,
)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(trace=some_reports)
def test_a_budget_only_takes_actions_away(
    policy: str, placement: str, constraint: dict[str, Any], trace: list[Event]
):
    """In the same round only: later ones differ because of what was done before."""
    free = {"keep_sole_bundle": False, "max_unloads_per_round_count": 0, "max_unloads_per_hour_count": 0}
    one_round = {"length_s": 1000.0, "warmup_rounds": 0, "max_report_age_s": 1000.0}
    source = partial(settings_of, **EAGER, shedding_policy=policy, placement=placement, rounds=one_round)
    found = [
        [
            (action["bundle"], action.get("source_broker"), action.get("destination_broker"))
            for action in run([trace], source(guards=guards)).actions
        ]
        for guards in (free, free | constraint)
    ]
    everything, constrained = found
    assert constrained == [action for action in everything if action in constrained]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(some_reports, st.sampled_from(["t/a", "t/b"]))
def test_an_excluded_namespace_never_acts_whatever_takes_its_place(trace: list[Event], namespace: str):
    source = settings_of(
        **EAGER,
        rounds={"length_s": 1000.0, "warmup_rounds": 0},
        guards={"excluded_namespaces": (namespace,), "keep_sole_bundle": False},
    )
    assert {namespace_of(action["bundle"]) for action in run([trace], source).actions} <= {"t/a", "t/b"} - {
        namespace
    }
