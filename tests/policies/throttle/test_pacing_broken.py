"""Pacing of what is not whole: dead brokers, unknown numbers, lost throttles, partitions without a leader."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from policies.throttle.copies import broken_copies, kept_replicas_down
from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing import decide
from policies.throttle.pacing_round import PacingMemory, PacingSnapshot, ThrottleDecision
from policies.throttle.rates import BrokerRole, Caps, ThrottleSettings
from policies.throttle.roles import by_role, of_role
from tests.policies.throttle.moving import GB, MB, Partition, copies_of
from tests.policies.throttle.reassigned import MOVE, Cluster, rates, started

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
    assert broken_copies(copies_of(move), down) == broken


def test_a_replica_that_stays_is_told_and_one_that_leaves_is_not() -> None:
    assert kept_replicas_down(copies_of(TO_4), [1, 3]) == {3: ["t-0"]}


def test_the_copies_of_others_are_not_named() -> None:
    assert broken_copies(copies_of(TO_4, ALONE, replace(TO_4, name="t-1", target=[5, 2, 3])), [5]) == {
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
        assert (cluster.eta.remaining_s, cluster.eta.basis) == (None, "broken")
        assert (cluster.plan.total_s, cluster.plan.bottleneck) == (None, None)


def test_one_broken_copy_takes_neither_deadline_nor_room_from_the_others() -> None:
    """Leader 1 needs 8 MB/s for the one and 2 for the other, of which 10 GB are to be copied in 1,000 s."""
    other = Partition("t-1", [1, 2], [2, 4], 1 * MB, 10 * GB)
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    assert rates(cluster.decided(MOVE, other, down=[3])) == {
        "leader:1": 20 * MB,
        "leader:2": 20 * MB,
        "follower:4": 20 * MB,
    }
    assert (cluster.eta.remaining_s, cluster.eta.basis) == (None, "broken")
    on_time = [replace(other, present={4: number * 100 * MB}) for number in range(1, 30)]
    assert all(cluster.round(MOVE, each, down=[3]) is None for each in on_time)
    slow = [cluster.round(MOVE, on_time[-1], down=[3]) for _ in range(10)]
    assert [found.trigger for found in slow if found is not None][:1] == ["deadline-at-risk"]
    room = Caps(default_bytes_per_s=100 * MB)
    for _ in range(10):
        cluster.round(MOVE, on_time[-1], down=[3], caps=room, room=room)
    assert min(cluster.memory.rates.values()) >= 40 * MB, "twice the rate in a raise"


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
@pytest.mark.parametrize("per_round", [0, -20 * MB], ids=["it stands still", "it falls behind"])
def test_what_stands_still_above_its_minimum_is_not_raised_for_the_deadline(
    mode: str, per_round: int
) -> None:
    """The disk of broker 3 is full after 1.5 of 10 GB. Raising the rate until the deadline would flood it once there is room."""
    settings = ThrottleSettings(deadline_s=1000, rates=mode)  # type: ignore[arg-type]
    cluster, room = started(settings), Caps(default_bytes_per_s=500 * MB)
    for number in range(1, 9):
        cluster.round(grown(number, 180 * MB))
    before = cluster.memory.rates
    stuck = [
        cluster.round(replace(MOVE, present={3: 1500 * MB + number * per_round}), caps=room)
        for number in range(1, 60)
    ]
    assert cluster.eta.basis == "not-catching-up"
    raised = [found for found in stuck if found is not None]
    assert len(raised) <= 1, "while the line still falls, nobody knows"
    assert all(rate <= 2 * before[role] for role, rate in cluster.memory.rates.items())
    resumed = [
        cluster.round(replace(MOVE, present={3: 1500 * MB + number * 40 * MB}), caps=room)
        for number in range(1, 12)
    ]
    assert [found.trigger for found in resumed if found is not None][:1] == ["deadline-at-risk"]


def test_a_minimum_above_the_rate_is_met_though_nothing_progresses() -> None:
    cluster = started(ThrottleSettings(deadline_s=3600))
    for _ in range(20):
        cluster.round(MOVE)
    assert cluster.eta.basis == "not-catching-up"
    risen = cluster.decided(replace(MOVE, writes=40 * MB))
    assert risen.trigger == "minimum-rose"
    assert rates(risen)["leader:1"] > 80 * MB


def test_a_minimum_that_rises_meanwhile_is_met_and_no_more_than_met() -> None:
    cluster = broken_after(900)
    before = cluster.memory.rates
    decision = cluster.decided(replace(MOVE, writes=40 * MB), down=[3])
    assert decision.trigger == "minimum-rose"
    assert rates(decision) == {"leader:1": 96 * MB, "leader:2": 96 * MB}
    assert cluster.memory.rates[BrokerRole("follower", 3)] == before[BrokerRole("follower", 3)]
    assert not decision.clear_rates


def test_afterwards_it_is_paced_from_where_it_is_and_progress_is_watched_anew() -> None:
    cluster = broken_after(0, rounds=10)
    for _ in range(60):
        cluster.round(MOVE, down=[3])
    assert cluster.round(grown(10)) is None
    assert cluster.eta.basis == "predicted"
    left_s = 10 * 1000 * MB - 400 * MB
    assert cluster.eta.remaining_s == pytest.approx(
        left_s / (cluster.memory.rates[BrokerRole("leader", 1)] - 8 * MB)
    )


def test_a_rate_is_set_on_a_broker_once_it_is_alive_and_on_none_that_is_not() -> None:
    cluster = Cluster()
    first = cluster.decided(MOVE, down=[2, 3])
    assert first.add == ThrottledLists(leader={"t": "0:1,0:2"}, follower={"t": "0:3"})
    assert rates(first) == {"leader:1": 9_600_000}
    assert cluster.round(MOVE, down=[2, 3]) is None
    back = cluster.decided(MOVE, down=[2])
    assert back.trigger == "moves-joined"
    assert rates(back) == {"leader:1": 9_600_000, "follower:3": 9_600_000}
    again = cluster.decided(replace(MOVE, writes=None))
    assert rates(again)["leader:2"] == 9_600_000, "at once, also while a write rate is unknown"


def test_a_leaving_replica_that_is_dead_changes_neither_rates_nor_the_end() -> None:
    cluster, other = started(), started()
    for number in range(1, 12):
        assert cluster.round(grown(number), down=[2]) is None
        assert other.round(grown(number)) is None
        assert cluster.explanation.eta == other.explanation.eta
    assert cluster.memory.rates == other.memory.rates
    end = cluster.decided()
    assert BrokerRole("leader", 2) in end.clear_rates


def test_a_destination_that_was_not_heard_of_once_lengthens_nothing_and_raises_nothing() -> None:
    cluster = started(ThrottleSettings(deadline_s=3000, min_change_interval_s=0))
    for number in range(1, 10):
        assert cluster.round(grown(number), unheard=[3] if number == 8 else []) is None
        left = of_role(cluster.needs.bytes_left, "follower")[3]
        assert left == (None if number == 8 else 10 * GB - number * 40 * MB)
    assert cluster.eta.remaining_s == pytest.approx((10 * GB - 9 * 40 * MB) / (4 * MB))


@pytest.mark.parametrize(
    ("received_a_round", "most"),
    [(10 * MB, 18 * MB), (40 * MB, 18 * MB), (60 * MB, 24 * MB), (90 * MB, 36 * MB)],
    ids=["the first plan's rate", "the first plan's rate, too", "four times 6 MB/s", "four times 9 MB/s"],
)
def test_a_deadline_raises_to_the_first_rate_or_four_times_what_was_seen_to_flow(
    received_a_round: int, most: int
) -> None:
    cluster = started(ThrottleSettings(deadline_s=1000))
    assert cluster.memory.rates[BrokerRole("leader", 1)] == 18 * MB
    highest = 0
    for number in range(1, 99):
        quick, slow = min(number, 20), max(number - 20, 0)
        cluster.round(replace(MOVE, present={3: quick * received_a_round + slow * MB}))
        highest = max(highest, *cluster.memory.rates.values())
    assert most - most / 20 < highest <= most


def test_a_deadline_may_ask_for_all_of_a_declared_capacity_and_a_minimum_for_more() -> None:
    cluster = started(ThrottleSettings(deadline_s=1000))
    caps = Caps(default_bytes_per_s=70 * MB)
    for number in range(1, 90):
        cluster.round(grown(number, MB), caps=caps)
    assert 0.95 * 70 * MB < max(cluster.memory.rates.values()) <= 70 * MB
    decision = started(ThrottleSettings(deadline_s=1000)).round(grown(1, writes=100 * MB))
    assert max(rates(decision).values()) == 240 * MB


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_rate_that_is_nearly_the_one_in_force_is_not_written_again(mode: str) -> None:
    cluster = started(ThrottleSettings(deadline_s=1000, change_threshold_ratio=0, rates=mode))  # type: ignore[arg-type]
    caps = Caps(default_bytes_per_s=10**12)
    changes = 0
    for number in range(1, 90):
        before = cluster.memory.rates
        decision = cluster.round(grown(number, MB, writes=4 * MB + number * 1000), caps=caps)
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
    assert cluster.memory.rates[BrokerRole("leader", 1)] == 9_700_000


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_partition_whose_write_rate_stays_unknown_keeps_no_other_from_its_throttle(mode: str) -> None:
    cluster, odd = Cluster(settings=ThrottleSettings(rates=mode)), Partition("u-0", [5], [6], None, GB)  # type: ignore[arg-type]
    for _ in range(3):
        assert cluster.round(MOVE, odd) is None
        assert cluster.outcome == "unknown"
    decision = cluster.round(MOVE, odd)
    found = rates(decision)
    assert [found[role] for role in ("leader:1", "leader:5", "follower:6")] == [9_600_000] * 3
    assert cluster.lists.follower == {"t": "0:3", "u": "0:6"}
    assert cluster.round(MOVE, odd) is None
    risen = cluster.decided(replace(MOVE, writes=40 * MB), odd)
    assert (risen.trigger, rates(risen)["leader:1"]) == ("minimum-rose", 96 * MB)
    assert cluster.plan.feasible is None
    known = cluster.decided(replace(MOVE, writes=40 * MB), replace(odd, writes=300 * MB))
    assert (known.trigger, rates(known)["leader:5"]) == ("minimum-rose", 360 * MB)


def test_after_failover_safe_rates_known_minimums_are_met_and_nothing_is_lowered() -> None:
    silent = Partition("t-2", [2, 1], [1, 3], 6 * MB, GB, leader=2)
    cluster = Cluster()
    cluster.round(MOVE, silent)
    decisions = [cluster.round(MOVE, replace(silent, writes=None)) for _ in range(20)]
    assert [each.trigger for each in decisions if each is not None] == ["stale-reports"]
    risen = cluster.decided(replace(MOVE, writes=20 * MB), replace(silent, writes=None))
    assert (risen.trigger, rates(risen)["leader:1"]) == ("minimum-rose", 48 * MB)
    cluster.now_ms += 60_000
    back = cluster.decided(MOVE, silent)
    assert (back.trigger, set(rates(back).values())) == ("reports-back", {14_400_000})


L1, L2, F3 = BrokerRole("leader", 1), BrokerRole("leader", 2), BrokerRole("follower", 3)
GONE = ThrottledLists(follower={"t": "0:3"})
SETTINGS = ThrottleSettings()


def begun() -> PacingMemory:
    _, memory, _ = decide(PacingSnapshot(now_ms=0, copies=copies_of(MOVE)), PacingMemory(), SETTINGS)
    return memory


def round_of(move: Partition = MOVE, **more: object) -> PacingSnapshot:
    """A round a moment later, long before the minimum interval between two changes is over."""
    lists = ThrottledLists(leader={"t": "0:1,0:2"})
    return replace(PacingSnapshot(now_ms=10_000, copies=copies_of(move), lists=lists), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("move", [MOVE, replace(MOVE, writes=None)], ids=["known", "traffic-unknown"])
def test_entries_that_are_gone_are_added_again_at_once_at_the_rates_in_force(move: Partition) -> None:
    memory = begun()
    decision, after, _ = decide(round_of(move, lost=GONE), memory, SETTINGS)
    assert decision == ThrottleDecision(
        trigger="throttle-lost", add=GONE, set_rates=dict.fromkeys([L1, L2, F3], 9_600_000)
    )
    assert after.added == memory.added


@pytest.mark.parametrize("move", [MOVE, replace(MOVE, writes=None)], ids=["known", "traffic-unknown"])
def test_a_rate_that_is_gone_is_set_again_at_once(move: Partition) -> None:
    memory = begun()
    decision, after, _ = decide(round_of(move, is_rate_lost=True), memory, SETTINGS)
    assert decision == ThrottleDecision(
        trigger="throttle-lost", set_rates=dict.fromkeys([L1, L2, F3], 9_600_000)
    )
    assert after.rates == memory.rates


def test_it_is_set_again_even_where_the_network_leaves_too_little() -> None:
    memory = begun()
    narrow = Caps(default_bytes_per_s=MB)
    decision, _, explanation = decide(round_of(lost=GONE, caps=narrow), memory, SETTINGS)
    assert decision is not None
    assert (decision.trigger, decision.add) == ("throttle-lost", GONE)
    assert explanation.outcome == "decided"


def test_a_rate_that_somebody_gave_to_one_broker_is_kept_and_given_to_no_other() -> None:
    memory = begun()
    memory = replace(memory, rates={**memory.rates, **by_role({1: 50 * MB, 2: 9_600_000}, {})})
    decision, _, _ = decide(round_of(lost=GONE), memory, SETTINGS)
    assert decision is not None
    assert decision.set_rates == {L1: 50 * MB, L2: 9_600_000, F3: 9_600_000}


def test_a_rate_that_somebody_set_too_low_is_raised_at_once() -> None:
    memory = begun()
    memory = replace(memory, rates={**memory.rates, **by_role({1: 8 * MB, 2: 9_600_000}, {})})
    decision, _, _ = decide(round_of(), memory, SETTINGS)
    assert decision is not None
    assert (decision.trigger, decision.set_rates[L1]) == ("minimum-rose", 9_600_000)


DEAD = Partition("t-9", [4, 5], [5, 6], None, None, leader=-1)
"""Its write rate and its size are unknown."""
BACK = replace(DEAD, writes=7 * MB, size=20 * GB, leader=5)
"""Leader 5 then needs 14 MB/s."""


def told_of(cluster: Cluster) -> tuple[str, tuple[str, ...]]:
    return cluster.outcome, cluster.needs.without_leader


def test_the_others_are_throttled_and_the_leaderless_one_is_on_the_lists_already() -> None:
    cluster = Cluster()
    decision = cluster.decided(MOVE, DEAD)
    assert decision.trigger == "first-throttle"
    assert decision.add == ThrottledLists(leader={"t": "0:1,0:2,9:4,9:5"}, follower={"t": "0:3,9:6"})
    assert rates(decision) == dict.fromkeys(
        ["leader:1", "leader:2", "leader:4", "leader:5", "follower:3", "follower:6"], 9_600_000
    )
    assert told_of(cluster) == ("decided", ("t-9",))


def test_a_rate_of_its_own_is_at_least_the_floor() -> None:
    cluster = Cluster(settings=ThrottleSettings(rates="per-broker"))
    assert rates(cluster.round(MOVE, DEAD)) == {
        "leader:1": 9_600_000,
        "leader:2": 9_600_000,
        "leader:4": 1_048_576,
        "leader:5": 1_048_576,
        "follower:3": 4_800_000,
        "follower:6": 1_048_576,
    }


def test_nobody_knows_when_it_is_done_or_whether() -> None:
    cluster = Cluster()
    cluster.round(MOVE, DEAD)
    for _ in range(3):
        assert (cluster.plan.feasible, cluster.plan.total_s) == (None, None)
        assert (cluster.eta.remaining_s, cluster.eta.basis) == (None, "unknown")
        cluster.round(MOVE, DEAD)


def test_what_was_observed_before_says_nothing_of_the_end_either() -> None:
    cluster = Cluster()
    for step in range(1, 8):
        cluster.round(replace(MOVE, present={3: step * GB}), replace(BACK, present={6: step * GB}))
    assert cluster.eta.basis == "observed"
    cluster.round(MOVE, DEAD)
    assert (cluster.eta.remaining_s, cluster.eta.basis) == (None, "unknown")


def test_the_others_still_keep_the_deadline() -> None:
    cluster = Cluster(settings=ThrottleSettings(deadline_s=1000))
    assert rates(cluster.round(MOVE, DEAD))["leader:1"] == 18 * MB


def test_a_minimum_that_it_takes_once_it_has_a_leader_is_answered_at_once() -> None:
    cluster = Cluster()
    cluster.round(MOVE, DEAD)
    assert cluster.round(MOVE, replace(BACK, writes=None)) is None, "its write rate is not known yet"
    decision = cluster.decided(MOVE, BACK)
    assert decision.trigger == "minimum-rose"
    assert rates(decision)["leader:5"] == 16_800_000
    assert told_of(cluster) == ("decided", ())


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_partition_that_loses_its_leader_leaves_the_throttle_as_it_is(mode: str) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    cluster.round(MOVE, BACK)
    for _ in range(10):
        assert cluster.round(MOVE, DEAD) is None
        assert told_of(cluster) == ("unchanged", ("t-9",))


def test_missing_reports_then_fall_back_to_what_it_needed_when_it_had_one() -> None:
    cluster = Cluster(settings=ThrottleSettings(rates="per-broker"))
    cluster.round(MOVE, BACK)
    cluster.round(MOVE, DEAD)
    decisions = [cluster.round(reported=False) for _ in range(3)]
    assert decisions[:2] == [None, None]
    assert cluster.memory.safe_mins[BrokerRole("leader", 4)] == 14 * MB
    assert cluster.memory.rates[("leader", 4)] >= 16_800_000  # type: ignore[index]


def test_reports_that_are_back_lower_nothing_before_it_has_a_leader_again() -> None:
    other, nobody = replace(MOVE, name="t-1", leader=2), {"writes": None, "leader": -1}
    cluster = Cluster()
    before = rates(cluster.round(MOVE, other))
    for _ in range(3):
        cluster.round(reported=False)
    assert set(cluster.memory.rates.values()) == {2 * before["leader:1"]}, "one may have to lead both"
    for _ in range(10):
        assert cluster.round(MOVE, replace(other, **nobody)) is None  # type: ignore[arg-type]
        assert cluster.round(replace(MOVE, **nobody), replace(other, **nobody)) is None  # type: ignore[arg-type]
    decision = cluster.decided(MOVE, other)
    assert decision.trigger == "reports-back"


@pytest.mark.parametrize("mode", ["uniform", "per-broker"])
def test_a_cap_counts_for_it_too_and_lowers_the_others_no_further(mode: str) -> None:
    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    caps = Caps(roles={BrokerRole("follower", 6): 9 * MB})
    decision = cluster.round(MOVE, DEAD, caps=caps)
    assert rates(decision)["follower:6"] <= 9 * MB
    for _ in range(10):
        assert cluster.round(MOVE, DEAD, caps=caps) is None, "nothing is left to be changed"

    cluster = Cluster(settings=ThrottleSettings(rates=mode))  # type: ignore[arg-type]
    before = rates(cluster.round(MOVE, BACK))
    cap = before["follower:6"] // 2
    caps, nobody_leads = Caps(roles={BrokerRole("follower", 6): cap}), replace(MOVE, writes=None, leader=-1)
    lowered = [cluster.round(nobody_leads, DEAD, caps=caps) for _ in range(10)]
    found = [each for each in lowered if each is not None]
    assert [each.trigger for each in found] == ["over-cap"]
    assert rates(found[0]) == (
        dict.fromkeys(before, cap) if mode == "uniform" else before | {"follower:6": cap}
    )


def test_where_none_has_a_leader_nothing_is_known() -> None:
    cluster = Cluster()
    for _ in range(3):
        assert cluster.round(DEAD) is None
        assert told_of(cluster) == ("unknown", ("t-9",))


def test_one_with_a_leader_and_an_unknown_write_rate_still_gives_no_number() -> None:
    cluster = Cluster()
    assert cluster.round(replace(MOVE, writes=None), DEAD) is None
    assert told_of(cluster) == ("unknown", ("t-9",))
