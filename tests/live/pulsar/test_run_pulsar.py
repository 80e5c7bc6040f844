"""`trimtab run` with either side on either system: what `trimtab replay` decides is published, once, also over `kill -9`."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import LocalKafka
from deploy.local.pulsar import LocalPulsar
from streaming.process.exits import FENCED, REFUSED
from streaming.systems import publisher_of
from tests.live.changing import change_settings_at
from tests.live.checkpoints import at, newest_start
from tests.live.crashing import BATCHES_COUNT, RECORDS_PER_BATCH, crash_through
from tests.live.driving import Warm
from tests.live.loads import played
from tests.live.pulsar.dying import POINTS
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.stage import replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

DYING = "tests.live.pulsar.dying"


@pytest.fixture
def on_pulsar(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage with both sides on Pulsar."""
    made = PulsarStage.of(Lab(pulsar), tmp_path)
    yield made
    made.close()


def test_killed_when_the_first_message_of_a_batch_is_out_every_action_is_seen_once_as_in_replay(
    on_pulsar: PulsarStage, warm: Warm
) -> None:
    wanted = crash_through(
        on_pulsar, ["first-message:1"], program=DYING, records_per_batch=2 * RECORDS_PER_BATCH, successor=warm
    )
    assert on_pulsar.published() == wanted
    assert len(set(on_pulsar.epochs(on_pulsar.topics.audit))) == 2, "each start has its own"


@pytest.mark.slow
def test_from_pulsar_to_kafka_what_comes_in_is_decided_as_in_replay(
    pulsar: LocalPulsar, kafka: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    stage = PulsarStage.of(Lab(pulsar), tmp_path, bootstrap=kafka.bootstrap, on_pulsar=["input"])
    config = stage.settings()
    wanted = replayed(config, played(range(8)))
    assert wanted.actions_count > 0
    stage.send(played(range(8)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(wanted, running=[run])
        assert run.terminate() == 0
    assert stage.published() == wanted
    assert stage.rejected() == []
    stage.close()


def test_from_kafka_to_pulsar_a_successor_ends_the_controller_and_a_checkpoint_that_is_gone_is_refused(
    pulsar: LocalPulsar, kafka: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    stage = PulsarStage.of(Lab(pulsar), tmp_path, bootstrap=kafka.bootstrap, on_pulsar=["output"])
    config = stage.settings()
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2
    stage.send(played(range(6)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(wanted, running=[run])
        successor = publisher_of(stage.loaded())
        query_id = json.loads((newest_start(stage.checkpoint) / "metadata").read_text())["id"]
        successor.open(at(query_id, 10**6))
        assert run.wait() == FENCED, run.output
        assert "another controller" in run.output
        successor.close()
    assert stage.published() == wanted
    assert stage.rejected() == []

    shutil.rmtree(stage.checkpoint)
    with warm.start("run", "--config", str(config)) as run:
        assert run.wait() == REFUSED, run.output
        assert "the checkpoint was deleted or replaced by a new one" in run.output
    stage.close()


@pytest.mark.slow
def test_a_batch_that_is_begun_is_finished_with_its_own_settings_and_the_next_has_the_new_ones(
    on_pulsar: PulsarStage, warm: Warm
) -> None:
    changed = change_settings_at(on_pulsar, warm, "first-message:3", program=DYING)
    assert "batch 3 was published before: it runs once more with its old settings" in changed.output
    assert len(changed.acting) >= len(changed.out)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_one_point_of_several_batches_every_action_is_seen_once_as_in_replay(
    on_pulsar: PulsarStage, point: str
) -> None:
    points = [f"{point}:{batch}" for batch in (0, 2, 3, BATCHES_COUNT - 2)]
    wanted = crash_through(on_pulsar, points, program=DYING)
    assert on_pulsar.published() == wanted
