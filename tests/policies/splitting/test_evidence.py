"""A split cannot be undone: what has to be known before a bundle is cut, and what happens where it is not known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.splitting.criteria import split
from policies.splitting.plan import (
    BY_BROKER_MESSAGES,
    BlindCut,
    Proposals,
    SplitMemory,
    SplitPlan,
    SplitSettings,
    SplitSnapshot,
)
from policies.splitting.ranges import Bundle
from tests.policies.splitting.bundles import Cluster, Load, Topic, Topics, cuts, evenly, outcomes

AT_ONCE = SplitSettings(hit_count=0)
A = "t/n/0x00000000_0x40000000"
HEAVY = 4
"""Place of the topic with most clients or traffic."""


def decide(
    load: Load, settings: SplitSettings = AT_ONCE, *, blind_cuts: Mapping[str, BlindCut] | None = None
) -> tuple[str, tuple[int, ...], SplitPlan, SplitSnapshot]:
    """One round of one bundle: its outcome, where it is cut, and everything."""
    snapshot = Cluster({A: load}).snapshot()
    memory = SplitMemory(hits=np.zeros(1, dtype=np.int64), blind_cuts=blind_cuts or {})
    plan, _ = split(snapshot, memory, settings)
    return outcomes(snapshot, plan)[A], cuts(snapshot, plan).get(A, ()), plan, snapshot


def ten(*, sessions: int = 4, heavy: Topic | None = None) -> dict[str, Topic]:
    """Ten topics with ten messages/s each; ``heavy`` replaces the fifth."""
    found = {f"t{number}": Topic(100 * number, 10.0, 1000.0, sessions) for number in range(10)}
    return found | ({f"t{HEAVY}": replace(heavy, position=100 * HEAVY)} if heavy else {})


def of(topics: Topics, *, sessions_count: int | None = None) -> Load:
    """A bundle whose owner reports the sums over these topics, unless another number of sessions is given."""
    known = sum(each.sessions for each in topics.values())
    return Load(
        topics_count=len(topics),
        sessions_count=known if sessions_count is None else sessions_count,
        messages_per_s=sum(each.messages_per_s for each in topics.values()),
        bytes_per_s=sum(each.bytes_per_s for each in topics.values()),
        topics=topics,
    )


def test_a_bundle_whose_clients_are_those_of_one_topic_is_not_cut_and_the_topic_is_named() -> None:
    outcome, boundaries, plan, snapshot = decide(of(ten(heavy=Topic(0, 10.0, 1000.0, 40_000))))
    assert (outcome, boundaries) == ("dominant-topic", ())
    assert snapshot.topic_table.names[plan.examined.heaviest_topic[0]] == f"t{HEAVY}"


@pytest.mark.parametrize("measure", ["messages_per_s", "bytes_per_s", "sessions"])
def test_one_topic_is_named_alike_whatever_it_has_too_much_of(measure: str) -> None:
    heavy = replace(Topic(0, 10.0, 1000.0, 4), **{measure: 10**9})
    assert decide(of(ten(heavy=heavy)))[0] == "dominant-topic"


def test_where_clients_are_known_by_topic_every_part_gets_below_seven_tenths_of_the_limit() -> None:
    _, boundaries, plan, _ = decide(evenly(10.0, count=90, sessions=1800))
    assert len(boundaries) == 2
    assert [child.sessions_count for child in plan.decisions[0].children] == [600, 600, 600]
    assert "sessions" in plan.decisions[0].known


def test_where_clients_are_not_known_by_topic_it_is_cut_once_in_the_middle_of_its_topics() -> None:
    outcome, boundaries, plan, _ = decide(of(ten(sessions=0), sessions_count=40_000))
    assert (outcome, boundaries) == ("acted", (450,))
    assert "sessions" not in plan.decisions[0].known
    assert "its parts are looked at" in plan.decisions[0].cut.reason


@pytest.mark.parametrize(("place", "boundaries_count"), [(4, 2), (0, 1), (9, 1)])
def test_where_clients_are_not_known_the_topic_with_most_traffic_is_cut_off(
    place: int, boundaries_count: int
) -> None:
    topics = {
        name: replace(each, messages_per_s=200.0 if name == f"t{place}" else 5.0)
        for name, each in ten(sessions=0).items()
    }
    _, boundaries, plan, _ = decide(of(topics, sessions_count=40_000))
    assert len(boundaries) == boundaries_count
    (alone,) = [each for each in plan.decisions[0].children if each.range.contains(100 * place)]
    assert alone.topics_count == 1


@pytest.mark.parametrize(
    ("known", "outcome"),
    [
        pytest.param(8001, "dominant-topic", id="four fifths are those of one topic"),
        pytest.param(7900, "acted", id="of more than a fifth it is not known whose they are"),
    ],
)
def test_topics_have_to_account_for_four_fifths_of_what_the_owner_reports(known: int, outcome: str) -> None:
    load = of(ten(sessions=0, heavy=Topic(0, 10.0, 1000.0, known)), sessions_count=10_000)
    found, _, plan, _ = decide(load)
    assert found == outcome
    assert not plan.decisions or "sessions" not in plan.decisions[0].known


HALF_KNOWN = replace(evenly(40000.0), messages_per_s=80000.0)
"""Statistics without half of the traffic."""


@pytest.mark.parametrize("algorithm", ["balanced_flow_divide", "flow_or_qps_equally_divide"])
def test_statistics_that_lack_half_of_the_traffic_are_no_evidence(algorithm: str) -> None:
    outcome, _, plan, _ = decide(HALF_KNOWN, replace(AT_ONCE, algorithm=algorithm))
    assert outcome == "no-topic-stats"
    assert plan.examined.reasons[0].startswith(
        "the statistics of its topics account for 50% of its messages/s"
    )


def test_a_setting_allows_one_cut_in_the_middle_of_the_range_and_its_parts_are_looked_at() -> None:
    settings = replace(AT_ONCE, without_topic_stats="range")
    assert decide(HALF_KNOWN, settings)[:2] == ("acted", (0x20000000,))
    for kept_ratio, outcome in ((0.7, "no-topic-stats"), (0.6, "acted")):
        blind_cuts = {A: BlindCut("messages", 80000.0 / kept_ratio)}
        assert decide(HALF_KNOWN, settings, blind_cuts=blind_cuts)[0] == outcome


def test_a_part_that_kept_its_clients_is_not_cut_again_before_they_are_known_by_topic() -> None:
    blind_cuts = {A: BlindCut("sessions", 40_040.0)}
    kept = of(ten(sessions=0), sessions_count=40_020)
    outcome, boundaries, plan, _ = decide(kept, blind_cuts=blind_cuts)
    assert (outcome, boundaries) == ("no-topic-stats", ())
    assert plan.examined.reasons[0].startswith(
        "100% of the producers and consumers of the bundle that it was"
    )
    assert decide(of(ten(sessions=4002)), blind_cuts=blind_cuts)[0] == "acted", "now they are known"


@pytest.mark.parametrize(
    ("lower", "outcome"),
    [
        pytest.param(8000.0, "acted", id="a tenth and more is divided off"),
        pytest.param(6000.0, "no-boundary", id="nine tenths would stay together"),
    ],
)
def test_a_cut_that_leaves_nine_tenths_together_is_not_made(lower: float, outcome: str) -> None:
    topics = {
        "t0": Topic(0, lower),
        "t1": Topic(100),
        "t2": Topic(200, 40000.0),
        "t3": Topic(300, 24000.0),
    }
    found, _, plan, _ = decide(of(topics), replace(AT_ONCE, algorithm="topic_count_equally_divide"))
    assert found == outcome
    assert outcome == "acted" or "91% of its messages/s would stay together" in plan.examined.reasons[0]


def test_where_a_cut_cannot_help_against_one_limit_it_is_made_against_another() -> None:
    topics = {
        name: replace(each, messages_per_s=8000.0)
        for name, each in ten(heavy=Topic(0, 8000.0, 1000.0, 40_000)).items()
    }
    _, boundaries, plan, _ = decide(of(topics))
    assert boundaries
    assert plan.examined.trigger_of(0) == "messages"
    assert plan.examined.evidence_of(0)["limit"] == 30000.0


@given(
    place=st.integers(0, 29),
    clients=st.integers(3000, 10**6),
    traffic=st.lists(st.floats(0.0, 100.0), min_size=30, max_size=30),
    are_known=st.booleans(),
)
def test_one_topic_with_the_clients_costs_at_most_two_boundaries_for_good(
    place: int, clients: int, traffic: list[float], *, are_known: bool
) -> None:
    topics = {
        f"t{number:02d}": Topic(1000 * number, rate, 10 * rate, clients if number == place else 1)
        for number, rate in enumerate(traffic)
    }
    assert len(_cut_until_nothing_changes(topics, are_known=are_known)) <= 1 + 2


@given(count=st.integers(20, 60), each=st.integers(100, 400))
def test_clients_that_are_spread_evenly_are_divided_although_they_are_not_known_by_topic(
    count: int, each: int
) -> None:
    topics = {f"t{number:02d}": Topic(1000 * number, 1.0, 10.0, each) for number in range(count)}
    parts = _cut_until_nothing_changes(topics, are_known=False)
    assert max(sum(topic.sessions for topic in part.values()) for part in parts.values()) <= 1000


def _cut_until_nothing_changes(topics: Topics, *, are_known: bool) -> dict[str, dict[str, Topic]]:
    """The bundles in the end, with their topics, where each round's cuts are carried out before the next round."""
    bundles, blind_cuts = {A: dict(topics)}, dict[str, BlindCut]()
    for _ in range(40):
        loads = {
            name: of(
                {topic: each if are_known else replace(each, sessions=0) for topic, each in inside.items()},
                sessions_count=sum(each.sessions for each in inside.values()),
            )
            for name, inside in bundles.items()
            if inside
        }
        snapshot = Cluster(loads).snapshot()
        memory = SplitMemory(hits=np.zeros(len(snapshot), dtype=np.int64), blind_cuts=blind_cuts)
        decisions = split(snapshot, memory, AT_ONCE)[0].decisions
        if not decisions:
            return bundles
        for decision in decisions:
            name = snapshot.names[decision.row]
            inside = bundles.pop(name)
            for child in Bundle.parse(name).cut(decision.cut.boundaries):
                bundles[str(child)] = {
                    topic: each for topic, each in inside.items() if child.range.contains(each.position)
                }
                if "sessions" not in decision.known:
                    blind_cuts[str(child)] = BlindCut("sessions", float(loads[name].sessions_count))
    raise AssertionError("it never ends")


FIVE = {f"t{number}": Topic(100 * number) for number in range(5)}


@pytest.mark.parametrize("without", ["hold", "range"])
@pytest.mark.parametrize(
    "topics",
    [
        pytest.param({}, id="its statistics have no topics"),
        pytest.param(FIVE, id="its topics have no traffic"),
        pytest.param(None, id="no statistics"),
    ],
)
def test_a_bundle_that_carries_nothing_now_is_not_cut_for_what_it_carried_before(
    topics: Topics | None, without: Literal["hold", "range"]
) -> None:
    snapshot = Cluster({A: Load(topics_count=5, topics=topics)}).snapshot()
    proposals = Proposals(
        rows=np.array([0]),
        triggers=np.array([BY_BROKER_MESSAGES], dtype=np.int8),
        boundaries_counts=np.array([1]),
        means_per_s=np.array([1000.0]),
        replaced_counts=np.array([0]),
    )
    memory = SplitMemory(hits=np.zeros(1, dtype=np.int64))
    plan, _ = split(snapshot, memory, replace(AT_ONCE, without_topic_stats=without), proposals)
    assert outcomes(snapshot, plan) == {A: "no-boundary"}
    assert plan.examined.reasons == {0: "it has 0 messages/s now"}
