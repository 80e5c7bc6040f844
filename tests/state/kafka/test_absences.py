"""Which replicas that are behind are paced as recoveries: by how long their broker was away, and how much it misses."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from policies.throttle.copies import DISK, REASSIGNMENT, RECOVERY, UNKNOWN
from policies.throttle.rates import ThrottleSettings
from state.kafka.absences import forget_absences, select_copies
from state.kafka.memory import KafkaMemory
from state.kafka.snapshot import Observation
from tests.policies.throttle.moving import MB, Partition, copies_of
from tests.state.kafka.reporting import SEEN

SETTINGS = ThrottleSettings(recovery_after_s=60, recovery_min_bytes=10 * MB)
LIVE, AWAY = frozenset({1, 2, 3}), frozenset({1, 2})
BEHIND = Partition("t-0", [1, 2, 3], [1, 2, 3], MB, 100 * MB, isr=[1, 2], recovering=[3])
BESIDE = Partition("t-1", [1, 2, 3], [1, 2, 3], 0, 100 * MB, isr=[1, 2], recovering=[3], missing={3: 0})
NOTHING: tuple[Partition, ...] = ()


def seen(at_s: int, live: frozenset[int] | None, *rows: Partition) -> Observation:
    return replace(SEEN, at_ms=1000 * at_s, copies=copies_of(*rows), live_brokers=live)


def lacking(missing_bytes: int) -> Partition:
    return replace(BEHIND, missing={3: missing_bytes})


def paced(rounds: Sequence[Observation], settings: ThrottleSettings = SETTINGS) -> list[bool]:
    """Whether anything is paced, round by round."""
    memory = KafkaMemory()
    found = [select_copies(memory, observation, settings).copies for observation in rounds]
    return [copies is not None and len(copies) > 0 for copies in found]


WELL = seen(0, LIVE, *NOTHING)
GAP_MS = 180_000


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param(
            [WELL, seen(10, AWAY, BEHIND), seen(60, AWAY, BEHIND), seen(70, AWAY, BEHIND)],
            [False, False, False, True],
            id="planned once its broker was away for long enough",
        ),
        pytest.param(
            [
                WELL,
                seen(10, AWAY, BEHIND),
                seen(40, LIVE, lacking(50 * MB)),
                *(seen(at_s, LIVE, lacking(60 * MB)) for at_s in range(50, 200, 50)),
            ],
            [False] * 6,
            id="back too soon: a restart, however long it catches up",
        ),
        pytest.param(
            [
                WELL,
                seen(10, AWAY, BEHIND),
                seen(80, LIVE, lacking(50 * MB)),
                seen(90, LIVE, lacking(5 * MB)),
                seen(100, LIVE, *NOTHING),
                seen(110, LIVE, lacking(50 * MB)),
            ],
            [False, False, True, True, False, False],
            id="a recovery to its end, and no longer",
        ),
        pytest.param(
            [WELL, seen(10, AWAY, BEHIND), seen(80, LIVE, lacking(9 * MB)), seen(90, LIVE, lacking(10 * MB))],
            [False, False, False, True],
            id="it misses too little, then enough",
        ),
        pytest.param(
            [WELL, seen(10, AWAY, BEHIND), seen(80, LIVE, BEHIND)],
            [False, False, True],
            id="what it misses is not known: that is not nothing",
        ),
        pytest.param(
            [WELL, *(seen(10 * number, LIVE, lacking(50 * MB)) for number in range(1, 20))],
            [False] * 20,
            id="a broker that was never away is slow",
        ),
        pytest.param(
            [seen(0, LIVE, lacking(50 * MB)), seen(10, LIVE, lacking(40 * MB))],
            [True, True],
            id="behind at the first look: nobody knows since when",
        ),
        pytest.param(
            [
                WELL,
                seen(10, AWAY, BEHIND),
                seen(40, LIVE, lacking(50 * MB)),
                seen(50, AWAY, BEHIND),
                seen(70, AWAY, BEHIND),
            ],
            [False, False, False, False, True],
            id="back for a moment, and gone again: away since the first time",
        ),
        pytest.param(
            [WELL, seen(10, AWAY, BEHIND), seen(80, None, lacking(50 * MB))],
            [False, False, True],
            id="nobody says who is alive: as before",
        ),
        pytest.param([seen(0, None, lacking(50 * MB))], [False], id="nobody ever said who is alive"),
    ],
)
def test_a_broker_recovers_that_was_away_for_long_and_misses_much(
    rounds: list[Observation], expected: list[bool]
):
    assert paced(rounds) == expected


@pytest.mark.parametrize(
    ("before", "back_s", "expected"),
    [
        (WELL, 180, False),
        (WELL, 181, True),
        (seen(0, LIVE, lacking(50 * MB)), 181, True),
        (seen(0, AWAY, BEHIND), 181, True),
    ],
    ids=["a short gap", "a long gap", "it recovered before", "it was away before"],
)
def test_after_a_long_gap_nobody_knows_who_was_away_meanwhile(
    before: Observation, back_s: int, *, expected: bool
):
    memory = KafkaMemory()
    select_copies(memory, before, SETTINGS)
    back = seen(back_s, LIVE, lacking(50 * MB))
    forget_absences(memory, at_ms=back.at_ms, gap_ms=GAP_MS)
    found = select_copies(memory, back, SETTINGS).copies
    assert found is not None
    assert bool(len(found)) is expected


def test_a_recovery_that_ends_goes_on_after_a_gap():
    memory = KafkaMemory()
    select_copies(memory, seen(0, LIVE, lacking(50 * MB)), SETTINGS)
    forget_absences(memory, at_ms=200_000, gap_ms=GAP_MS)
    found = select_copies(memory, seen(200, LIVE, lacking(9 * MB)), SETTINGS).copies
    assert found is not None
    assert len(found) == 1


UNRATED = replace(BEHIND, writes=None)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([seen(10, AWAY, BEHIND), seen(20, LIVE, lacking(50 * MB))], [False, True]),
        ([seen(10, AWAY, BEHIND), seen(20, LIVE, lacking(49 * MB))], [False, False]),
        ([seen(10, AWAY, UNRATED), seen(20, LIVE, lacking(50 * MB))], [False, True]),
        (
            [seen(10, AWAY, BEHIND), seen(20, LIVE, replace(UNRATED, missing={3: 50 * MB}))],
            [False, False],
        ),
        ([seen(10, AWAY, BEHIND), seen(20, LIVE, BEHIND)], [False, False]),
        (
            [
                seen(10, AWAY, BEHIND),
                *(seen(at_s, LIVE, lacking(at_s * MB)) for at_s in range(20, 200, 10)),
            ],
            [False] * 19,
        ),
        (
            [
                seen(10, AWAY, replace(BEHIND, writes=5 * MB)),
                seen(20, LIVE, replace(lacking(100 * MB), writes=0)),
            ],
            [False, False],
        ),
        (
            [
                seen(10, AWAY, BEHIND),
                seen(20, LIVE, lacking(50 * MB)),
                seen(30, LIVE, lacking(5 * MB)),
                seen(40, AWAY, BEHIND),
            ],
            [False, True, True, True],
        ),
    ],
    ids=[
        "20 MB were written, twice that and 10 MB more are missing",
        "a byte less than that",
        "a rate that is known late counts for all the time",
        "what was written is not known",
        "what it lacks is not known",
        "it falls behind as quickly as is written",
        "it was written before the traffic fell",
        "once it recovers, it does to its end",
    ],
)
def test_a_broker_that_misses_far_more_than_was_written_meanwhile_recovers_however_short_it_was_away(
    rounds: list[Observation], expected: list[bool]
):
    """1 MB/s are written from second 0 on, and ``recovery_min_bytes`` is 10 MB."""
    assert paced([WELL, *rounds])[1:] == expected


LEAVES = Partition("t-0", [1, 2, 3], [1, 2, 4], MB, 100 * MB, isr=[1, 2], recovering=[3])


@pytest.mark.parametrize(
    ("live", "kinds"),
    [(frozenset({1, 2, 4}), [REASSIGNMENT]), (frozenset({1, 2, 3, 4}), [RECOVERY, REASSIGNMENT])],
    ids=["it is away", "it is back, and fetches as long as it is a replica"],
)
def test_a_replica_that_the_move_removes_recovers_only_where_its_broker_is_alive(
    live: frozenset[int], kinds: list[int]
):
    memory = KafkaMemory()
    away = [seen(at_s, frozenset({1, 2, 4}), LEAVES) for at_s in (0, 30, 90)]
    for observation in (*away, seen(100, live, LEAVES)):
        found = select_copies(memory, observation, SETTINGS).copies
    assert found is not None
    assert found.kind.tolist() == kinds


@pytest.mark.parametrize(("moves", "missing"), [(True, 0), (False, UNKNOWN)])
def test_what_a_broker_that_is_away_will_fetch_does_not_count_as_left_while_others_are_copied(
    missing: int, *, moves: bool
):
    memory, others = KafkaMemory(), [MOVE] if moves else []
    for at_s in (0, 30, 90):
        observation = replace(seen(at_s, AWAY, BEHIND, *others), is_running=moves)
        found = select_copies(memory, observation, SETTINGS)
    assert found.copies is not None
    assert found.is_running is moves
    assert found.copies.missing_bytes[found.copies.kind == RECOVERY].tolist() == [missing]


@pytest.mark.parametrize(("live", "pressed"), [(LIVE, ["t-0"]), (AWAY, [])], ids=["it fetches", "it is away"])
def test_a_partition_under_min_isr_presses_the_others_while_it_recovers_unpaced(
    live: frozenset[int], pressed: list[str]
):
    memory, behind = KafkaMemory(), replace(lacking(50 * MB), isr=[1], recovering=[2, 3], min_in_sync=2)
    behind = replace(behind, recovering=[3], replicas=[1, 3], target=[1, 3])
    for at_s in (0, 90):
        found = select_copies(memory, seen(at_s, live, behind), SETTINGS)
    assert found.under_min_isr == pressed
    assert found.copies is not None
    assert len(found.copies) == 0
    off = replace(SETTINGS, yield_under_min_isr=False)
    assert select_copies(memory, seen(100, live, behind), off).under_min_isr == []


def test_a_planned_move_does_not_count_as_left_beside_one_that_runs():
    runs = Partition("r-0", [1, 2, 3], [2, 3], MB, 100 * MB, adding=[3])
    found = select_copies(KafkaMemory(), replace(seen(0, LIVE, runs, MOVE), is_running=True), SETTINGS)
    assert found.copies is not None
    assert found.copies.missing_bytes.tolist() == [UNKNOWN, 0]
    assert found.running_count == 1
    planned = select_copies(KafkaMemory(), replace(seen(0, LIVE, MOVE), is_running=False), SETTINGS)
    assert planned.copies is not None
    assert (planned.copies.missing_bytes.tolist(), planned.running_count) == ([UNKNOWN], 0)


MOVE = Partition("u-0", [1, 2], [2, 3], MB, 100 * MB, isr=[1, 2])
ON_DISKS = Partition("v-0", [1, 2], [1, 2], MB, 100 * MB, isr=[1, 2], between_disks=[2])


@pytest.mark.parametrize(
    ("name", "kind"), [("reassignments", REASSIGNMENT), ("recoveries", RECOVERY), ("disks", DISK)]
)
def test_each_kind_can_be_switched_off(name: str, kind: int):
    every = seen(0, LIVE, lacking(50 * MB), MOVE, ON_DISKS)
    settings = replace(SETTINGS, **{name: False})
    copies = select_copies(KafkaMemory(), every, settings).copies
    assert copies is not None
    assert sorted(copies.kind.tolist()) == sorted({REASSIGNMENT, RECOVERY, DISK} - {kind})


def test_a_partition_under_min_isr_recovers_as_fast_as_it_can_unless_that_is_off():
    rows = [seen(0, LIVE, replace(lacking(50 * MB), min_in_sync=3))]
    assert paced(rows) == [False]
    assert paced(rows, replace(SETTINGS, yield_under_min_isr=False)) == [True]


PRESSED = replace(lacking(50 * MB), min_in_sync=3)
OFF = replace(SETTINGS, reassignments=False, recoveries=False, disks=False)


@pytest.mark.parametrize(
    ("rounds", "settings", "unpaced"),
    [
        ([WELL, seen(10, LIVE, lacking(50 * MB))], SETTINGS, ["{1 catches}: not seen to be away"]),
        (
            [WELL, seen(10, AWAY, BEHIND), seen(20, LIVE, lacking(5 * MB), BESIDE)],
            SETTINGS,
            ["{2 catch}: away for less than recovery_after_s"],
        ),
        (
            [seen(0, LIVE, lacking(5 * MB))],
            SETTINGS,
            ["{1 catches}: less is missing than recovery_min_bytes"],
        ),
        ([seen(0, LIVE, PRESSED)], SETTINGS, ["{1 catches}: under min.insync.replicas"]),
        ([seen(0, None, lacking(50 * MB))], SETTINGS, ["{1 catches}: no report says who is alive"]),
        (
            [replace(seen(0, LIVE, lacking(50 * MB), MOVE, ON_DISKS), is_running=True)],
            OFF,
            [
                "1 replica is reassigned unpaced: kafka.throttle.reassignments is false",
                "1 replica is moved between disks unpaced: kafka.throttle.disks is false",
                "{1 catches}: kafka.throttle.recoveries is false",
            ],
        ),
        ([replace(seen(0, LIVE, MOVE), is_running=False)], OFF, []),
        ([WELL, seen(10, AWAY, BEHIND)], SETTINGS, []),
        ([seen(0, LIVE, lacking(50 * MB))], SETTINGS, []),
    ],
    ids=[
        "slow",
        "restarted",
        "little",
        "under min.insync.replicas",
        "nobody says who is alive",
        "switched off",
        "planned: nothing is copied",
        "away: nothing is copied",
        "paced",
    ],
)
def test_what_is_copied_and_not_paced_is_named_with_the_reason(
    rounds: list[Observation], settings: ThrottleSettings, unpaced: list[str]
):
    memory = KafkaMemory()
    found = [select_copies(memory, observation, settings).unpaced for observation in rounds]
    words = {
        "{1 catches}": "1 replica on broker 3 catches up unpaced",
        "{2 catch}": "2 replicas on broker 3 catch up unpaced",
    }
    for short, whole in words.items():
        unpaced = [each.replace(short, whole) for each in unpaced]
    assert list(found[-1]) == unpaced


@pytest.mark.parametrize(
    ("observation", "progress"),
    [
        (seen(70, AWAY, BEHIND), "planned"),
        (seen(70, LIVE, lacking(50 * MB)), "begun"),
        (seen(70, AWAY, BEHIND, ON_DISKS), "begun"),
        (replace(seen(70, AWAY, BEHIND, MOVE), is_running=False), "planned"),
        (seen(70, AWAY, BEHIND, MOVE), "begun"),
    ],
    ids=["away", "back", "disks go on", "beside a planned move", "beside a running move"],
)
def test_what_has_not_begun_is_planned(observation: Observation, progress: str):
    memory = KafkaMemory()
    select_copies(memory, WELL, SETTINGS)
    select_copies(memory, seen(1, AWAY, BEHIND), SETTINGS)
    assert select_copies(memory, observation, SETTINGS).is_planned is (progress == "planned")


def test_a_recovery_that_had_begun_is_not_planned_again_while_its_broker_is_away():
    memory = KafkaMemory()
    for observation in (WELL, seen(1, AWAY, BEHIND), seen(70, LIVE, lacking(50 * MB))):
        select_copies(memory, observation, SETTINGS)
    assert not select_copies(memory, seen(80, AWAY, BEHIND), SETTINGS).is_planned
