"""When a bundle is split: limits, hits, what holds it back, and what a split cannot help."""

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from policies.splitting.criteria import hot_partitions, split
from policies.splitting.plan import (
    BY_BROKER_MESSAGES,
    NO_PROPOSALS,
    OUTCOMES,
    Proposals,
    SplitMemory,
    SplitPlan,
    SplitSettings,
)
from tests.policies.splitting.bundles import (
    MIB,
    Cluster,
    Load,
    Topic,
    cuts,
    evenly,
    no_hits,
    outcomes,
)

DEFAULT = SplitSettings()
AT_ONCE = SplitSettings(hit_count=0)
A, B, C = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/m/0x00000000_0xffffffff"


def decide(
    bundles: Mapping[str, Load],
    settings: SplitSettings = AT_ONCE,
    *,
    namespace_counts: Mapping[str, int] | None = None,
) -> tuple[dict[str, str], dict[str, tuple[int, ...]], SplitPlan]:
    """One round without memory: outcomes, cuts, everything."""
    snapshot = Cluster(bundles, namespace_counts or {}).snapshot()
    plan, _ = split(snapshot, no_hits(snapshot), settings)
    return outcomes(snapshot, plan), cuts(snapshot, plan), plan


def hits_after(settings: SplitSettings, *rounds: Load) -> list[int]:
    """Hits of one bundle after each round."""
    found, hits = [], np.zeros(1, dtype=np.int64)
    for load in rounds:
        snapshot = Cluster({A: load}).snapshot()
        hits = split(snapshot, SplitMemory(hits=hits), settings)[1].hits
        found.append(int(hits[0]))
    return found


@pytest.mark.parametrize(
    ("load", "trigger"),
    [
        pytest.param(Load(topics_count=1001), "topics", id="1001 topics"),
        pytest.param(Load(sessions_count=1001), "sessions", id="1001 sessions"),
        pytest.param(Load(messages_per_s=30000.5), "messages", id="above 30,000 messages/s"),
        pytest.param(Load(bytes_per_s=100 * MIB + 1), "bytes", id="above 100 MiB/s"),
        pytest.param(
            Load(topics_count=2000, sessions_count=2000, messages_per_s=9e9, bytes_per_s=9e9),
            "topics",
            id="of several the first in Pulsar's order",
        ),
        pytest.param(
            Load(topics_count=1000, sessions_count=1000, messages_per_s=30000.0, bytes_per_s=100 * MIB),
            None,
            id="at a limit is not above it",
        ),
        pytest.param(Load(), None, id="nothing much"),
    ],
)
def test_a_bundle_above_a_limit_is_a_candidate(load: Load, trigger: str | None) -> None:
    _, _, plan = decide({A: load})
    assert [plan.examined.trigger_of(row) for row in range(len(plan.examined))] == (
        [trigger] if trigger else []
    )


def test_0_switches_topics_and_sessions_off() -> None:
    settings = replace(AT_ONCE, max_topics_count=0, max_sessions_count=0)
    assert decide({A: Load(topics_count=10**6, sessions_count=10**6)}, settings)[0] == {}


HOT, CALM = evenly(40000.0), evenly(100.0)


@pytest.mark.parametrize(
    ("rounds", "hits"),
    [
        pytest.param([HOT] * 5, [1, 2, 3, 0, 1], id="the fourth in a row splits, then it starts again"),
        pytest.param([HOT, HOT, CALM, HOT], [1, 2, 0, 1], id="a calm round erases them"),
        pytest.param(
            [HOT, HOT, replace(HOT, topics_count=1), HOT],
            [1, 2, 2, 3],
            id="they stand still below two topics",
        ),
        pytest.param(
            [HOT] * 3 + [replace(HOT, may_split=False)] * 2 + [HOT],
            [1, 2, 3, 4, 5, 0],
            id="a masked bundle counts on and is split as soon as it may be",
        ),
        pytest.param(
            [HOT, replace(HOT, messages_per_s=0.0, sessions_count=2000)], [1, 2], id="whatever limit it is"
        ),
    ],
)
def test_hits_are_counted_round_by_round(rounds: list[Load], hits: list[int]) -> None:
    assert hits_after(DEFAULT, *rounds) == hits


def test_the_memory_passed_in_is_not_changed() -> None:
    snapshot = Cluster({A: HOT}).snapshot()
    memory = no_hits(snapshot)
    split(snapshot, memory, DEFAULT)
    assert memory.hits.tolist() == [0]


@pytest.mark.parametrize(
    ("load", "outcome"),
    [
        pytest.param(HOT, "acted", id="a split helps"),
        pytest.param(replace(HOT, topics_count=1), "sole-topic", id="one topic cannot be divided"),
        pytest.param(replace(HOT, topics_count=0), "sole-topic", id="nor can none"),
        pytest.param(replace(HOT, may_split=False), "masked", id="cooling, in flight or excluded"),
        pytest.param(replace(HOT, topics=None), "no-topic-stats", id="topics not known"),
        pytest.param(
            replace(HOT, topics={"hot": Topic(5, 36000.0), "cool": Topic(6, 4000.0)}),
            "dominant-topic",
            id="one topic carries nine tenths",
        ),
        pytest.param(
            replace(HOT, topics={"hot": Topic(5, 35600.0), "cool": Topic(6, 4400.0)}),
            "acted",
            id="one topic carries less than nine tenths",
        ),
        pytest.param(
            replace(HOT, topics={"a": Topic(5, 10.0), "b": Topic(6, 10.0)}),
            "no-topic-stats",
            id="by its topics it is not hot",
        ),
    ],
)
def test_every_candidate_has_one_outcome(load: Load, outcome: str) -> None:
    found, _, plan = decide({A: load})
    assert found == {A: outcome}
    assert plan.examined.counts() == {outcome: 1}
    assert len(plan.decisions) == (outcome == "acted")


def test_a_range_of_width_1_is_left_alone() -> None:
    assert decide({"t/n/0x00000000_0x00000001": HOT})[0] == {"t/n/0x00000000_0x00000001": "range-too-narrow"}


@pytest.mark.parametrize("bounds", ["0x40000000_0x00000000", "0x40000000_0x40000000"])
def test_a_bundle_whose_range_pulsar_would_refuse_is_not_split_and_holds_up_no_other(bounds: str) -> None:
    name = f"t/n/{bounds}"
    found, where, plan = decide({name: HOT, A: HOT})
    assert found == {name: "range-too-narrow", A: "acted"}
    assert where.keys() == {A}
    assert any(f"{bounds} is " in reason for reason in plan.examined.reasons.values())


@pytest.mark.parametrize("load", [replace(HOT, topics_count=1), HOT])
def test_the_topic_that_carries_the_load_is_named(load: Load) -> None:
    topics = {"small": Topic(3, 100.0, 9e9), "hot": Topic(5, 39900.0), "zero": Topic(9)}
    snapshot = Cluster({B: CALM, A: replace(load, topics=topics)}).snapshot()
    plan, _ = split(snapshot, no_hits(snapshot), AT_ONCE)
    assert [snapshot.topic_table.names[row] for row in plan.examined.heaviest_topic.tolist()] == ["hot"]


def test_by_throughput_the_topic_with_most_bytes_is_named() -> None:
    topics = {"small": Topic(3, 1.0, 9e9), "hot": Topic(5, 90.0)}
    snapshot = Cluster({A: Load(bytes_per_s=9e9, topics=topics)}).snapshot()
    plan, _ = split(snapshot, no_hits(snapshot), AT_ONCE)
    assert outcomes(snapshot, plan) == {A: "dominant-topic"}
    assert snapshot.topic_table.names[plan.examined.heaviest_topic[0]] == "small"


def test_where_no_boundary_is_found_the_algorithm_says_why() -> None:
    barely = Load(messages_per_s=40.0, topics={"a": Topic(5, 16.5), "b": Topic(6, 16.5)})
    settings = replace(AT_ONCE, max_messages_per_s=39.0, max_child_ratio=0.9)
    plan = decide({A: barely}, settings)[2]
    assert "below max_child_ratio 0.9" in plan.examined.reasons[0]


def test_the_default_cut_brings_every_child_below_seven_tenths() -> None:
    _, boundaries, plan = decide({A: evenly(42000.0)})
    assert boundaries == {A: (350, 750)}
    decision = plan.decisions[0]
    assert decision.algorithm == "balanced_flow_divide"
    assert [child.topics_count for child in decision.children] == [4, 4, 2]
    assert sum(child.messages_per_s for child in decision.children) == pytest.approx(42000.0)


def test_without_topic_statistics_the_range_is_cut_where_the_setting_allows() -> None:
    settings = replace(AT_ONCE, without_topic_stats="range")
    _, boundaries, plan = decide({A: replace(HOT, topics=None)}, settings)
    assert boundaries == {A: (0x20000000,)}
    assert plan.decisions[0].algorithm == "range_equally_divide"


def test_range_equally_divide_needs_no_topic_statistics() -> None:
    settings = replace(AT_ONCE, algorithm="range_equally_divide")
    assert decide({A: replace(HOT, topics=None)}, settings)[0] == {A: "acted"}


@pytest.mark.parametrize(
    ("load", "largest"),
    [
        pytest.param(replace(evenly(10.0, count=1200), topics_count=1200), 700, id="too many topics"),
        pytest.param(evenly(10.0, count=90, sessions=1800), 36, id="too many sessions"),
    ],
)
def test_too_many_topics_or_sessions_are_shared_out(load: Load, largest: int) -> None:
    plan = decide({A: load})[2]
    counts = [child.topics_count for child in plan.decisions[0].children]
    assert max(counts) < largest
    assert max(counts) - min(counts) <= len(counts)


def test_the_heaviest_come_first_and_ties_by_name() -> None:
    bundles = {C: evenly(40000.0), B: evenly(50000.0), A: evenly(40000.0)}
    assert list(decide(bundles)[0]) == [B, C, A]


def test_a_round_splits_so_many_bundles_and_no_more() -> None:
    bundles = {C: evenly(40000.0), B: _moved(evenly(50000.0), B), A: evenly(40000.0)}
    found = decide(bundles, replace(AT_ONCE, max_splits_per_round_count=2))[0]
    assert found == {B: "acted", C: "acted", A: "budget"}
    assert set(decide(bundles, replace(AT_ONCE, max_splits_per_round_count=0))[0].values()) == {"acted"}


def test_a_split_that_cannot_help_uses_up_nothing() -> None:
    bundles = {B: replace(evenly(50000.0), topics=None), A: evenly(40000.0)}
    found = decide(bundles, replace(AT_ONCE, max_splits_per_round_count=1))[0]
    assert found == {B: "no-topic-stats", A: "acted"}


@pytest.mark.parametrize(
    ("count", "found"),
    [
        pytest.param(126, {B: (350, 750)}, id="room for two: the heaviest takes both"),
        pytest.param(127, {B: (450,)}, id="room for one: the best that fits"),
        pytest.param(128, {}, id="no room"),
        pytest.param(200, {}, id="beyond"),
    ],
)
def test_a_namespace_has_at_most_128_bundles(count: int, found: dict[str, tuple[int, ...]]) -> None:
    bundles = {A: evenly(41000.0), B: evenly(42000.0)}
    bundles = {name: _moved(load, name) for name, load in bundles.items()}
    outcome, boundaries, _ = decide(bundles, namespace_counts={"t/n": count})
    low = 0x40000000
    assert boundaries == {name: tuple(low + at for at in cut) for name, cut in found.items()}
    assert outcome == {B: "acted" if found else "namespace-full", A: "namespace-full"}


def _moved(load: Load, name: str) -> Load:
    """The topics moved to the begin of their bundle's range."""
    low = int(name.rpartition("/")[2][2:10], 16)
    topics = {
        key: replace(topic, position=low + topic.position) for key, topic in (load.topics or {}).items()
    }
    return replace(load, topics=topics)


def test_a_cut_with_more_boundaries_than_room_is_not_made() -> None:
    settings = replace(AT_ONCE, algorithm="flow_or_qps_equally_divide")
    load = evenly(100000.0)
    assert decide({A: load}, settings, namespace_counts={"t/n": 127})[0] == {A: "namespace-full"}
    assert decide({A: load}, settings, namespace_counts={"t/n": 124})[0] == {A: "acted"}
    assert decide({A: load}, replace(settings, max_namespace_bundles_count=0), namespace_counts={"t/n": 999})[
        0
    ] == {A: "acted"}


def test_topics_outside_the_bundle_do_not_count() -> None:
    topics = {"in1": Topic(5, 20000.0), "in2": Topic(6, 20000.0), "out": Topic(0x50000000, 1.0)}
    plan = decide({A: replace(HOT, topics=topics)})[2]
    assert sum(child.topics_count for child in plan.decisions[0].children) == 2


def test_the_evidence_names_what_was_compared() -> None:
    assert decide({A: HOT}, DEFAULT)[2].examined.evidence_of(0) == {
        "bundle_topics_count": 10,
        "bundle_sessions_count": 10,
        "bundle_messages_per_s": 40000.0,
        "bundle_bytes_per_s": 0.0,
        "load_ratio": pytest.approx(4 / 3),
        "limit": 30000.0,
        "hit_count": 1,
        "needed_hit_count": 4,
    }


def test_partitions_too_hot_for_any_split_are_found_the_hottest_first() -> None:
    topics = {
        "b": Topic(1, 0, 30e6),
        "a": Topic(2, 0, 30e6),
        "max": Topic(3, 0, 90e6),
        "at": Topic(4, 0, 20e6),
    }
    table = Cluster({A: Load(topics=topics)}).snapshot().topic_table
    assert [table.names[row] for row in hot_partitions(table, DEFAULT)] == ["max", "a", "b"]
    assert hot_partitions(table, replace(DEFAULT, hot_partition_bytes_per_s=0)).tolist() == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"algorithm": "halves"}, "there are balanced_flow_divide"),
        ({"algorithm": "specified_positions_divide"}, "where a person gives the positions"),
        ({"max_child_ratio": 0.0}, "max_child_ratio is 0.0"),
        ({"max_child_ratio": float("nan")}, "max_child_ratio is nan"),
        ({"max_messages_per_s": 0.0}, "expected more than 0"),
        ({"average_samples": 0}, "average_samples is 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitSettings(**wrong)  # type: ignore[arg-type]


def random_load(draw: random.Random) -> Load:
    rate, volume = draw.choice([0.0, 500.0, 40000.0, 90000.0]), draw.choice([0.0, 50 * MIB, 200 * MIB])
    load = evenly(rate, count=draw.choice([1, 2, 7, 30]), bytes_per_s=volume)
    return replace(
        load,
        sessions_count=draw.choice([0, 5000]),
        may_split=draw.random() < 0.8,
        topics=load.topics if draw.random() < 0.7 else None,
    )


def test_order_changes_no_decision_and_every_candidate_ends_once() -> None:
    draw = random.Random(7)  # noqa: S311  not a secret
    for _ in range(200):
        bundles = {
            f"t/n{draw.randrange(2)}/0x{place << 28:08x}_0x{(place + 1) << 28:08x}": random_load(draw)
            for place in range(draw.randint(0, 12))
        }
        bundles = {name: _moved(load, name) for name, load in bundles.items()}
        settings = replace(
            AT_ONCE, max_splits_per_round_count=draw.choice([0, 1, 3]), max_namespace_bundles_count=8
        )
        shuffled = list(bundles.items())
        draw.shuffle(shuffled)
        found, cut, plan = decide(bundles, settings)
        assert decide(dict(shuffled), settings)[:2] == (found, cut)
        assert sum(plan.examined.counts().values()) == len(found)
        assert set(found.values()) <= set(OUTCOMES)
        assert {name for name, outcome in found.items() if outcome == "acted"} == set(cut)
        for name, load in bundles.items():
            assert load.may_split or found.get(name) in {None, "masked", "sole-topic"}
        looser = replace(settings, max_splits_per_round_count=0)
        assert set(cut) <= set(decide(bundles, looser)[1])


def proposed(**fields: object) -> Proposals:
    """A is to be cut once for its broker's sake."""
    usual: dict[str, object] = {
        "rows": np.array([0]),
        "triggers": np.array([BY_BROKER_MESSAGES], dtype=np.int8),
        "boundaries_counts": np.array([1]),
        "means_per_s": np.array([1000.0]),
        "replaced_counts": np.array([0]),
    }
    return Proposals(**usual | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "rate", "rounds", "found"),
    [
        pytest.param(
            {}, 5000.0, 4, ["hit-count"] * 3 + ["acted"], id="it overloads its broker for long enough"
        ),
        pytest.param({"has_counted": True}, 5000.0, 1, ["acted"], id="its policy has counted for itself"),
        pytest.param({}, 50000.0, 4, ["hit-count"] * 3 + ["acted"], id="above a limit as well"),
        pytest.param(
            {"barred": {0: "why"}}, 5000.0, 5, ["anti-affinity"] * 5, id="its parts could not leave"
        ),
        pytest.param(
            {"barred": {0: "why"}, "has_counted": True},
            50000.0,
            4,
            ["hit-count"] * 3 + ["acted"],
            id="its parts could not leave, and it is above a limit",
        ),
    ],
)
def test_a_bundle_is_cut_for_its_broker_once_it_overloads_it_for_long_enough_and_its_parts_may_leave(
    fields: dict[str, object], rate: float, rounds: int, found: list[str]
) -> None:
    snapshot, hits, seen = Cluster({A: evenly(rate)}).snapshot(), np.zeros(1, dtype=np.int64), []
    for _ in range(rounds):
        plan, memory = split(snapshot, SplitMemory(hits=hits), DEFAULT, proposed(**fields))
        hits = memory.hits
        seen.append(outcomes(snapshot, plan)[A])
        if seen[-1] == "anti-affinity":
            assert plan.examined.reasons == {0: "why"}
    assert seen == found


def test_a_bundle_that_overloads_its_broker_no_more_begins_to_count_anew() -> None:
    snapshot, hits, counts = Cluster({A: evenly(5000.0)}).snapshot(), np.zeros(1, dtype=np.int64), []
    for proposals in (proposed(), proposed(), NO_PROPOSALS, proposed()):
        hits = split(snapshot, SplitMemory(hits=hits), DEFAULT, proposals)[1].hits
        counts += hits.tolist()
    assert counts == [1, 2, 0, 1]
