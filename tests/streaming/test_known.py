"""Every outcome of a policy is known beforehand: as a label of the metrics, and on the page of the decisions."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from policies.shedding.contract import BUNDLE_OUTCOMES
from policies.shedding.registry import find_policy
from state.settings import PulsarSettings
from streaming.controller.metrics import KNOWN_LABELS

PAGE = (Path(__file__).resolve().parents[2] / "docs/decisions.md").read_text(encoding="utf-8")
POLICIES = get_args(get_type_hints(PulsarSettings)["shedding_policy"])
PLACEMENTS = get_args(get_type_hints(PulsarSettings)["placement"])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_outcome_of_a_policy_is_a_label_from_the_first_scrape(policy: str):
    found = find_policy(policy)
    assert set(found.outcomes) <= set(KNOWN_LABELS.examined_outcomes)


def test_what_says_that_nothing_stands_out_is_an_outcome_of_some_policy():
    assert set(KNOWN_LABELS.calm_outcomes) < set(KNOWN_LABELS.examined_outcomes)


def test_every_outcome_of_a_bundle_is_a_label_from_the_first_scrape():
    assert set(BUNDLE_OUTCOMES) - {"masked"} <= set(KNOWN_LABELS.candidate_outcomes)


@pytest.mark.parametrize(
    "outcome", sorted({*KNOWN_LABELS.examined_outcomes, *KNOWN_LABELS.candidate_outcomes})
)
def test_every_outcome_is_explained_on_the_page(outcome: str):
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert any(f"`{outcome}`" in row or f"`{outcome} " in row for row in rows)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement_is_explained_on_the_page(placement: str):
    assert f"| `{placement}` |" in PAGE
