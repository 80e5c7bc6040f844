"""What a broker that is not alive breaks, and how a move is paced while it is broken and afterwards."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import broken_copies, kept_replicas_down
from policies.throttle.rates import BrokerRole, Caps, ThrottleSettings
from tests.policies.throttle.moving import GB, MB, Partition, moves_of
from tests.policies.throttle.test_pacing import MOVE, Cluster, rates, started

TO_4 = Partition("t-0", [1, 2, 3], [4, 2, 3], MB, GB, isr=[1, 2])
ALONE = Partition("u-7", [5], [6], MB, GB, isr=[5], leader=-1)


@pytest.mark.parametrize(
    ("move", "down", "broken"),
    [
        (TO_4, [], {}),
        (TO_4, [4], {4: ["t-0"]}),
        (TO_4, [1], {}),
        (TO_4, [3], {}),
        (TO_4, [9], {}),
        (replace(TO_4, leader=-1), [1], {}),
        (replace(TO_4, leader=-1), [1, 2], {1: ["t-0"], 2: ["t-0"]}),
        (replace(TO_4, leader=-1), [1, 2, 4], {1: ["t-0"], 2: ["t-0"], 4: ["t-0"]}),
        (replace(TO_4, leader=1), [1, 2], {1: ["t-0"], 2: ["t-0"]}),
        (replace(TO_4, leader=4, replicas=[1, 2, 3, 4], adding=[4]), [1, 2, 3], {}),
        (replace(TO_4, isr=[], leader=-1), [1, 2], {}),
        (replace(TO_4, isr=[], leader=-1), [1, 2, 3], {1: ["t-0"], 2: ["t-0"], 3: ["t-0"]}),
        (ALONE, [5], {5: ["u-7"]}),
        (ALONE, [], {}),
    ],
    ids=[
        "all alive",
        "the destination",
        "a leader that others replace",
        "a source",
        "a stranger",
        "one of two in-sync sources",
        "all in-sync sources",
        "sources and destination",
        "a leader that is dead counts for none",
        "a new replica leads already",
        "in-sync replicas not reported, one source left",
        "in-sync replicas not reported, no source left",
        "the only source",
        "a partition between two leaders",
    ],
)
def test_a_copy_is_broken_without_its_destination_or_its_only_source(
    move: Partition, down: list[int], broken: dict[int, list[str]]
) -> None:
    assert broken_copies(moves_of(move), down) == broken


def test_a_replica_that_stays_is_told_and_one_that_leaves_is_not() -> None:
    assert kept_replicas_down(moves_of(TO_4), [1, 3]) == {3: ["t-0"]}


def test_the_copies_of_others_are_not_named() -> None:
    assert broken_copies(moves_of(TO_4, ALONE, replace(TO_4, name="t-1", target=[5, 2, 3])), [5]) == {
        5: ["t-1", "u-7"]
    }


def grown(rounds: int, per_round: int = 40 * MB, **more: object) -> Partition:
    """``MOVE`` after so many rounds in which broker 3 received as much each."""
    return replace(MOVE, present={3: rounds * per_round}, **more)  # type: ignore[arg-type]


def broken_after(
    deadline_s: float, *, rounds: int = 3, down: Collection[int] = (3,), **settings: object
) -> Cluster:
    """A move that ran for some rounds before its destination died."""
    cluster = started(ThrottleSettings(deadline_s=deadline_s, **settings))  # type: ignore[arg-type]
    for number in range(1, rounds):
        cluster.round(grown(number))
    assert cluster.round(MOVE, down=down) is None
    return cluster


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_while_its_destination_is_dead_no_deadline_and_no_room_raise_a_rate(mode: str) -> None:
    cluster = broken_after(900, rates=mode)
    room = Caps(default_bytes_per_s=500 * MB)
    for _ in range(120):
        assert cluster.round(MOVE, down=[3], caps=room, room=room) is None
        assert cluster.explanation is not None
        assert cluster.explanation.eta is not None
        assert cluster.explanation.plan is not None
        assert (cluster.explanation.eta.remaining_s, cluster.explanation.eta.basis) == (None, "broken")
        assert (cluster.explanation.plan.total_s, cluster.explanation.plan.bottleneck) == (None, None)


def test_a_minimum_that_rises_meanwhile_is_met_and_no_more_than_met() -> None:
    cluster = broken_after(900)
    before = cluster.memory.rates()
    decision = cluster.round(replace(MOVE, writes=40 * MB), down=[3])
    assert decision is not None
    assert decision.trigger == "minimum-rose"
    assert rates(decision) == {"leader:1": 96 * MB, "leader:2": 96 * MB}
    assert cluster.memory.rates()[BrokerRole("follower", 3)] == before[BrokerRole("follower", 3)]
    assert not decision.clear_rates


def test_afterwards_it_is_paced_from_where_it_is_and_progress_is_watched_anew() -> None:
    cluster = broken_after(0, rounds=10)
    for _ in range(60):
        cluster.round(MOVE, down=[3])
    assert cluster.round(grown(10)) is None
    assert cluster.explanation is not None
    assert cluster.explanation.eta is not None
    assert cluster.explanation.eta.basis == "predicted"
    left_s = 10 * 1000 * MB - 400 * MB
    assert cluster.explanation.eta.remaining_s == pytest.approx(
        left_s / (cluster.memory.leader_rates[1] - 8 * MB)
    )


def test_a_rate_is_set_on_a_broker_once_it_is_alive_and_on_none_that_is_not() -> None:
    cluster = Cluster()
    first = cluster.round(MOVE, down=[2, 3])
    assert first is not None
    assert first.add == ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
    assert rates(first) == {"leader:1": 9_600_000}
    assert cluster.round(MOVE, down=[2, 3]) is None
    back = cluster.round(MOVE, down=[2])
    assert back is not None
    assert back.trigger == "moves-joined"
    assert rates(back) == {"leader:1": 9_600_000, "follower:3": 9_600_000}
    again = cluster.round(replace(MOVE, writes=None))
    assert again is not None
    assert rates(again)["leader:2"] == 9_600_000, "at once, also while a write rate is unknown"


def test_a_leaving_replica_that_is_dead_changes_neither_rates_nor_the_end() -> None:
    cluster, other = started(), started()
    for number in range(1, 12):
        assert cluster.round(grown(number), down=[2]) is None
        assert other.round(grown(number)) is None
        assert cluster.explanation is not None
        assert other.explanation is not None
        assert cluster.explanation.eta == other.explanation.eta
    assert cluster.memory.rates() == other.memory.rates()
    end = cluster.round()
    assert end is not None
    assert BrokerRole("leader", 2) in end.clear_rates


def test_a_destination_that_was_not_heard_of_once_lengthens_nothing_and_raises_nothing() -> None:
    cluster = started(ThrottleSettings(deadline_s=3000, min_change_interval_s=0))
    for number in range(1, 10):
        assert cluster.round(grown(number), unheard=[3] if number == 8 else []) is None
        assert cluster.explanation is not None
        assert cluster.explanation.needs is not None
        left = cluster.explanation.needs.follower_bytes_to_receive[3]
        assert left == (None if number == 8 else 10 * GB - number * 40 * MB)
    assert cluster.explanation is not None
    assert cluster.explanation.eta is not None
    assert cluster.explanation.eta.remaining_s == pytest.approx((10 * GB - 9 * 40 * MB) / (4 * MB))


@pytest.mark.parametrize(
    ("received_a_round", "most"),
    [(10 * MB, 18 * MB), (40 * MB, 18 * MB), (60 * MB, 24 * MB), (90 * MB, 36 * MB)],
    ids=["the first plan's rate", "the first plan's rate, too", "four times 6 MB/s", "four times 9 MB/s"],
)
def test_a_deadline_raises_to_the_first_rate_or_four_times_what_was_seen_to_flow(
    received_a_round: int, most: int
) -> None:
    cluster = started(ThrottleSettings(deadline_s=1000))
    assert cluster.memory.leader_rates[1] == 18 * MB
    highest = 0
    for number in range(1, 99):
        cluster.round(grown(min(number, 20), received_a_round))
        highest = max(highest, *cluster.memory.rates().values())
    assert most - most / 20 < highest <= most


def test_where_a_capacity_is_declared_the_deadline_may_ask_for_all_of_it_and_a_minimum_for_more() -> None:
    cluster = started(ThrottleSettings(deadline_s=1000))
    caps = Caps(default_bytes_per_s=70 * MB)
    for _ in range(90):
        cluster.round(grown(1), caps=caps)
    assert max(cluster.memory.rates().values()) == 70 * MB
    decision = started(ThrottleSettings(deadline_s=1000)).round(grown(1, writes=100 * MB))
    assert max(rates(decision).values()) == 240 * MB


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_rate_that_is_nearly_the_one_in_force_is_not_written_again(mode: str) -> None:
    cluster = started(ThrottleSettings(deadline_s=1000, change_threshold_ratio=0, rates=mode))  # type: ignore[arg-type]
    caps = Caps(default_bytes_per_s=10**12)
    changes = 0
    for number in range(1, 90):
        before = cluster.memory.rates()
        decision = cluster.round(grown(1, writes=4 * MB + number * 1000), caps=caps)
        if decision is not None:
            changes += 1
            assert all(
                rate == before[role] or abs(rate - before[role]) >= before[role] / 20
                for role, rate in decision.set_rates.items()
            )
    assert changes > 3


def test_a_minimum_that_reaches_the_rate_is_met_however_little_the_cap_leaves() -> None:
    cluster = started()
    assert (
        cluster.round(replace(MOVE, writes=4_800_000), caps=Caps(default_bytes_per_s=9_700_000)) is not None
    )
    assert cluster.memory.leader_rates[1] == 9_700_000
