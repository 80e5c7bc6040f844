"""Topics and checkpoints that are deleted or made anew, under a running controller and between two of its starts."""

import json
import shutil
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition

from streaming.process.exits import REFUSED
from tests.support.loads import played
from tests.support.processes import Warm, until
from tests.support.stage import Outputs, Stage, newest_start, replayed

pytestmark = pytest.mark.live


def run_once(stage: Stage, warm: Warm, config: Path, events: list[bytes]) -> Outputs:
    """A first start that decides on these events and stops."""
    stage.send(events)
    wanted = replayed(config, events)
    with warm.run(config) as run:
        stage.wait_for_outputs(wanted, running=[run])
    return wanted


def delete(stage: Stage, topic: str) -> None:
    """Delete a topic and wait until the brokers no longer know it."""
    stage.close()
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), what=f"{topic} to be gone")


def test_an_input_topic_made_anew_is_refused_at_the_start_and_noticed_while_it_runs(stage: Stage, warm: Warm):
    config = stage.settings()
    wanted = run_once(stage, warm, config, played(range(2)))
    card = newest_start(stage.checkpoint) / "trimtab.json"
    ids = json.loads(card.read_text())["topic_ids"]
    assert set(ids) == {stage.topics.input, stage.topics.control}

    delete(stage, stage.topics.input)
    stage.create_topics()
    stage.send(played(range(10, 20)))
    said = warm.refused(config)
    assert "was deleted and made anew" in said
    assert "--fresh" in said
    assert stage.published() == wanted

    with warm.start("run", "--config", str(config), "--fresh", "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count + 10, running=[run])
        delete(stage, stage.topics.input)
        stage.create_topics()
        stage.send(played(range(20, 60)))
        assert run.wait() == REFUSED, run.output
        assert "was deleted and made anew" in run.output or "has lost records" in run.output


@pytest.mark.slow
def test_a_log_that_was_truncated_and_has_grown_again_is_refused(stage: Stage, warm: Warm):
    config = stage.settings()
    wanted = run_once(stage, warm, config, played(range(2)))
    long_ago(newest_start(stage.checkpoint))
    said = warm.refused(config)
    assert "the log was truncated and has grown again" in said
    assert stage.published() == wanted


def long_ago(checkpoint: Path) -> None:
    """Make it look as if the newest batch had been planned an hour before the records it ends with were appended."""
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    head, batch, *sources = newest.read_text().splitlines()
    planned = json.loads(batch)
    planned["batchTimestampMs"] -= 3_600_000
    newest.write_text("\n".join((head, json.dumps(planned), *sources)))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


@pytest.mark.slow
def test_a_checkpoint_deleted_under_a_running_controller_is_noticed(stage: Stage, warm: Warm):
    config = stage.settings()
    stage.send(played(range(2)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(replayed(config, played(range(2))), running=[run])
        shutil.rmtree(stage.checkpoint)
        assert run.wait() == REFUSED, run.output
        assert "was deleted or replaced under the running controller" in run.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["input", "control", "actions", "audit", "dead_letter"])
def test_a_topic_deleted_under_a_running_controller_is_noticed(stage: Stage, warm: Warm, name: str):
    config = stage.settings()
    stage.send(played(range(2)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for_outputs(replayed(config, played(range(2))), running=[run])
        topic = str(getattr(stage.topics, name))
        delete(stage, topic)
        assert run.wait() == REFUSED, run.output
        assert f"topics missing at {stage.bootstrap}: {topic}" in run.output


def test_input_that_retention_deleted_unread_is_passed_over_when_told_to(stage: Stage, warm: Warm):
    config = stage.settings()
    before, gone, after = played(range(3)), played(range(3, 5)), played(range(5, 8))
    run_once(stage, warm, config, before)
    stage.send(gone)
    first = len(before) + len(gone)
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
        admin.delete_records({TopicPartition(stage.topics.input, 0): first})
    stage.send(after)
    with warm.start("run", "--config", str(config)) as run:
        assert run.wait() == REFUSED, run.output
        assert "--skip-lost" in run.output

    wanted = replayed(config, [*before, *after])
    with warm.run(config, "--skip-lost") as run:
        stage.wait_for(stage.topics.audit, wanted.rounds_count + 1, running=[run])
    assert stage.published() == wanted, "the memory of the rounds before is kept"
    (message,) = [
        record
        for record in stage.read(stage.topics.audit)
        if json.loads(record.value)["type"] == "trimtab.input-skipped.v1"
    ]
    assert message.key is None
    assert json.loads(message.value)["data"]["ranges"] == [
        {
            "topic": stage.topics.input,
            "partition": 0,
            "read_until": str(len(before)),
            "goes_on_from": str(first),
            "records_count": len(gone),
        }
    ]
    with warm.run(config) as run:
        stage.send(played([8]))
        stage.wait_for(stage.topics.audit, wanted.rounds_count + 2, running=[run])
