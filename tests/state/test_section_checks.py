"""What a section of settings refuses: each value, and how values fit together."""

from typing import Any

import pytest

from state.settings import LONGEST_S, MAX_OPEN_ROUNDS_COUNT, GuardSettings, PulsarSettings, RoundSettings


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"length_s": 0.0}, "length_s is 0.0; a round lasts at least a millisecond"),
        ({"length_s": 0.0004}, "length_s is 0.0004; a round lasts at least a millisecond"),
        ({"length_s": LONGEST_S * 2}, "a round lasts at most"),
        ({"lateness_s": -1.0}, "lateness_s is -1.0; it must be 0 or more"),
        ({"warmup_rounds": -1}, "warmup_rounds is -1; it must be 0 or more"),
        ({"quorum_ratio": -0.1}, "quorum_ratio is -0.1; it must be 0 or more"),
        ({"max_report_age_s": -1.0}, "max_report_age_s is -1.0; it must be 0 or more"),
        ({"max_ahead_s": -1.0}, "max_ahead_s is -1.0; it must be 0 or more"),
        ({"forget_cluster_s": -1.0}, "forget_cluster_s is -1.0; it must be 0 or more"),
        (
            {"length_s": 1.0, "lateness_s": MAX_OPEN_ROUNDS_COUNT + 1.0},
            f"at most {MAX_OPEN_ROUNDS_COUNT} rounds of 1 s may be open at once",
        ),
    ],
)
def test_rounds_that_cannot_be_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        RoundSettings(**fields)


def test_as_many_rounds_as_there_may_be_open_are_taken() -> None:
    RoundSettings(length_s=1.0, lateness_s=float(MAX_OPEN_ROUNDS_COUNT))
    RoundSettings(length_s=0.001, lateness_s=0.0, max_report_age_s=0.0, max_ahead_s=0.0)


GUARDS = (
    "bundle_cooldown_s",
    "max_unloads_per_round_count",
    "max_unloads_per_broker_count",
    "max_unloads_per_namespace_count",
    "max_unloads_per_hour_count",
    "ineffective_after_rounds_count",
    "ineffective_rest_s",
    "failing_actions_count",
    "min_unload_benefit_points",
    "calm_after_change_rounds",
)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_below_nothing_is_refused_and_0_switches_it_off(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} is -1; it must be 0 or more \(0 switches it off\)"):
        GuardSettings(**{name: -1})
    GuardSettings(**{name: 0})


def test_no_more_failures_can_be_asked_for_than_are_looked_at() -> None:
    GuardSettings(failing_actions_count=10)
    with pytest.raises(
        ValueError, match="failing_actions_count is 11; only the last 10 actions are looked at"
    ):
        GuardSettings(failing_actions_count=11)


def test_an_average_of_no_samples_is_refused() -> None:
    PulsarSettings(bundle_average_samples=1)
    with pytest.raises(ValueError, match="bundle_average_samples is 0; it must be 1 or more"):
        PulsarSettings(bundle_average_samples=0)
