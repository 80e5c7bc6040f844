"""The executor with its topics on Pulsar: each action once, also over restarts, with epochs and pauses remembered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.pulsar.commanding import Commander
from tests.live.pulsar.lab import Lab, other_than
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
