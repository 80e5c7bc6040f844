"""The reason that the summary of a decided round gives, in one sentence, and who spends the budget first."""

from typing import Any

import pytest

from policies.shedding.avg_shedder import AvgShedderSettings
from policies.splitting.plan import SplitSettings
from state.pulsar.approvals import Answers
from state.pulsar.decide import judge
from state.pulsar.splits import topic_table
from state.pulsar.summary import Decided
from state.settings import ClusterSettings, GuardSettings, PulsarSettings
from state.upkeep import Spell, Upkeep
from tests.state.building import BUNDLE, PROPOSALS_EXPIRE_MS, control, seen, split, unload
from tests.state.traces import load

BIG, SMALL, IDLE = "t/a/0x00000000_0x40000000", "t/b/0x00000000_0x40000000", "t/c/0x00000000_0x40000000"
OF_B3 = "t/d/0x00000000_0x40000000"
REPORTS = (
    load("b1", 470, cpu=90.0, bundles={BIG: 100.0, SMALL: 20.0, IDLE: 0.0}, rate=400.0, topics_count=9),
    load("b2", 470, cpu=10.0, rate=0.0),
    load("b3", 470, cpu=50.0, bundles={OF_B3: 1.0}, topics_count=9),
)
"""b1 and b2 are far enough apart to fire at once, and b1 then gives BIG and SMALL away; b3 stands alone."""
EAGER: dict[str, Any] = {"avg_shedder": AvgShedderSettings(high_hit_count=1, min_unload_messages_per_s=1.0)}
WITH_SPLITS = SplitSettings(enabled=True, max_messages_per_s=10.0, hit_count=0, without_topic_stats="range")
"""BIG and SMALL are above the limit; the policy wants to move them."""
SPLITS_OF_B3 = SplitSettings(enabled=True, max_messages_per_s=0.5, hit_count=0, without_topic_stats="range")
DRAINED = Upkeep(drains={"b3": Spell(0)})


def judged(
    *,
    split: SplitSettings | None = None,
    answers: Answers | None = None,
    upkeep: Upkeep | None = None,
    guards: dict[str, Any] | None = None,
    **fields: Any,
) -> Decided:
    pulsar = PulsarSettings(
        **EAGER,
        split=split or SplitSettings(),
        guards=GuardSettings(**(guards or {})),
    )
    settings = ClusterSettings(pulsar=pulsar)
    found = seen(*REPORTS, settings=settings, upkeep=upkeep or Upkeep(), **fields)
    topics = topic_table(found.table, {})
    return judge(found.context, found.table, topics, leaving={}, answers=answers or Answers())


APPROVED = Answers(unloads=[unload()], cuts=[split()])
EVERYTHING = (
    "2 unloads decided, 0 held back; 2 approved actions go out; 1 unload to empty drained brokers; "
    "2 bundles stand out for a split, 0 splits decided"
)
ASKED = {"proposals_expire_ms": PROPOSALS_EXPIRE_MS}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "2 unloads decided, 0 held back"),
        ({"record": control()}, "0 unloads decided, 2 held back"),
        ({"guards": {"max_unloads_per_round_count": 1}}, "1 unload decided, 1 held back"),
        ({"answers": APPROVED}, "2 unloads decided, 0 held back; 2 approved actions go out"),
        ({"upkeep": DRAINED}, "2 unloads decided, 0 held back; 1 unload to empty drained brokers"),
        (ASKED, "0 unloads decided, 2 held back; 2 proposed"),
        (
            {"split": WITH_SPLITS},
            "2 unloads decided, 0 held back; 2 bundles stand out for a split, 0 splits decided",
        ),
        (
            {"split": SPLITS_OF_B3},
            "2 unloads decided, 0 held back; 3 bundles stand out for a split, 1 split decided",
        ),
        (
            {"split": SPLITS_OF_B3, **ASKED},
            "0 unloads decided, 2 held back; 3 proposed; 3 bundles stand out for a split, 0 splits decided",
        ),
        (
            {"split": SPLITS_OF_B3, "upkeep": DRAINED, "answers": APPROVED},
            EVERYTHING,
        ),
    ],
    ids=[
        "unloads",
        "held",
        "budget",
        "approved",
        "drained",
        "proposed",
        "left to the policy",
        "splits",
        "all proposed",
        "everything",
    ],
)
def test_a_decided_round_says_what_it_found_did_and_held(options: dict[str, Any], reason: str) -> None:
    found = judged(**options)
    examined = 1 if "upkeep" in options else 2
    assert (found.outcome, found.reason) == ("decided", f"1 of {examined} examined fired, {reason}")


def test_in_a_round_with_a_single_broker_nothing_fires() -> None:
    apart = Upkeep(brokers={"b1": Spell(0), "b2": Spell(0)})
    assert judged(upkeep=apart).reason == "0 of 1 examined fired, 0 unloads decided, 0 held back"


@pytest.mark.parametrize(("limit", "unloads"), [(1, [OF_B3]), (2, [OF_B3, BIG]), (3, [OF_B3, BIG, SMALL])])
def test_drains_spend_the_budget_of_the_round_before_the_policy_does(limit: int, unloads: list[str]) -> None:
    found = judged(upkeep=DRAINED, guards={"max_unloads_per_round_count": limit})
    assert [each.bundle for each in found.unloads] == unloads


def test_what_people_approved_goes_before_drains_and_those_before_the_policy() -> None:
    found = judged(upkeep=DRAINED, answers=Answers(unloads=[unload()], cuts=[split()]))
    assert [each.bundle for each in found.actions] == [BUNDLE, OF_B3, BIG, SMALL, BUNDLE]


def test_a_bundle_that_an_approved_split_cuts_is_not_moved_as_well() -> None:
    found = judged(answers=Answers(split_rows={0}))
    assert {row: hold.reason for row, hold in found.admitted.holds.items()} == {0: "split-instead"}
    assert [each.bundle for each in found.unloads] == [SMALL]


def test_a_bundle_that_an_approved_unload_moves_is_not_moved_again() -> None:
    found = judged(answers=Answers(unload_rows={0}))
    assert [each.bundle for each in found.unloads] == [SMALL]
    assert found.admitted.holds == {}
