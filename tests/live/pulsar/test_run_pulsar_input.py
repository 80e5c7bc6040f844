"""`trimtab run` with its input on Pulsar decides what `trimtab replay` decides, also over a stop and a start."""

import pulsar as pulsar_client
import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.driving import Warm, command
from tests.live.loads import played
from tests.live.pulsar.lab import Lab
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_what_comes_in_on_pulsar_is_decided_and_goes_out_on_kafka_once_over_a_restart(
    pulsar: LocalPulsar, stage: Stage, warm: Warm
) -> None:
    lab = Lab(pulsar)
    config = stage.settings(input__url=pulsar.service_url, output__url=f"kafka://{stage.bootstrap}")
    section = f'\n[input.pulsar]\nadmin_url = "{pulsar.admin_url}"\nnamespace = "{lab.namespace}"\n'
    config.write_text(config.read_text() + section)
    created = command("topics", "create", "--config", str(config))
    topic = f"persistent://{lab.namespace}/{stage.topics.input}"
    assert f"{topic}: created" in created.stdout

    events = played(range(8))
    wanted = replayed(config, events)
    client = pulsar_client.Client(
        pulsar.service_url, logger=pulsar_client.ConsoleLogger(pulsar_client.LoggerLevel.Error)
    )
    producer = client.create_producer(topic, batching_enabled=False)
    for part in (events[: len(events) // 2], events[len(events) // 2 :]):
        for value in part:
            producer.send(value, partition_key="east-1")
        so_far = replayed(config, events[: len(events) // 2]) if part[0] == events[0] else wanted
        with warm.start("run", "--config", str(config), "--from", "earliest") as run:
            stage.wait_for_outputs(so_far, running=[run])
            assert run.terminate() == 0
    client.close()
    assert wanted.actions_count > 0
    assert stage.published() == wanted
    assert stage.rejected() == []
