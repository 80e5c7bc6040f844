"""The four algorithms that Pulsar ships: hand-computed cases, and thousands against the naive ones."""

import random

import pytest

from policies.splitting.algorithms import ALGORITHMS, PositionsMissing, UnknownAlgorithm, divide
from policies.splitting.cut import BundleLimits
from policies.splitting.ranges import FULL_UPPER, BadRange, BundleRange
from tests.policies.splitting import oracle
from tests.policies.splitting.bundles import FULL_RANGE, MIB, Topic, Topics, at, by_rate, parts, question

RANGE, COUNT = "range_equally_divide", "topic_count_equally_divide"
SPECIFIED, FLOW = "specified_positions_divide", "flow_or_qps_equally_divide"

PIP_169 = {
    f"t{step}": Topic(where, 100.0 * step, 10 * MIB * step)
    for step, where in enumerate((10, 20, 80, 90, 100, 110), 1)
}
"""The example of PIP-169; its limits are 1100 messages/s and 110 MiB/s."""


@pytest.mark.parametrize(
    ("positions", "boundaries", "reason"),
    [
        pytest.param((10, 20, 80, 90), (50,), "half of 4 topics", id="between the two in the middle"),
        pytest.param((10, 20, 80), (15,), "half of 3 topics", id="of three the first is alone"),
        pytest.param((10, 21), (15,), "half of 2 topics", id="rounded down"),
        pytest.param((10,), (), "1 topic in the bundle", id="one topic"),
        pytest.param((), (), "0 topics in the bundle", id="no topic"),
        pytest.param((10, 11), (10,), "separates nothing", id="neighbours: the boundary is a topic's own"),
        pytest.param((10, 10), (10,), "separates nothing", id="a collision cannot be separated"),
        pytest.param(
            (5, 10, 11, 12), (10,), "that topic goes to the upper child", id="neighbours in the middle"
        ),
        pytest.param(
            (0, 1), (), "not strictly inside", id="a boundary at the lower bound, which Pulsar refuses"
        ),
    ],
)
def test_topic_count_equally_divide_halves_the_topics(
    positions: tuple[int, ...], boundaries: tuple[int, ...], reason: str
) -> None:
    cut = divide(COUNT, question(at(*positions)))
    assert cut.boundaries == boundaries
    assert reason in cut.reason


@pytest.mark.parametrize(
    ("wanted", "boundaries", "reason"),
    [
        pytest.param(
            (15, 50, 85), (15, 50, 85), "cut at the positions", id="PIP-143: four topics, four bundles"
        ),
        pytest.param((85, 15, 50), (15, 50, 85), "cut at the positions", id="sorted"),
        pytest.param((50, 50), (50,), "1 left out", id="each once"),
        pytest.param((0, 50, 0x200, -3, 1 << 70), (50,), "4 left out", id="outside dropped"),
        pytest.param((0, 0x200), (), "none of the positions given", id="nothing left"),
        pytest.param((300,), (300,), "separates nothing", id="a cut behind all topics"),
    ],
)
def test_specified_positions_divide_takes_what_is_inside(
    wanted: tuple[int, ...], boundaries: tuple[int, ...], reason: str
) -> None:
    cut = divide(SPECIFIED, question(at(10, 20, 80, 90), positions=wanted))
    assert cut.boundaries == boundaries
    assert reason in cut.reason


def test_specified_positions_divide_needs_positions_and_two_topics() -> None:
    with pytest.raises(PositionsMissing, match="split boundaries can't be empty"):
        divide(SPECIFIED, question(at(10, 20)))
    assert divide(SPECIFIED, question(at(10), positions=(15,))).boundaries == ()


@pytest.mark.parametrize(("boundary", "expected"), [("shipped", 96), ("proposal", 95)])
def test_pip_169_is_cut_before_the_fifth_topic(boundary: str, expected: int) -> None:
    asked = question(PIP_169, messages_per_s=1100, bytes_per_s=110 * MIB, boundary=boundary)
    cut = divide(FLOW, asked)
    assert cut.boundaries == (expected,)
    assert parts(asked, cut.boundaries) == [["t1", "t2", "t3", "t4"], ["t5", "t6"]]


@pytest.mark.parametrize(
    ("topics", "percent", "boundaries", "reason"),
    [
        pytest.param(by_rate(a=600, b=499), 10, (), "below the limits", id="below the limit and a tenth"),
        pytest.param(
            by_rate(a=650, b=500), 15, (16,), "cut", id="at the limit and its threshold it proceeds"
        ),
        pytest.param(
            by_rate(a=500, b=500), 0, (), "nowhere pass a limit", id="exactly the limit, no threshold"
        ),
        pytest.param(by_rate(a=300, b=300), -50, (), "nowhere pass a limit", id="a negative threshold"),
        pytest.param(
            by_rate(a=5000, b=10, c=10),
            10,
            (16,),
            "cut",
            id="an outstanding topic in front has its own child",
        ),
        pytest.param(
            by_rate(a=10, b=5000, c=10), 10, (16, 26), "cut", id="an outstanding topic has its own child"
        ),
        pytest.param(by_rate(a=9000), 10, (), "1 topic in the bundle", id="one topic"),
        pytest.param(by_rate(a=9000, b=0), 10, (), "fewer than two positions", id="one topic with traffic"),
        pytest.param(
            by_rate(a=900, idle=0, b=900),
            10,
            (21,),
            "cut",
            id="a topic without traffic is not even a neighbour",
        ),
        pytest.param(
            {"a": Topic(10, 900), "b": Topic(10, 900)}, 10, (), "fewer than two positions", id="a collision"
        ),
        pytest.param(
            {"a": Topic(10, 900), "b": Topic(10, 1), "c": Topic(20, 800)},
            10,
            (),
            "nowhere pass a limit",
            id="of topics at one position the last by name stands for both",
        ),
        pytest.param(
            {"a": Topic(10, 1), "b": Topic(10, 900), "c": Topic(20, 800)},
            10,
            (11, 16),
            "separates nothing",
            id="a cut inside a collision is above both of its topics",
        ),
        pytest.param(
            {"a": Topic(10, 0, 90 * MIB), "b": Topic(20, 0, 90 * MIB)},
            10,
            (16,),
            "cut",
            id="throughput alone",
        ),
    ],
)
def test_flow_or_qps_cuts_where_the_running_total_would_pass_the_limit(
    topics: Topics, percent: float, boundaries: tuple[int, ...], reason: str
) -> None:
    cut = divide(FLOW, question(topics, difference_threshold_percent=percent))
    assert cut.boundaries == boundaries
    assert reason in cut.reason


def test_the_proposals_boundary_between_neighbours_separates_nothing_and_the_shipped_one_does() -> None:
    topics = {"a": Topic(10, 900), "b": Topic(11, 900)}
    assert "separates nothing" in divide(FLOW, question(topics, boundary="proposal")).reason
    asked = question(topics)
    assert parts(asked, divide(FLOW, asked).boundaries) == [["a"], ["b"]]


def test_between_the_two_last_positions_of_all_there_is_no_boundary() -> None:
    topics = {"a": Topic(FULL_UPPER - 1, 900), "b": Topic(FULL_UPPER, 900)}
    assert divide(FLOW, question(topics, range_=FULL_RANGE)).boundaries == ()


def random_topics(draw: random.Random, range_: BundleRange) -> Topics:
    """Few positions for many topics, so that neighbours, collisions and bounds are met often."""
    near = draw.choice([3, 20, 1 << 31])
    low = draw.choice([range_.lower, max(range_.lower, range_.last - near)])
    names = [f"t{draw.randrange(1000)}" for _ in range(draw.choice([0, 1, 2, 3, 5, 8, 20]))]
    return {
        name: Topic(
            draw.randint(low, min(range_.last, low + near)),
            draw.choice([0.0, 0.25, 1.0, 100.0, 400.0, 999.75, 1000.0, 2500.0]),
            draw.choice([0.0, 1.0, 10 * MIB, 100 * MIB]),
        )
        for name in names
    }


def random_range(draw: random.Random) -> BundleRange:
    lower = draw.choice([0, 100, 0x7FFFFFFF, FULL_UPPER - 5])
    return BundleRange(lower, min(FULL_UPPER, lower + draw.choice([2, 3, 25, 512, 1 << 32])))


def test_all_four_give_pulsars_boundaries_on_thousands_of_bundles() -> None:
    draw = random.Random(4)  # noqa: S311  not a secret
    for _ in range(2000):
        range_ = random_range(draw)
        topics = random_topics(draw, range_)
        wanted = [draw.randint(range_.lower - 2, range_.upper + 2) for _ in range(draw.choice([1, 2, 3, 7]))]
        percent, boundary = draw.choice([10.0, 0.0, -20.0, 33.0]), draw.choice(["shipped", "proposal"])
        asked = question(
            topics,
            range_=range_,
            positions=tuple(wanted),
            difference_threshold_percent=percent,
            boundary=boundary,
        )
        expected = {
            RANGE: oracle.range_equally_divide(range_),
            COUNT: oracle.topic_count_equally_divide(topics),
            SPECIFIED: oracle.specified_positions_divide(range_, topics, wanted),
            FLOW: oracle.flow_or_qps_equally_divide(
                topics, 1000.0, 100 * MIB, percent, 1 if boundary == "shipped" else 0
            ),
        }
        for algorithm, boundaries in expected.items():
            cut = divide(algorithm, asked)
            assert cut.boundaries == oracle.taken(range_, boundaries), (algorithm, topics, range_)
            empty = cut.boundaries and [] in parts(asked, cut.boundaries)
            assert ("separates nothing" in cut.reason) == bool(topics and empty)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_range_of_width_1_is_refused_whatever_the_algorithm(algorithm: str) -> None:
    asked = question({"a": Topic(10, 900), "b": Topic(10, 900)}, range_=BundleRange(10, 11), positions=(10,))
    with pytest.raises(BadRange, match="0x0000000a_0x0000000b can't be split further"):
        divide(algorithm, asked)


def test_an_unknown_algorithm_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownAlgorithm, match=f"'halves' is no split algorithm; there are .*{FLOW}.*{SPECIFIED}"
    ):
        divide("halves", question(at(10, 20)))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_are_above_0(value: float) -> None:
    with pytest.raises(ValueError, match="the limit messages_per_s is"):
        BundleLimits(messages_per_s=value)
