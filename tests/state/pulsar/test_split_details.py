"""Which decided splits happen, are held or wait for a person, and what the summary and the actions say of each."""

from typing import Any

import numpy as np
import pytest

from policies.shedding import fleet_planner
from policies.splitting.plan import (
    BY_BROKER_BYTES,
    BY_BROKER_MESSAGES,
    NO_PROPOSALS,
    BlindCut,
    Proposals,
    SplitSettings,
)
from policies.splitting.ranges import Bundle, position_of
from state.closing import Hold
from state.guard_settings import StandingApproval
from state.ledger import Child
from state.pulsar import splits
from state.pulsar.approvals import children_of
from state.pulsar.fleet import Advanced
from state.pulsar.holds import PROPOSED, Holds
from state.pulsar.masks import COOLDOWN, OPEN
from state.pulsar.splits import Splits
from state.settings import PulsarSettings
from tests.state.building import PROPOSALS_EXPIRE_AT, circumstances, required, seen
from tests.state.pulsar.test_actions import plan
from tests.state.pulsar.test_split_tables import Listed, waiting
from tests.state.traces import BUNDLES, load

BIG, SMALL, OTHER = BUNDLES[:3]
"""Bundle rows 0 to 2 with 80, 40 and 20 messages/s, ten times as many bytes/s, and 9 topics each; OTHER is at b2."""


def topics_of(bundle: str, *, count: int, rate: float) -> list[tuple[str, float]]:
    """Topics that hash into a bundle, with messages/s."""
    inside = Bundle.parse(bundle).range
    names = (f"persistent://t/a/part-{number}" for number in range(1000))
    return [(name, rate) for name in names if inside.contains(position_of(name))][:count]


EVEN = {BIG: topics_of(BIG, count=4, rate=20.0), SMALL: topics_of(SMALL, count=4, rate=10.0)}
UNLOADS = Hold("failing", "why")
SPLITS = Hold("quiet-hours", "quiet_hours 00:00-24:00")


def decided(
    *,
    topics: Listed | None = None,
    leaving: tuple[tuple[int, int], ...] = (),
    acting: tuple[int, ...] = (),
    code: int = OPEN,
    proposals: Proposals = NO_PROPOSALS,
    counts: int = 9,
    shared: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Splits, Advanced]:
    """A round whose criteria see BIG and SMALL; ``code`` is the mask of BIG."""
    limits = {"enabled": True, "max_messages_per_s": 30.0, "hit_count": 0, "max_sessions_count": 0}
    found = seen(
        load("b1", 470, bundles={BIG: 80.0, SMALL: 40.0}, topics_count=counts),
        load("b2", 470, bundles={OTHER: 20.0}, topics_count=counts),
    )
    decision = splits.decide(
        found.table,
        found.advanced,
        plan(*leaving),
        splits.topic_table(found.table, {"b1": waiting(EVEN if topics is None else topics)}),
        np.array([code, OPEN, OPEN], dtype=np.int8),
        proposals=proposals,
        acting=acting,
        circumstances=circumstances(**shared or {}),
        pulsar=PulsarSettings(split=SplitSettings(**limits | settings)),
    )
    return decision, found.advanced


def rows_of(found: Splits) -> dict[str, tuple[str, str]]:
    """Outcome and detail of each bundle that stands out."""
    shown = splits.section(found)
    assert shown.count == sum(shown.outcomes.values()) == len(shown.heaviest)
    return {each.bundle: (each.outcome, each.detail) for each in shown.heaviest}


ACTED = ("acted", "acted")
SOLE = {BIG: [("only", 80.0)], SMALL: EVEN[SMALL]}


@pytest.mark.parametrize(
    ("options", "big", "small"),
    [
        ({}, ACTED, ACTED),
        ({"code": COOLDOWN}, ("cooldown", "cooldown"), ACTED),
        ({"acting": (0,)}, ("in-flight", "in-flight"), ACTED),
        ({"leaving": ((0, 1),)}, ("to-be-unloaded", "to-be-unloaded"), ACTED),
        ({"leaving": ((0, 1),), "shared": {"policy": fleet_planner.POLICY}}, ACTED, ACTED),
        ({"leaving": ((0, 1),), "shared": {"holds": Holds(unload=UNLOADS, split=None)}}, ACTED, ACTED),
        (
            {"leaving": ((0, 1),), "shared": {"holds": Holds(unload=SPLITS, split=None)}},
            ("to-be-unloaded", "to-be-unloaded"),
            ACTED,
        ),
        ({"max_splits_per_round_count": 1}, ACTED, ("budget", "budget")),
        (
            {"max_namespace_bundles_count": 3},
            ("namespace-full", "namespace-full"),
            ("namespace-full", "namespace-full"),
        ),
        (
            {"topics": SOLE, "counts": 0},
            ("sole-topic", "only carries 100% of it: a split cannot help"),
            ACTED,
        ),
        ({"topics": {BIG: [], SMALL: EVEN[SMALL]}, "counts": 0}, ("sole-topic", "sole-topic"), ACTED),
        (
            {"code": COOLDOWN, "shared": {"holds": Holds(unload=None, split=SPLITS)}},
            ("cooldown", "cooldown"),
            ("quiet-hours", SPLITS.detail),
        ),
    ],
    ids=[
        "they are split",
        "one rests",
        "an approved action goes out",
        "the policy moves it",
        "a policy that splits first",
        "unloads are failing",
        "unloads are held for a while",
        "the budget of the round",
        "the namespace is full",
        "it has one topic",
        "it has none",
        "the round is held",
    ],
)
def test_each_bundle_that_stands_out_has_one_outcome_with_its_detail(
    options: dict[str, Any], big: tuple[str, str], small: tuple[str, str]
) -> None:
    assert rows_of(decided(**options)[0]) == {BIG: big, SMALL: small}


@pytest.mark.parametrize(
    ("shared", "acted", "hits"),
    [({}, [BIG, SMALL], [0, 0, 0]), ({"holds": Holds(unload=None, split=SPLITS)}, [], [1, 1, 0])],
    ids=["they are split", "the round is held"],
)
def test_a_held_split_keeps_its_hits_and_one_that_happens_spends_them(
    shared: dict[str, Any], acted: list[str], hits: list[int]
) -> None:
    found, advanced = decided(shared=shared)
    assert [each.bundle for each in splits.actions(found, circumstances())] == acted
    assert advanced.fleet.split_hits.tolist() == hits


LIGHT = {"light": StandingApproval(max_messages_per_s=40.0)}
NOT_SPLITS = {"moves": StandingApproval(kinds=("unloads",))}


@pytest.mark.parametrize(
    ("rules", "open_", "acted", "proposed", "hits"),
    [
        ({}, {}, [], [BIG, SMALL], [1, 1, 0]),
        (LIGHT, {}, [SMALL], [BIG], [1, 0, 0]),
        (NOT_SPLITS, {}, [], [BIG, SMALL], [1, 1, 0]),
        ({}, {"b1": "p"}, [], [], [1, 1, 0]),
        (LIGHT, {"b1": "p"}, [SMALL], [], [1, 0, 0]),
    ],
    ids=[
        "both wait",
        "one needs no approval",
        "only unloads need none",
        "one is open",
        "one is open, beside",
    ],
)
def test_splits_that_need_approval_are_proposed_unless_their_broker_waits_already(
    rules: dict[str, StandingApproval],
    open_: dict[str, str],
    acted: list[str],
    proposed: list[str],
    hits: list[int],
) -> None:
    shared = circumstances(asking=required(rules=rules, waiting=open_))
    found, advanced = decided(shared={"asking": shared.asking})
    assert [each.bundle for each in splits.actions(found, shared)] == acted
    shown = splits.proposals(found, shared)
    assert [each.bundle for each in shown] == proposed
    assert {(each.proposal, each.expires_at) for each in shown} <= {(True, PROPOSALS_EXPIRE_AT)}
    assert {found.snapshot.names[row] for row in found.rows} == {*acted, *proposed}
    assert advanced.fleet.split_hits.tolist() == hits, "a proposal spends no hits"
    waits = "proposal p of b1 waits for approval" if open_ else PROPOSED.detail
    assert rows_of(found)[BIG] == ("proposed", waits)


def test_without_required_approval_nothing_is_proposed() -> None:
    assert splits.proposals(decided()[0], circumstances()) == []


def overloading(trigger: int) -> Proposals:
    """OTHER alone overloads b2; a broker has 12 on average."""
    return Proposals(
        rows=np.array([2]),
        triggers=np.array([trigger], dtype=np.int8),
        boundaries_counts=np.array([1]),
        means_per_s=np.array([12.0]),
    )


OFF: dict[str, Any] = {"max_messages_per_s": 1e9, "max_bytes_per_s": 1e9}
ALONE = "and alone overloads b2 (a broker has 12 on average); no other could take it whole: cut at "
BY_RANGE: dict[str, Any] = {"without_topic_stats": "range"}


@pytest.mark.parametrize(
    ("options", "trigger", "sentence"),
    [
        (
            OFF | {"max_topics_count": 3, "counts": 4},
            "topics",
            f"{BIG} has 4 topics, 3 are allowed, found in 1 round, 1 needed: cut at ",
        ),
        (
            OFF | {"max_sessions_count": 3, "counts": 4},
            "sessions",
            f"{BIG} has 4 producers and consumers, 3 are allowed, found in 1 round, 1 needed: cut at ",
        ),
        (
            OFF | {"max_bytes_per_s": 700.0},
            "bytes",
            f"{BIG} has 800 bytes/s, 700 are allowed, found in 1 round, 1 needed: cut at ",
        ),
        (
            OFF | BY_RANGE | {"proposals": overloading(BY_BROKER_MESSAGES)},
            "broker-messages",
            f"{OTHER} has 20 messages/s {ALONE}",
        ),
        (
            OFF | BY_RANGE | {"proposals": overloading(BY_BROKER_BYTES)},
            "broker-bytes",
            f"{OTHER} has 200 bytes/s {ALONE}",
        ),
    ],
    ids=["topics", "sessions", "bytes", "messages of its broker", "bytes of its broker"],
)
def test_a_split_says_in_which_measure_its_bundle_is_too_big(
    options: dict[str, Any], trigger: str, sentence: str
) -> None:
    first = splits.actions(decided(**options)[0], circumstances())[0]
    assert first.trigger == trigger
    assert first.reason.startswith(sentence)


@pytest.mark.parametrize(("topics_count", "more"), [(9, ""), (12, " and 3 more")])
def test_the_first_eight_boundaries_of_a_split_are_shown_and_the_others_counted(
    topics_count: int, more: str
) -> None:
    """Of topics with 20 messages/s each, no bundle may have two: one boundary less than there are topics."""
    found, _ = decided(topics={BIG: topics_of(BIG, count=topics_count, rate=20.0)})
    action = splits.actions(found, circumstances())[0]
    assert (action.bundle, len(action.boundaries)) == (BIG, topics_count - 1)
    shown = ", ".join(f"0x{at:08x}" for at in action.boundaries[:8])
    assert f": cut at {shown}{more} by balanced_flow_divide; " in action.reason


def test_the_children_of_a_split_have_their_shares_where_the_topics_are_known() -> None:
    """BIG has four topics of 20 messages/s, and no part may have two; nothing is known of the topics of OTHER."""
    found, _ = decided(max_messages_per_s=15.0, **BY_RANGE)
    shares = {each.bundle: children_of(each) for each in splits.actions(found, circumstances())}
    assert [(each.messages_ratio, each.bytes_ratio) for each in shares[BIG]] == [(0.25, 0.25)] * 4
    assert {each.blind_cut for each in shares[BIG]} == {None}
    assert shares[OTHER] == [
        Child("t/a/0x20000000_0x28000000", None, None, BlindCut("messages", 20.0)),
        Child("t/a/0x28000000_0x30000000", None, None, BlindCut("messages", 20.0)),
    ]


@pytest.mark.parametrize(("counts", "shown"), [(9, 9), (0, 4)])
def test_topics_are_counted_by_the_owner_and_by_the_statistics_where_it_counts_none(
    counts: int, shown: int
) -> None:
    row = splits.section(decided(counts=counts)[0]).heaviest[0]
    assert (row.bundle, row.evidence["bundle_topics_count"]) == (BIG, shown)
