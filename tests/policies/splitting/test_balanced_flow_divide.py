"""``balanced_flow_divide``: few cuts, the heaviest child as light as it can be, and always a real separation."""

import random
import time
from itertools import combinations, pairwise

import numpy as np
import pytest

from policies.splitting.algorithms import divide
from policies.splitting.cut import BundleLimits, SplitQuestion, children, topic_loads
from policies.splitting.ranges import FULL_UPPER, BundleRange, positions_of
from tests.policies.splitting.bundles import FULL_RANGE, MIB, Topic, Topics, at, by_rate, parts, question

BALANCED = "balanced_flow_divide"


def balanced(topics: Topics, **rest: object) -> tuple[list[list[str]], str]:
    """Names by child, and the reason; no child without a cut."""
    asked = question(topics, **rest)  # type: ignore[arg-type]
    cut = divide(BALANCED, asked)
    return (parts(asked, cut.boundaries) if cut.boundaries else []), cut.reason


def test_four_equal_topics_and_three_boundaries_are_the_example_of_pip_143() -> None:
    asked = question(at(10, 20, 80, 90, messages_per_s=100.0), boundaries_count=3)
    assert divide(BALANCED, asked).boundaries == (15, 50, 85)


@pytest.mark.parametrize(
    ("topics", "children_", "reason"),
    [
        pytest.param(by_rate(a=300, b=300), [], "below max_child_ratio 0.7", id="nothing to do"),
        pytest.param(
            by_rate(a=600, b=600), [["a"], ["b"]], "at 1.20 of its limits, the heaviest of 2", id="halves"
        ),
        pytest.param(
            by_rate(a=600, b=200, c=500, d=100, e=300),
            [["a"], ["b"], ["c", "d"], ["e"]],
            "the heaviest of 4 children at 0.60",
            id="exactly the ratio is not below it",
        ),
        pytest.param(
            by_rate(a=10, hot=2000, b=20, c=30),
            [["a"], ["hot"], ["b", "c"]],
            "hot alone is at 2.00 and stands by itself",
            id="PIP-143: an outstanding partition gets a bundle of its own",
        ),
        pytest.param(
            by_rate(h1=900, h2=900, a=10),
            [["h1"], ["h2"], ["a"]],
            "h1 alone is at 0.90 and stands by itself; h2 alone",
            id="two outstanding partitions side by side",
        ),
        pytest.param(
            by_rate(idle=0, hot=2000, idle2=0),
            [],
            "hot carries the whole load: a split cannot help",
            id="one topic",
        ),
        pytest.param(by_rate(a=0, b=0), [], "nothing to balance", id="no traffic"),
        pytest.param({}, [], "nothing to balance", id="no topics"),
        pytest.param(
            {"a": Topic(10, 900), "b": Topic(10, 900), "c": Topic(10)},
            [],
            "a and b carries the whole load",
            id="a collision cannot be separated",
        ),
        pytest.param(
            {"a": Topic(10, 900), "b": Topic(10, 900), "c": Topic(11, 10)},
            [["a", "b"], ["c"]],
            "a and b alone is at 1.80",
            id="what collides stands together",
        ),
        pytest.param(
            {"a": Topic(10, 600, 1 * MIB), "b": Topic(20, 10, 60 * MIB), "c": Topic(30, 600, 1 * MIB)},
            [["a", "b"], ["c"]],
            "at 0.61",
            id="rate and throughput are each a share of their own limit",
        ),
    ],
)
def test_the_fewest_children_below_the_ratio(topics: Topics, children_: list[list[str]], reason: str) -> None:
    found, why = balanced(topics)
    assert found == children_
    assert reason in why


def test_of_equally_good_cuts_the_fewest_are_taken() -> None:
    assert balanced(by_rate(a=10, hot=100, b=10, c=20), boundaries_count=3)[0] == [["a"], ["hot"], ["b", "c"]]
    assert balanced(by_rate(idle=0, hot=100, idle2=0, idle3=0), boundaries_count=3)[0] == []


def test_a_namespace_without_room_gets_the_best_it_has_room_for() -> None:
    topics = by_rate(a=600, b=600, c=600, d=600)
    found, reason = balanced(topics, max_boundaries_count=1)
    assert found == [["a", "b"], ["c", "d"]]
    assert "3 boundaries would be needed and 1 is allowed" in reason


def test_the_number_of_topics_can_be_a_load_as_well() -> None:
    limits = BundleLimits(messages_per_s=1000, bytes_per_s=MIB, topics_count=4)
    asked = question(at(*range(10, 80, 10)))
    asked = SplitQuestion(range=asked.range, topics=asked.topics, limits=limits)
    assert [len(names) for names in parts(asked, divide(BALANCED, asked).boundaries)] == [2, 2, 2, 1]


def test_every_boundary_separates_even_direct_neighbours() -> None:
    asked = question({"a": Topic(10, 900), "b": Topic(11, 900)})
    assert divide(BALANCED, asked).boundaries == (11,)


def test_the_two_last_positions_of_all_stay_together() -> None:
    topics = {"a": Topic(5, 900), "b": Topic(FULL_UPPER - 1, 900), "c": Topic(FULL_UPPER, 900)}
    assert balanced(topics, range_=FULL_RANGE)[0] == [["a"], ["b", "c"]]


def test_rounding_makes_no_difference_of_equal_loads() -> None:
    assert balanced(by_rate(a=0.1, b=0.2, c=0.3), boundaries_count=2)[0] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_boundaries_below_1_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"boundaries_count is {count}; expected 1 or more"):
        divide(BALANCED, question(at(10, 20), boundaries_count=count))


def ratio_of(topics: list[Topic]) -> float:
    return max(
        sum(topic.messages_per_s for topic in topics) / 1000.0,
        sum(topic.bytes_per_s for topic in topics) / (100 * MIB),
    )


def every_cut(topics: Topics, range_: BundleRange, most: int | None) -> list[tuple[list[list[Topic]], int]]:
    """Every way to cut between different positions where Pulsar takes the boundary, with its number of boundaries."""
    rows = sorted(topics.values(), key=lambda topic: topic.position)
    places = [
        place
        for place, (before, after) in enumerate(pairwise(rows), 1)
        if before.position < after.position and (before.position + after.position + 1) // 2 < range_.upper
    ]
    ways = []
    for count in range(len(places) + 1 if most is None else min(most, len(places)) + 1):
        for chosen in combinations(places, count):
            edges = [0, *chosen, len(rows)]
            ways.append(([rows[low:high] for low, high in pairwise(edges)], count))
    return ways


def stands_alone(child: list[Topic]) -> bool:
    """Whether all load of a child is at one position, or at the two between which there is no boundary."""
    loaded = {topic.position for topic in child if topic.messages_per_s or topic.bytes_per_s}
    return len(loaded) == 1 or loaded == {FULL_UPPER - 1, FULL_UPPER}


def best_below(topics: Topics, range_: BundleRange, ratio: float) -> tuple[int, float]:
    """Fewest boundaries where only children that stand alone reach ``ratio``, and the lowest ratio of the heaviest other child."""
    fit = [
        (count, max((ratio_of(child) for child in way if ratio_of(child) < ratio), default=0.0))
        for way, count in every_cut(topics, range_, None)
        if all(ratio_of(child) < ratio or stands_alone(child) for child in way)
    ]
    return min(fit)


def random_bundle(draw: random.Random) -> tuple[Topics, BundleRange]:
    range_ = draw.choice(
        [BundleRange(0, 0x200), BundleRange(FULL_UPPER - 20, FULL_UPPER), BundleRange(7, 16)]
    )
    near = min(range_.last, range_.lower + draw.choice([8, 500]))
    return {
        f"t{number}": Topic(
            draw.randint(range_.lower, near) if draw.random() < 0.8 else range_.last - draw.randint(0, 2),
            float(draw.choice([0, 10, 50, 100, 200, 300, 699, 700, 1500])),
            draw.choice([0, 0, 5, 30, 70, 150]) * MIB,
        )
        for number in range(draw.randint(1, 8))
    }, range_


def heaviest_of(asked: SplitQuestion, boundaries: tuple[int, ...], below: float | None = None) -> float:
    ratios = [
        asked.limits.ratio(child.messages_per_s, child.bytes_per_s) for child in children(asked, boundaries)
    ] or [
        ratio_of(
            [
                Topic(0, *load)
                for load in zip(asked.topics.messages_per_s, asked.topics.bytes_per_s, strict=True)
            ]
        )
    ]
    return max((ratio for ratio in ratios if below is None or ratio < below), default=0.0)


def test_with_a_number_given_nothing_lighter_and_nothing_smaller_exists() -> None:
    draw = random.Random(5)  # noqa: S311  not a secret
    for _ in range(1000):
        topics, range_ = random_bundle(draw)
        most = draw.randint(1, 4)
        asked = question(topics, range_=range_, boundaries_count=most)
        cut = divide(BALANCED, asked)
        best, fewest = min((max(map(ratio_of, way)), count) for way, count in every_cut(topics, range_, most))
        assert heaviest_of(asked, cut.boundaries) == pytest.approx(best, rel=1e-8), (topics, range_, most)
        assert len(cut.boundaries) == fewest, (topics, range_, most)
        assert "separates nothing" not in cut.reason


def test_without_a_number_nothing_smaller_and_nothing_lighter_exists() -> None:
    draw = random.Random(6)  # noqa: S311  not a secret
    for _ in range(1000):
        topics, range_ = random_bundle(draw)
        asked = question(topics, range_=range_)
        cut = divide(BALANCED, asked)
        fewest, best = best_below(topics, range_, 0.7)
        assert len(cut.boundaries) == fewest, (topics, range_, cut)
        assert heaviest_of(asked, cut.boundaries, below=0.7) == pytest.approx(best, rel=1e-8), (
            topics,
            range_,
        )
        assert "separates nothing" not in cut.reason


@pytest.mark.parametrize("times_the_limit", [3, 50, 500])
def test_a_hundred_thousand_topics_take_at_most_100_ms(times_the_limit: int) -> None:
    draw = np.random.default_rng(1)
    names = [f"persistent://t/n/topic-{number}" for number in range(100_000)]
    weight = draw.lognormal(0.0, 1.0, (2, len(names)))
    weight *= times_the_limit / weight.sum(axis=1, keepdims=True)
    topics = topic_loads(
        names,
        positions=positions_of(names),
        messages_per_s=weight[0] * 30000,
        bytes_per_s=weight[1] * 100 * MIB,
    )
    asked = SplitQuestion(range=FULL_RANGE, topics=topics)
    taken = []
    for _ in range(3):
        begun = time.process_time()
        cut = divide(BALANCED, asked)
        taken.append(time.process_time() - begun)
    assert min(taken) <= 0.1
    assert len(cut.boundaries) >= times_the_limit
