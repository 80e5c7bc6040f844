"""The line that says why a round does not do more."""

from typing import get_args

import pytest

from policies.shedding.contract import BUNDLE_OUTCOMES
from policies.shedding.registry import find_policy
from policies.splitting.plan import OUTCOMES
from state.closing import GeneralReason, SplitReason, UnloadReason
from state.pulsar.masks import MASK_REASONS, SPLIT_MASK_REASONS
from state.pulsar.wording import actions_text, calm_text, stay_text


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"cooldown": 11, "too-big": 2}, "11 bundles rest after a move, 2 are too big"),
        ({"too-big": 1, "cooldown": 1, "acted": 3}, "1 bundle rests after a move, 1 is too big"),
        ({"absent": 1}, "1 bundle is absent from the report of its owner"),
        ({"hit-count": 1}, "1 bundle does not stand out for long enough yet"),
        ({"acted": 3}, ""),
        ({}, ""),
    ],
)
def test_every_bundle_that_stays_is_counted_under_its_reason(outcomes: dict[str, int], said: str) -> None:
    assert stay_text(outcomes) == said


def test_a_bundle_that_was_split_does_not_rest_after_a_move() -> None:
    assert stay_text({"cooldown": 2}, action="split") == "2 bundles rest after a split"


def test_a_budget_that_is_waited_for_is_named_by_its_setting() -> None:
    said = stay_text({"budget": 2, "cooldown": 1}, limits={"max_b_count", "max_a_count"})
    assert said == "2 bundles wait for a budget (max_a_count, max_b_count), 1 rests after a move"


@pytest.mark.parametrize(
    ("examined", "said"),
    [
        ({"within-spread": 6}, "no broker stands out (6 within-spread)"),
        ({"within-spread": 5, "not-sure": 1}, "5 within-spread, 1 not-sure"),
        ({}, ""),
    ],
)
def test_a_round_that_tries_nothing_says_whether_a_broker_stands_out(
    examined: dict[str, int], said: str
) -> None:
    assert calm_text(examined, find_policy("fleet-planner")) == said


def test_every_outcome_of_a_bundle_has_words() -> None:
    reasons = (each for kinds in (GeneralReason, SplitReason, UnloadReason) for each in get_args(kinds))
    for outcome in {*BUNDLE_OUTCOMES, *OUTCOMES, *MASK_REASONS, *SPLIT_MASK_REASONS, *reasons} - {
        "masked",
        "",
    }:
        assert bool(stay_text({outcome: 1})) == (outcome != "acted"), outcome


@pytest.mark.parametrize(
    ("count", "why", "of_them", "said"),
    [
        (0, "1 bundle is too big", {}, "0 unloads: 1 bundle is too big"),
        (1, "1 bundle is too big", {"approved": 0}, "1 unload, 1 bundle is too big"),
        (
            3,
            "",
            {"approved": 1, "to_empty_drained_brokers": 2},
            "3 unloads (1 approved, 2 to empty drained brokers)",
        ),
    ],
)
def test_what_happens_comes_before_what_stays(
    count: int, why: str, of_them: dict[str, int], said: str
) -> None:
    assert actions_text(count, "unload", why, **of_them) == said
