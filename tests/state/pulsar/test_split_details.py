"""Splits that a round decides, by each measure that a bundle can be too big in, with outcomes and reasons."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

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
from state.events import ActionResult, Event, LoadReport, TopicStats, TopicTraffic
from state.guard_settings import ApprovalSettings, StandingApproval
from state.ledger import Child, Ledger
from state.memory import ProposalRecord
from state.pulsar import splits
from state.pulsar.admission import PROPOSED, Admission
from state.pulsar.approvals import children_of
from state.pulsar.budgets import with_rules
from state.pulsar.holds import Holds
from state.pulsar.masks import Mask
from state.pulsar.memory import Fleet
from state.pulsar.splits import Splits, topic_table
from state.settings import ClusterSettings, PulsarSettings
from state.store import DictStore
from tests.state.building import (
    PROPOSALS_EXPIRE_AT,
    PROPOSALS_EXPIRE_MS,
    Listed,
    decided_split,
    ledger_of,
    plan,
    seen,
    split,
    waiting,
)
from tests.state.traces import BUNDLES, HOT, Run, load, run, split_settings

BIG, SMALL, OTHER = BUNDLES[:3]
"""Bundle rows 0 to 2 with 80, 40 and 20 messages/s, ten times as many bytes/s, and 9 topics each; OTHER is at b2."""


def topics_of(bundle: str, *, count: int, rate: float) -> list[tuple[str, float]]:
    """Topics that hash into a bundle, with messages/s."""
    inside = Bundle.parse(bundle).range
    names = (f"persistent://t/a/part-{number}" for number in range(1000))
    return [(name, rate) for name in names if inside.contains(position_of(name))][:count]


EVEN_LOAD = {BIG: topics_of(BIG, count=4, rate=20.0), SMALL: topics_of(SMALL, count=4, rate=10.0)}
UNLOADS = Hold("failing", "why")
SPLITS = Hold("quiet-hours", "quiet_hours 00:00-24:00")


def decided(
    *,
    topics: Listed | None = None,
    leaving: tuple[tuple[int, int], ...] = (),
    acting: tuple[int, ...] = (),
    code: int = Mask.OPEN,
    proposals: Proposals = NO_PROPOSALS,
    counts: int = 9,
    holds: Holds | None = None,
    policy: str = "avg-shedder",
    standing: dict[str, StandingApproval] | None = None,
    open_: str | None = None,
    on_its_way: bool = False,
    approved: bool = False,
    **settings: Any,
) -> tuple[Splits, Fleet]:
    """A round whose criteria see BIG and SMALL.

    ``code`` is the mask of BIG, ``on_its_way`` whether it was split, and ``approved`` whether its approved split goes out. With
    ``standing`` approvals splits have to be approved.
    """
    limits = {"enabled": True, "max_messages_per_s": 30.0, "hit_count": 0, "max_sessions_count": 0}
    pulsar = PulsarSettings(
        shedding_policy=policy,
        split=SplitSettings(**limits | settings),
        approval=ApprovalSettings(standing=standing or {}),
    )
    waits = [ProposalRecord("p", "unload", BIG, open_, None, 6, PROPOSALS_EXPIRE_MS, b"")] if open_ else []
    found = seen(
        load("b1", 470, bundles={BIG: 80.0, SMALL: 40.0}, topics_count=counts),
        load("b2", 470, bundles={OTHER: 20.0}, topics_count=counts),
        header={
            "proposals": waits,
            "ledger": ledger_of(decided_split(bundle=BIG, result="succeeded")) if on_its_way else Ledger(),
        },
        settings=ClusterSettings(pulsar=pulsar),
        proposals_expire_ms=None if standing is None else PROPOSALS_EXPIRE_MS,
    )
    admission = Admission(found.context, *with_rules(found.context, found.table, {}))
    admission.holds = holds or admission.holds
    admission.split_codes = np.array([code, Mask.OPEN, Mask.OPEN], dtype=np.int8)
    decision = splits.decide(
        admission,
        plan(*leaving),
        topic_table(found.table, {"b1": waiting(EVEN_LOAD if topics is None else topics)}),
        proposals=proposals,
        acting=(0,) if approved else acting,
        approved=[split(bundle=BIG)] if approved else (),
    )
    return decision, found.advanced.fleet


def rows_of(found: Splits) -> dict[str, tuple[str, str]]:
    """Outcome and detail of each bundle that stands out."""
    shown = splits.section(found)
    assert shown.count == sum(shown.outcomes.values()) == len(shown.heaviest)
    return {each.bundle: (each.outcome, each.detail) for each in shown.heaviest}


ACTED = ("acted", "acted")
SOLE = {BIG: [("only", 80.0)], SMALL: EVEN_LOAD[SMALL]}


@pytest.mark.parametrize(
    ("options", "big", "small"),
    [
        ({}, ACTED, ACTED),
        ({"code": Mask.COOLDOWN}, ("cooldown", "cooldown"), ACTED),
        ({"acting": (0,)}, ("in-flight", "in-flight"), ACTED),
        ({"leaving": ((0, 1),)}, ("to-be-unloaded", "to-be-unloaded"), ACTED),
        ({"leaving": ((0, 1),), "policy": "fleet-planner"}, ACTED, ACTED),
        ({"leaving": ((0, 1),), "holds": Holds(unload=UNLOADS, split=None)}, ACTED, ACTED),
        (
            {"leaving": ((0, 1),), "holds": Holds(unload=SPLITS, split=None)},
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
        ({"topics": {BIG: [], SMALL: EVEN_LOAD[SMALL]}, "counts": 0}, ("sole-topic", "sole-topic"), ACTED),
        (
            {"code": Mask.COOLDOWN, "holds": Holds(unload=None, split=SPLITS)},
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
    ("holds", "acted", "hits"),
    [(None, [BIG, SMALL], [0, 0, 0]), (Holds(unload=None, split=SPLITS), [], [1, 1, 0])],
    ids=["they are split", "the round is held"],
)
def test_a_held_split_keeps_its_hits_and_one_that_happens_spends_them(
    holds: Holds | None, acted: list[str], hits: list[int]
) -> None:
    found, fleet = decided(holds=holds)
    assert [each.bundle for each in found.cuts] == acted
    assert fleet.split_hits.tolist() == hits


LIGHT = {"light": StandingApproval(max_messages_per_s=40.0)}
NOT_SPLITS = {"moves": StandingApproval(kinds=("unloads",))}


@pytest.mark.parametrize(
    ("rules", "open_", "acted", "proposed", "hits"),
    [
        ({}, None, [], [BIG, SMALL], [1, 1, 0]),
        (LIGHT, None, [SMALL], [BIG], [1, 0, 0]),
        (NOT_SPLITS, None, [], [BIG, SMALL], [1, 1, 0]),
        ({}, "b1", [], [], [1, 1, 0]),
        (LIGHT, "b1", [SMALL], [], [1, 0, 0]),
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
    open_: str | None,
    acted: list[str],
    proposed: list[str],
    hits: list[int],
) -> None:
    found, fleet = decided(standing=rules, open_=open_)
    assert [each.bundle for each in found.cuts] == acted
    assert [each.bundle for each in found.proposals] == proposed
    assert {(each.proposal, each.expires_at) for each in found.proposals} <= {(True, PROPOSALS_EXPIRE_AT)}
    assert {found.snapshot.names[row] for row in found.rows} == {*acted, *proposed}
    assert fleet.split_hits.tolist() == hits, "a proposal spends no hits"
    waits = "proposal p of b1 waits for approval" if open_ else PROPOSED.detail
    assert rows_of(found)[BIG] == ("proposed", waits)


def overloading(trigger: int) -> Proposals:
    """Without OTHER, b2 would be at most average; a broker has 12 on average."""
    return Proposals(
        rows=np.array([2]),
        triggers=np.array([trigger], dtype=np.int8),
        boundaries_counts=np.array([1]),
        means_per_s=np.array([12.0]),
        replaced_counts=np.array([0]),
    )


INSTEAD_OF_FIVE = Proposals(
    rows=np.array([0]),
    triggers=np.array([BY_BROKER_MESSAGES], dtype=np.int8),
    boundaries_counts=np.array([1]),
    means_per_s=np.array([70.0]),
    replaced_counts=np.array([5]),
)
"""BIG is to be split in place of five moves of other bundles of b1."""


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        pytest.param({}, True, id="it is split"),
        pytest.param(
            {"on_its_way": True, "code": Mask.COOLDOWN}, True, id="the reports do not show its split yet"
        ),
        pytest.param({"approved": True}, True, id="its approved split goes out"),
        pytest.param({"code": Mask.COOLDOWN}, False, id="it was split out of another one lately"),
        pytest.param({"topics": SOLE, "counts": 0}, False, id="no split can help"),
        pytest.param({"hit_count": 3}, True, id="it has to overload its broker for longer"),
        pytest.param({"hit_count": 3, "topics": {}}, False, id="the same, and its topics are not known"),
        pytest.param(
            {"hit_count": 3, "holds": Holds(unload=None, split=SPLITS)},
            False,
            id="the same, and splits are held",
        ),
        pytest.param({"holds": Holds(unload=None, split=SPLITS)}, False, id="splits are held"),
        pytest.param({"standing": {}}, True, id="its split and the moves wait for approval"),
        pytest.param({"standing": NOT_SPLITS}, False, id="only its split waits for approval"),
        pytest.param({"standing": {}, "open_": "b1"}, False, id="a proposal of its broker is open"),
    ],
)
def test_moves_that_a_split_replaces_wait_for_it_only_where_it_happens(
    options: dict[str, Any], *, waits: bool
) -> None:
    found, _ = decided(proposals=INSTEAD_OF_FIVE, **options)
    assert {broker: hold.reason for broker, hold in found.before_moves.items()} == (
        {0: "split-first"} if waits else {}
    )


OFF: dict[str, Any] = {"max_messages_per_s": 1e9, "max_bytes_per_s": 1e9}
HEAVY = (
    "b2 would be at most average without it (a broker has 12 on average), but any broker that took it whole "
    "would then have more than b2 has left: cut at "
)
BY_RANGE: dict[str, Any] = {"without_topic_stats": "range"}


@pytest.mark.parametrize(
    ("options", "trigger", "sentence"),
    [
        (
            OFF | {"max_topics_count": 3, "counts": 4},
            "topics",
            f"{BIG} has 4 topics, 3 are allowed, found in 1 round, 1 is enough: cut at ",
        ),
        (
            OFF | {"max_sessions_count": 3, "counts": 4},
            "sessions",
            f"{BIG} has 4 producers and consumers, 3 are allowed, found in 1 round, 1 is enough: cut at ",
        ),
        (
            OFF | {"max_bytes_per_s": 700.0},
            "bytes",
            f"{BIG} has 800 bytes/s, 700 are allowed, found in 1 round, 1 is enough: cut at ",
        ),
        (
            OFF | BY_RANGE | {"proposals": overloading(BY_BROKER_MESSAGES)},
            "broker-messages",
            f"{OTHER} has 20 messages/s; {HEAVY}",
        ),
        (
            OFF | BY_RANGE | {"proposals": overloading(BY_BROKER_BYTES)},
            "broker-bytes",
            f"{OTHER} has 200 bytes/s; {HEAVY}",
        ),
        (
            OFF | {"proposals": INSTEAD_OF_FIVE},
            "broker-messages",
            (
                f"{BIG} has 80 messages/s; 5 moves of lighter bundles would not relieve b1 enough (a broker has 70 on average), "
                "and any broker that took it whole would then have more than b1 has left: cut at "
            ),
        ),
        (
            {"proposals": replace(INSTEAD_OF_FIVE, has_counted=True), "hit_count": 9},
            "messages",
            f"{BIG} has 80 messages/s, 30 are allowed, and b1 has to give away load now: cut at ",
        ),
    ],
    ids=[
        "topics",
        "sessions",
        "bytes",
        "messages of its broker",
        "bytes of its broker",
        "in place of moves",
        "above a limit before its hits are counted",
    ],
)
def test_a_split_says_in_which_measure_its_bundle_is_too_big(
    options: dict[str, Any], trigger: str, sentence: str
) -> None:
    first = decided(**options)[0].cuts[0]
    assert first.trigger == trigger
    assert first.reason.startswith(sentence)


@pytest.mark.parametrize(("topics_count", "more"), [(9, ""), (12, " and 3 more")])
def test_the_first_eight_boundaries_of_a_split_are_shown_and_the_others_counted(
    topics_count: int, more: str
) -> None:
    """Of topics with 20 messages/s each, no bundle may have two: one boundary less than there are topics."""
    found, _ = decided(topics={BIG: topics_of(BIG, count=topics_count, rate=20.0)})
    action = found.cuts[0]
    assert (action.bundle, len(action.boundaries)) == (BIG, topics_count - 1)
    shown = ", ".join(f"0x{at:08x}" for at in action.boundaries[:8])
    assert f": cut at {shown}{more} by balanced_flow_divide; " in action.reason


def test_the_children_of_a_split_have_their_shares_where_the_topics_are_known() -> None:
    """BIG has four topics of 20 messages/s, and no part may have two; nothing is known of the topics of OTHER."""
    found, _ = decided(max_messages_per_s=15.0, **BY_RANGE)
    shares = {each.bundle: children_of(each) for each in found.cuts}
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


SESSION_TOPICS = [
    name
    for name in (f"persistent://t/n/topic-{number}" for number in range(100))
    if position_of(name) < 0x80000000
][:10]
SETTINGS = split_settings(
    max_messages_per_s=1e9, max_sessions_count=1000, hit_count=1, bundle_cooldown_s=30.0
)


class Broker:
    """One broker whose bundles are cut as it is told."""

    def __init__(self, sessions: list[int], rates: list[float], *, tells_sessions: bool) -> None:
        self.sessions, self.rates = (
            dict(zip(SESSION_TOPICS, sessions, strict=True)),
            dict(zip(SESSION_TOPICS, rates, strict=True)),
        )
        self.tells_sessions = tells_sessions
        self.bundles, self.said = {HOT: SESSION_TOPICS}, Run()
        self.store, self.played = DictStore(), 0

    def play(self, rounds: int) -> None:
        """So many rounds of ten seconds; each split is carried out before the next round."""
        for number in range(self.played, self.played + rounds):
            events: list[Event] = [*self._events(10 * number + 5), load("b2", 10 * number + 5)]
            seen = len(self.said.outputs)
            self.said.outputs += run([events], SETTINGS, store=self.store, is_closed=False).outputs
            for output in self.said.outputs[seen:]:
                if output.kind == "action":
                    self._cut(output.subject, json.loads(output.data)["boundaries"])
                    result = ActionResult(
                        id=output.id, time_ms=output.time_ms, action_id=output.id, outcome="succeeded"
                    )
                    run([[result]], SETTINGS, store=self.store, is_closed=False)

        self.played += rounds

    def _cut(self, name: str, boundaries: list[int]) -> None:
        topics = self.bundles.pop(name)
        for child in Bundle.parse(name).cut(boundaries):
            self.bundles[str(child)] = [each for each in topics if child.range.contains(position_of(each))]

    def _events(self, time_s: float) -> tuple[LoadReport, TopicStats]:
        inside = dict(sorted(self.bundles.items()))
        rates = {name: sum(self.rates[each] for each in topics) for name, topics in inside.items()}
        found = load("b1", time_s, bundles=rates)
        counts = [[len(topics), sum(self.sessions[each] for each in topics)] for topics in inside.values()]
        names = [each for topics in inside.values() for each in topics]
        told = np.array([self.sessions[each] if self.tells_sessions else 0 for each in names])
        traffic = TopicTraffic(
            bundles=list(inside),
            counts=np.array([len(topics) for topics in inside.values()]),
            topics=names,
            messages_per_s=np.array([self.rates[each] for each in names]),
            bytes_per_s=10 * np.array([self.rates[each] for each in names]),
            sessions=told,
        )
        report = replace(found.report, counts=np.array(counts, dtype=np.int64))
        stats = TopicStats(id=f"s/{time_s}", time_ms=found.time_ms, broker="b1", traffic=traffic)
        return msgspec.structs.replace(found, report=report), stats

    def findings(self) -> set[tuple[str, str]]:
        """Kind and subject of the last round's findings."""
        return {(each["kind"], each["subject"]) for each in self.said.summaries[-1]["findings"]["heaviest"]}


OF_ONE = [4, 4, 4, 40_000, 4, 4, 4, 4, 4, 4]


@pytest.mark.parametrize("rates", [[10.0] * 10, [5.0] * 3 + [200.0] + [5.0] * 6, [200.0] + [5.0] * 9])
def test_where_it_is_not_known_whose_the_clients_are_two_boundaries_are_the_most(rates: list[float]) -> None:
    broker = Broker(OF_ONE, rates, tells_sessions=False)
    broker.play(80)
    assert len(broker.bundles) <= 3
    rows = broker.said.summaries[-1]["splits"]["heaviest"]
    assert [row["outcome"] for row in rows] == ["sole-topic" if rates[3] == 200.0 else "no-topic-stats"]
    assert not rows[0]["detail"].startswith("no statistics")


def test_once_the_clients_are_known_by_topic_the_part_that_kept_them_is_judged_by_that() -> None:
    broker = Broker(OF_ONE, [10.0] * 10, tells_sessions=False)
    broker.play(40)
    parts = broker.bundles
    assert broker.findings() == set()
    broker.tells_sessions = True
    broker.play(40)
    assert (broker.bundles, broker.findings()) == (parts, {("dominant-topic", SESSION_TOPICS[3])})
