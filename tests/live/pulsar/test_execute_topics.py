"""The executor with its topics on Pulsar: each action once, also over restarts, with epochs and pauses remembered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from policies.throttle.lists import ThrottledLists
from streaming.ports.memory import Memory, Rate, Remembered, Taken
from streaming.ports.publishing import PublishError
from streaming.systems.actions import memory_of
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.lab import CLUSTER, Lab, other_than
from tests.live.pulsar.stage import PulsarStage

pytestmark = pytest.mark.live


@pytest.fixture
def stage(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    made = PulsarStage.of(Lab(pulsar, bundles_count=1), tmp_path)
    yield made
    made.close()


def test_actions_are_taken_from_pulsar_once_and_results_pauses_and_epochs_outlive_the_process(
    pulsar: LocalPulsar, stage: PulsarStage
) -> None:
    commander, lab = Commander(stage, pulsar), Lab(pulsar)
    commander.execute()
    assert commander.results_count() == 0, "there is nothing to do yet"
    bundle, *_ = lab.bundles()
    owner = lab.assigned(bundle)
    destination = other_than(lab, owner)
    stage.send_raw(b"east-1", b"no action", to=stage.topics.actions)
    moved = commander.unload(bundle, owner=owner, to=destination, epoch=2)
    commander.execute()
    assert commander.results()[moved]["outcome"] == "succeeded", commander.results()
    assert lab.owner(bundle) == destination
    count = commander.results_count()
    commander.execute()
    assert commander.results_count() == count, "what was dealt with does not come again"

    stale = commander.unload(bundle, owner=destination, to=owner, epoch=1)
    commander.execute()
    assert "epoch" in str(commander.results()[stale]["reason"])
    commander.control(paused=True, who="ops", why="test")
    commander.clear_control(b"")
    held = commander.unload(bundle, owner=destination, to=owner, epoch=2)
    commander.execute()
    assert "paused" in str(commander.results()[held]["reason"])
    assert lab.owner(bundle) == destination


def test_what_was_put_on_a_kafka_cluster_is_remembered_on_pulsar(stage: PulsarStage) -> None:
    settings = stage.loaded()
    memory = memory_of(settings, cluster=CLUSTER)
    assert memory.read() == Remembered()
    put = Remembered(added=ThrottledLists(leader={"t": "0:1"}), rates={"leader:1": Rate(ours=5, before=None)})
    write(memory, put)
    write(memory_of(settings, cluster="west"), put)
    assert memory_of(settings, cluster=CLUSTER).read() == put
    write(memory, Remembered())
    assert memory.read() == Remembered()
    assert memory_of(settings, cluster="west").read() == put


def test_of_two_executors_that_remember_on_pulsar_the_one_that_was_overtaken_overwrites_nothing(
    stage: PulsarStage,
) -> None:
    memory = memory_of(stage.loaded(), cluster=CLUSTER)
    put = Remembered(added=ThrottledLists(leader={"t": "0:1"}))
    with memory.hold() as overtaken:
        write(memory_of(stage.loaded(), cluster=CLUSTER), put)
        with pytest.raises(Taken):
            overtaken.write(Remembered())
    with memory.hold() as again:
        assert again.remembered == put


def write(memory: Memory, remembered: Remembered) -> None:
    with memory.hold() as held:
        held.write(remembered)


def test_without_topics_the_executor_says_how_to_make_them(pulsar: LocalPulsar, tmp_path: Path) -> None:
    bare = PulsarStage("", "bare", tmp_path, lab=Lab(pulsar, bundles_count=1))
    with pytest.raises(PublishError, match=r"there is no topic persistent://.*run `trimtab topics create`"):
        memory_of(bare.loaded(), cluster=CLUSTER).read()
    bare.close()
