"""Which partitions stand still although others of their broker go on."""

from collections.abc import Collection, Mapping

import pytest

from state.kafka.memory import KafkaMemory
from state.kafka.standstill import FETCH_BYTES, LEAST_MS, TURNS, observe_standstill
from tests.policies.throttle.moving import GB, MB, Partition, copies_of

NAMES = ("t-0", "t-1")


def stand_still(
    *present: Mapping[str, int | None], step_ms: int = 10_000, waiting: Collection[str] = (), leader: int = 1
) -> Mapping[int, list[str]]:
    """What stands still after rounds in which broker 3 has so much of each partition, of 10 GB each."""
    memory, found = KafkaMemory(), {}
    for number, sizes in enumerate(present):
        rows = [
            Partition(name, [1, 2], [2, 3], MB, 10 * GB, leader, present={} if size is None else {3: size})
            for name, size in sizes.items()
        ]
        found = observe_standstill(memory, copies_of(*rows), at_ms=number * step_ms, waiting=waiting)
    return found


def rounds(
    *, of_each: int = 40 * MB, count: int = 8, stuck: int | None = 5 * MB
) -> list[dict[str, int | None]]:
    """Partition 0 grows by so much a round, partition 1 does not."""
    return [{"t-0": number * of_each, "t-1": stuck} for number in range(count)]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param(rounds(), {3: ["t-1"]}, id="the other one had ten turns and more"),
        pytest.param(rounds(count=LEAST_MS // 10_000), {}, id="for less than a minute"),
        pytest.param(rounds(of_each=2 * MB), {}, id="the other one had few turns, either"),
        pytest.param(rounds(of_each=0), {}, id="nothing moves: that is no matter of one partition"),
        pytest.param([*rounds(), {"t-0": 9 * 40 * MB, "t-1": 6 * MB}], {}, id="it goes on"),
        pytest.param([*rounds(), {"t-0": 9 * 40 * MB, "t-1": None}], {}, id="not told now"),
        pytest.param(
            [*rounds(count=4), {"t-0": 160 * MB, "t-1": None}, *rounds(count=9)[5:]],
            {3: ["t-1"]},
            id="a gap is no progress",
        ),
        pytest.param([{"t-1": 5 * MB}] * 9, {}, id="alone"),
    ],
)
def test_a_partition_stands_still_while_others_of_its_broker_have_many_turns(
    present: list[dict[str, int | None]], expected: Mapping[int, list[str]]
) -> None:
    assert stand_still(*present) == expected


def test_what_waits_for_a_broker_or_a_leader_does_not_stand_still_yet() -> None:
    assert stand_still(*rounds(), waiting=["t-1"]) == {}
    assert stand_still(*rounds(), leader=-1) == {}


def test_the_more_a_broker_fetches_the_longer_one_may_stand() -> None:
    many = [f"u-{at}" for at in range(98)]
    grown = [
        {**dict.fromkeys(many, number * 4 * MB), "t-0": number * 4 * MB, "t-1": 5 * MB} for number in range(9)
    ]
    needed = TURNS * 100 * FETCH_BYTES
    assert stand_still(*grown[:3], step_ms=LEAST_MS) == {}, f"{2 * 99 * 4 * MB} of {needed} bytes"
    assert stand_still(*grown[:4], step_ms=LEAST_MS) == {3: ["t-1"]}
