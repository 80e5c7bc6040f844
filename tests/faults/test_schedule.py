"""A seed is a schedule: the same every time, and over many seeds everything happens."""

import pytest

from tests.faults.doing import DEEDS
from tests.faults.failovers import FAILOVER_DEEDS
from tests.faults.schedule import (
    DISTURBANCES,
    ENDINGS,
    FAULTS_MAX,
    FAULTS_MIN,
    KINDS,
    System,
    drawn,
    drawn_failovers,
)

SYSTEMS: tuple[System, ...] = ("kafka", "pulsar")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_seed_gives_the_same_schedule_every_time_and_others_another(system: System):
    first = drawn(system, 1, brokers=3)
    assert drawn(system, 1, brokers=3) == first
    assert len({str(drawn(system, seed, brokers=3)) for seed in range(100)}) > 90
    assert FAULTS_MIN <= len(first) <= FAULTS_MAX


@pytest.mark.parametrize("system", SYSTEMS)
def test_over_a_hundred_seeds_every_kind_and_every_broker_comes_up(system: System):
    faults = [fault for seed in range(100) for fault in drawn(system, seed, brokers=3)]
    assert {fault.kind for fault in faults} == set(KINDS[system])
    assert {fault.broker for fault in faults} == {1, 2, 3}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_schedule_of_failovers_ends_the_leader_as_often_as_asked_and_disturbs_it(system: System):
    schedules = [drawn_failovers(system, seed, brokers=3, count=10) for seed in range(30)]
    assert schedules[1] == drawn_failovers(system, 1, brokers=3, count=10)
    assert all(sum(fault.kind in ENDINGS for fault in each) == 10 for each in schedules)
    kinds = {fault.kind for each in schedules for fault in each}
    assert kinds == {*ENDINGS, *DISTURBANCES[system]}


def test_every_kind_can_be_done():
    assert set(DEEDS) == {kind for kinds in KINDS.values() for kind in kinds}
    assert set(FAILOVER_DEEDS) == {*ENDINGS, *(kind for kinds in DISTURBANCES.values() for kind in kinds)}
