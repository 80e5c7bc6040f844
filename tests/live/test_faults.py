"""Fault schedules with real brokers and a real controller, for `make test-slow`.

What each fault does alone is tested in `make test`, too. `python -m tests.faults` runs more, and keeps a list of what they showed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.contract.envelope import EPOCH_HEADER
from tests.faults.oracle import differences
from tests.faults.pulsar_world import PulsarWorld
from tests.faults.running import Setup, run_schedule, seen_of
from tests.faults.schedule import Fault, System, drawn, drawn_failovers
from tests.faults.world import KafkaWorld, World

pytestmark = pytest.mark.live

FAILOVERS_COUNT = 4
SLOW_SEEDS: dict[System, range] = {"kafka": range(1, 31), "pulsar": range(1, 13)}


@pytest.fixture(scope="module")
def kafka_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with KafkaWorld(tmp_path_factory.mktemp("faults") / "brokers") as world:
        yield world


@pytest.fixture(scope="module")
def pulsar_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with PulsarWorld(tmp_path_factory.mktemp("faults") / "brokers") as world:
        yield world


def check(world: World, faults: list[Fault], directory: Path, seed: int) -> None:
    outcome = run_schedule(world, faults, directory, seed=seed)
    assert list(outcome.problems) == [], outcome.notes


@pytest.mark.slow
def test_a_killed_jvm_a_cut_network_and_a_leader_that_moves_lose_nothing_and_what_is_repeated_is_seen(
    kafka_world: World, tmp_path: Path
) -> None:
    faults = [
        Fault(kind="garbage", wait_s=1),
        Fault(kind="cut-network", wait_s=1, for_s=3, choice="cut"),
        Fault(kind="kill-controller", wait_s=1, choice="jvm"),
        Fault(kind="move-leaders", wait_s=1),
    ]
    outcome = run_schedule(kafka_world, faults, tmp_path, seed=1)
    assert list(outcome.problems) == [], outcome.notes

    stage, wanted = outcome.stage, outcome.wanted
    assert stage is not None
    actions = stage.topics.actions
    first = stage.read(actions)[0]
    older = [(EPOCH_HEADER, b"1")]
    stage.send_raw(first.key, first.value, to=actions, headers=older)
    stage.flush()
    found = differences(seen_of(stage), wanted)
    stage.close()
    assert any("1 seen again" in difference for difference in found)
    assert any("epochs" in difference for difference in found), "an old controller's voice"


@pytest.mark.slow
def test_a_restored_pulsar_broker_and_killed_collector_and_executor_lose_nothing(
    pulsar_world: World, tmp_path: Path
) -> None:
    faults = [
        Fault(kind="stop-broker", wait_s=1, for_s=2, choice="orderly", broker=2),
        Fault(kind="kill-executor", wait_s=1),
        Fault(kind="kill-collector", wait_s=1),
    ]
    check(pulsar_world, faults, tmp_path, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLOW_SEEDS["kafka"])
def test_a_schedule_on_kafka_ends_as_the_replay_of_its_log(
    kafka_world: World, tmp_path: Path, seed: int
) -> None:
    check(kafka_world, drawn("kafka", seed, brokers=kafka_world.brokers), tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SLOW_SEEDS["pulsar"])
def test_a_schedule_on_pulsar_ends_as_the_replay_of_its_log(
    pulsar_world: World, tmp_path: Path, seed: int
) -> None:
    check(pulsar_world, drawn("pulsar", seed, brokers=pulsar_world.brokers), tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_leaders_that_end_again_and_again_beside_a_standby_lose_repeat_and_alter_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, system: System
) -> None:
    world: World = request.getfixturevalue(f"{system}_world")
    faults = drawn_failovers(system, 1, brokers=world.brokers, count=FAILOVERS_COUNT)
    outcome = run_schedule(world, faults, tmp_path, seed=1, setup=Setup(is_pair=True))
    assert list(outcome.problems) == [], outcome.notes
    assert outcome.failovers_count == FAILOVERS_COUNT
