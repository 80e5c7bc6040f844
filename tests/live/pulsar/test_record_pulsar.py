"""`trimtab record` on Pulsar: replaying what it keeps gives what the live controller published, dead letters included."""

from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.test_record import check_equal, pause
from tests.support.loads import START_S, closing, leaning, played
from tests.support.processes import Warm
from tests.support.pulsar import Lab, PulsarStage

pytestmark = pytest.mark.live


@pytest.mark.slow
def test_a_replay_of_the_record_repeats_garbage_and_a_pause(pulsar: LocalPulsar, warm: Warm, tmp_path: Path):
    stage = PulsarStage.of(Lab(pulsar), tmp_path)
    config = stage.settings()
    stage.send([pause(paused=True, time_s=START_S)], to=stage.topics.control)
    with warm.run(config) as run:
        stage.send(played(range(4)))
        stage.wait_for(stage.topics.audit, 4, running=[run])
        stage.send([pause(paused=False, time_s=START_S)], to=stage.topics.control)
        garbage = [
            (b"east-1", b"not json"),
            (b"east-1", b""),
            (None, leaning(4)[0]),
            (b"west-1", leaning(4)[0]),
        ]
        for key, value in garbage:
            stage.send_raw(key, value)
        stage.send([*leaning(4), closing(4)])
        stage.wait_for(stage.topics.audit, 5, running=[run])
        stage.send(played(range(5, 9)))
        stage.wait_for(stage.topics.audit, 9, running=[run])
        stage.wait_for(stage.topics.dead_letter, len(garbage), running=[run])
    assert stage.published().actions_count > 0
    check_equal(stage, config, tmp_path / "run.ndjson.gz")
    stage.close()
