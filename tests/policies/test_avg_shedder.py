"""AvgShedder: which pairs fire, how much they move, and the evidence that it gives."""

import pytest

from policies.shedding.avg_shedder import POLICY, AvgShedderMemory, AvgShedderSettings
from tests.policies.fleets import (
    Broker,
    Fleet,
    at,
    by_rate,
    by_volume,
    decide,
    examined_of,
    play,
    snapshot_of,
    tried_of,
    unloads_of,
)

DEFAULT = AvgShedderSettings()
AT_ONCE = AvgShedderSettings(low_hit_count=1, high_hit_count=1)
NO_HITS = AvgShedderMemory()
MIB = 1048576.0


def points(**cpu_points: float) -> Fleet:
    return {name: at(value) for name, value in cpu_points.items()}


def hits(memory: AvgShedderMemory) -> tuple[dict[str, int], dict[str, int]]:
    return dict(memory.low_hits), dict(memory.high_hits)


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        pytest.param(points(), {}, id="nobody is no pair"),
        pytest.param(points(a=90), {"a>a": "below-threshold"}, id="a single broker pairs with itself"),
        pytest.param(
            points(a=10, b=90, c=50, d=40),
            {"b>a": "hit-count", "c>d": "below-threshold"},
            id="highest with lowest and inwards",
        ),
        pytest.param(
            points(a=10, b=90, c=50),
            {"b>a": "hit-count", "c>c": "below-threshold"},
            id="the middle of an odd fleet pairs with itself",
        ),
        pytest.param(
            points(d=50, c=50, b=50, a=50),
            {"d>a": "below-threshold", "c>b": "below-threshold"},
            id="equal scores are taken by name",
        ),
        pytest.param(
            points(**{"broker-10": 20, "broker-9": 20, "x": 80, "y": 80}),
            {"y>broker-10": "hit-count", "x>broker-9": "hit-count"},
            id="names compare as text",
        ),
    ],
)
def test_brokers_are_paired_from_the_outside_in(fleet: Fleet, expected: dict[str, str]) -> None:
    snapshot = snapshot_of(fleet)
    assert examined_of(snapshot, decide(POLICY, snapshot, NO_HITS, DEFAULT)[0]) == expected


@pytest.mark.parametrize(
    ("high", "low", "expected"),
    [
        pytest.param(29, 15, ({}, {}), id="14 points count nothing"),
        pytest.param(30, 16, ({}, {}), id="14 points and a rounding error count nothing"),
        pytest.param(20, 5, ({"a": 1, "b": 1}, {}), id="exactly 15 points count low"),
        pytest.param(45, 30, ({}, {}), id="45 against 30 is not 15 points in single precision"),
        pytest.param(54, 15, ({"a": 1, "b": 1}, {}), id="39 points count low only"),
        pytest.param(70, 30, ({"a": 1, "b": 1}, {}), id="70 against 30 is not 40 points in single precision"),
        pytest.param(40, 0, ({"a": 1, "b": 1}, {"a": 1, "b": 1}), id="exactly 40 points count low and high"),
        pytest.param(
            140, 10, ({"a": 1, "b": 1}, {"a": 1, "b": 1}), id="usage above the limit counts like any"
        ),
    ],
)
def test_a_pair_counts_by_its_difference(
    high: float, low: float, expected: tuple[dict[str, int], dict[str, int]]
) -> None:
    assert hits(play(POLICY, NO_HITS, DEFAULT, points(a=high, b=low))[1]) == expected


SLOW = AvgShedderSettings(low_hit_count=100, high_hit_count=100)


@pytest.mark.parametrize(
    ("rounds", "low_hits", "high_hits"),
    [
        pytest.param(
            [points(a=80, b=50, c=20), points(a=50, b=80, c=20)],
            {"b": 1, "c": 2},
            {"b": 1, "c": 2},
            id="a count belongs to the broker, whatever its partner; the middle forgets its own",
        ),
        pytest.param(
            [points(a=80, b=20), points(a=80, b=20), points(a=60, b=30)],
            {"a": 3, "b": 3},
            {},
            id="falling below the high threshold erases the high count only",
        ),
        pytest.param(
            [points(a=80, b=20), points(a=30, b=20)], {}, {}, id="no pair at all: every count is erased"
        ),
        pytest.param(
            [points(a=80, b=20, c=70, d=10), points(a=80, d=10)],
            {"a": 2, "d": 2, "b": 1, "c": 1},
            {"a": 2, "d": 2, "c": 1, "b": 1},
            id="an absent broker keeps its count while some pair stands out",
        ),
        pytest.param(
            [points(a=80, b=20, c=70, d=10), points(a=25, d=10.5)],
            {},
            {},
            id="an absent broker loses its count when no pair stands out",
        ),
    ],
)
def test_hits_are_counted_per_broker(
    rounds: list[Fleet], low_hits: dict[str, int], high_hits: dict[str, int]
) -> None:
    unloads, memory = play(POLICY, NO_HITS, SLOW, *rounds)
    assert hits(memory) == (low_hits, high_hits)
    assert not any(unloads)


def moving(high: float, low: float) -> Fleet:
    """Busy "a" with one bundle that fits into half the difference of rates, idle "b"."""
    return {"a": at(high, messages_per_s=6000.0, bundles=by_rate(x=2000.0, y=4000.0)), "b": at(low)}


@pytest.mark.parametrize(
    ("settings", "rounds", "fires_in"),
    [
        pytest.param(DEFAULT, [moving(90, 20)] * 2, 2, id="40 points fire in the second round"),
        pytest.param(DEFAULT, [moving(60, 30)] * 8, 8, id="15 points fire in the eighth round"),
        pytest.param(
            DEFAULT,
            [moving(60, 30)] * 7 + [moving(90, 20)],
            8,
            id="a first glaring round completes the low count",
        ),
        pytest.param(
            DEFAULT,
            [moving(60, 30)] * 7 + [moving(40, 30)] + [moving(60, 30)] * 8,
            16,
            id="one calm round and the count starts again",
        ),
        pytest.param(
            DEFAULT,
            [moving(90, 20), moving(60, 30), moving(90, 20), moving(90, 20)],
            4,
            id="the high count must be unbroken",
        ),
    ],
)
def test_a_pair_fires_once_a_count_is_reached(
    settings: AvgShedderSettings, rounds: list[Fleet], fires_in: int
) -> None:
    unloads, memory = play(POLICY, NO_HITS, settings, *rounds)
    assert unloads == [[]] * (fires_in - 1) + [[("x", "a", "b")]]
    assert hits(memory) == ({}, {})


@pytest.mark.parametrize(
    ("fleet", "outcome"),
    [
        pytest.param(points(a=90, b=20), "below-min-traffic", id="not enough traffic"),
        pytest.param(
            {"a": at(90, messages_per_s=6000.0, bundles=by_rate(x=6000.0)), "b": at(20)},
            "fired",
            id="no bundle that fits",
        ),
        pytest.param(
            {"a": at(90, messages_per_s=6000.0), "b": at(20)}, "fired", id="no bundle that could be known"
        ),
    ],
)
def test_firing_erases_the_four_counts_even_if_nothing_moves(fleet: Fleet, outcome: str) -> None:
    others = points(c=85, d=25)
    before = AvgShedderMemory(low_hits={"a": 9, "b": 9, "gone": 4}, high_hits={"a": 1, "b": 1, "gone": 1})
    snapshot = snapshot_of({**fleet, **others})
    plan, memory = decide(POLICY, snapshot, before, DEFAULT)
    assert unloads_of(snapshot, plan) == []
    assert examined_of(snapshot, plan) == {"a>b": outcome, "c>d": "hit-count"}
    assert hits(memory) == ({"c": 1, "d": 1, "gone": 4}, {"c": 1, "d": 1, "gone": 1})


def half_of(rate: float, bundles: dict[str, float], **broker: bool) -> Fleet:
    return {
        "a": at(90, messages_per_s=rate, bundles=by_rate(**bundles)),
        "b": at(10, **broker),
    }


def volumes(difference: float, bundles: dict[str, float]) -> Fleet:
    """Half the difference of rates is 1000, which is not above the minimum of 1000."""
    return {
        "a": at(90, messages_per_s=2000.0, bytes_per_s=5 * MIB + difference, bundles=by_volume(**bundles)),
        "b": at(10, bytes_per_s=5 * MIB),
    }


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        pytest.param(
            half_of(8000.0, {"v": 500.0, "w": 4001.0, "x": 3000.0, "y": 1500.0, "z": 600.0}),
            {"w": "too-big", "x": "acted", "y": "need-met", "z": "acted", "v": "need-met"},
            id="from the biggest that fits into half the difference, then into what is left",
        ),
        pytest.param(
            half_of(8000.0, {"x": 4000.0, "y": 1.0}),
            {"x": "acted", "y": "need-met"},
            id="a bundle may fit exactly",
        ),
        pytest.param(
            half_of(8000.0, {"x": 4000.5}), {"x": "too-big"}, id="a bundle above half the difference stays"
        ),
        pytest.param(
            half_of(8000.0, {"x": 3999.5, "y": 0.5, "z": 0.25}),
            {"x": "acted", "y": "acted", "z": "need-met"},
            id="fractions of a message count",
        ),
        pytest.param(
            half_of(8000.0, {f"x{number}": 100.0 for number in range(9)}),
            {f"x{number}": "acted" for number in range(9)},
            id="the number of bundles has no limit",
        ),
        pytest.param(
            half_of(8000.0, {"d": 2000.0, "b": 2000.0, "c": 2000.0}),
            {"b": "acted", "c": "acted", "d": "need-met"},
            id="equal bundles are taken by name",
        ),
        pytest.param(
            half_of(8000.0, {"x": 0.0, "y": 1500.0}),
            {"y": "acted", "x": "no-traffic"},
            id="a bundle without traffic never moves",
        ),
        pytest.param(
            half_of(8000.0, {"x": 3000.0, "y": 9000.0, "z": 0.0}, may_receive=False),
            {"y": "too-big", "x": "no-destination", "z": "no-traffic"},
            id="nothing moves to a broker that may not receive",
        ),
        pytest.param(
            {
                "a": at(
                    90,
                    messages_per_s=8000.0,
                    bundles=by_rate(masked="w x z", w=4001.0, x=3000.0, y=2500.0, z=0.0),
                ),
                "b": at(10),
            },
            {"w": "masked", "x": "masked", "y": "acted", "z": "masked"},
            id="a masked bundle never moves and uses up nothing",
        ),
        pytest.param(
            volumes(4 * MIB, {"x": 2 * MIB, "y": 1.0}),
            {"x": "acted", "y": "need-met"},
            id="throughput guides where the rates are too close",
        ),
        pytest.param(
            {
                "a": at(90, messages_per_s=2002.0, bytes_per_s=90 * MIB, bundles=by_volume(x=MIB)),
                "b": at(10),
            },
            {"x": "no-traffic"},
            id="message rate guides wherever it is above its minimum",
        ),
        pytest.param(volumes(2 * MIB, {"x": MIB}), {}, id="exactly the minimum of both is not enough"),
        pytest.param(
            {"a": at(90, bundles=by_rate(x=1.0)), "b": at(10, messages_per_s=9000.0, bytes_per_s=9 * MIB)},
            {},
            id="nothing moves to the broker with more traffic",
        ),
        pytest.param(
            {
                "a": at(90, messages_per_s=8000.0, bundles=by_rate(x=3000.0)),
                "b": at(10, bundles=by_rate(mine=10.0)),
                "c": at(50, bundles=by_rate(middle=3000.0)),
            },
            {"x": "acted"},
            id="only bundles of the busy broker are tried",
        ),
    ],
)
def test_a_fired_pair_moves_half_its_difference(fleet: Fleet, expected: dict[str, str]) -> None:
    snapshot = snapshot_of(fleet)
    plan, _ = decide(POLICY, snapshot, NO_HITS, AT_ONCE)
    tried = tried_of(snapshot, plan)
    assert tried == expected
    assert list(tried) == list(expected)
    assert unloads_of(snapshot, plan) == [
        (name, "a", "b") for name, why in expected.items() if why == "acted"
    ]


@pytest.mark.parametrize(
    ("before", "high", "trigger", "expected"),
    [
        pytest.param(NO_HITS, 60, "", (15.0, 1, 8), id="counting towards the low threshold"),
        pytest.param(NO_HITS, 90, "", (40.0, 1, 2), id="counting towards the high threshold"),
        pytest.param(NO_HITS, 65, "", (40.0, 1, 2), id="exactly 40 points count towards the high threshold"),
        pytest.param(
            AvgShedderMemory(low_hits={"a": 7}),
            60,
            "low-threshold",
            (15.0, 8, 8),
            id="fired by the low threshold",
        ),
        pytest.param(
            AvgShedderMemory(high_hits={"b": 1}),
            90,
            "high-threshold",
            (40.0, 2, 2),
            id="fired by the high threshold",
        ),
        pytest.param(
            AvgShedderMemory(low_hits={"a": 7}),
            90,
            "low-threshold",
            (15.0, 8, 8),
            id="fired by the low threshold in a glaring round",
        ),
    ],
)
def test_the_evidence_shows_the_count_that_decided(
    before: AvgShedderMemory, high: float, trigger: str, expected: tuple[float, int, int]
) -> None:
    examined = decide(POLICY, snapshot_of(moving(high, 25)), before, DEFAULT)[0].examined
    evidence = examined.evidence_of(0)
    assert examined.trigger_of(0) == trigger
    assert tuple(evidence[key] for key in ("threshold_points", "hit_count", "needed_hit_count")) == expected


def test_the_evidence_carries_the_numbers_of_both_sides() -> None:
    fleet = {"a": Broker(usage={"cpu": (75, 100)}, messages_per_s=9000.0, bytes_per_s=64.0), "b": at(25)}
    evidence = decide(POLICY, snapshot_of(fleet), NO_HITS, DEFAULT)[0].examined.evidence_of(0)
    assert evidence == {
        "high_usage_points": 75.0,
        "low_usage_points": 25.0,
        "difference_points": 50.0,
        "threshold_points": 40.0,
        "hit_count": 1,
        "needed_hit_count": 2,
        "to_move_messages_per_s": 4500.0,
        "to_move_bytes_per_s": 32.0,
    }
