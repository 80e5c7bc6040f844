"""`trimtab doctor` against a real Pulsar: it finds what is wrong there, disturbs nobody and leaves nothing behind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from streaming.process.exits import REFUSED
from streaming.systems import publisher_of
from streaming.transport.publishing import Checkpoint
from tests.support.processes import command
from tests.support.pulsar import Lab, PulsarStage

pytestmark = pytest.mark.live


@pytest.fixture
def stage(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage without topics."""
    made = PulsarStage("", "doctor", tmp_path, lab=Lab(pulsar, bundles_count=1))
    yield made
    made.close()


def doctor(stage: PulsarStage) -> dict[str, list[dict[str, str]]]:
    """The doctor's findings by check."""
    output = command("doctor", "--config", str(stage.settings()), "-o", "json", code=REFUSED).stdout
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(output):
        found.setdefault(finding["check"], []).append(finding)
    return found


def subscriptions(stage: PulsarStage, topic: str) -> object:
    """Names of the subscriptions to a topic, and how many messages were published to it."""
    name = stage.full_name(topic).removeprefix("persistent://")
    stats = json.loads(stage.lab.admin.get(f"/admin/v2/persistent/{name}/stats"))
    return sorted(stats["subscriptions"]), stats["msgInCounter"]


def test_before_there_are_topics_it_names_them_and_the_command(stage: PulsarStage):
    found = doctor(stage)
    missing = [each for each in found["topics"] if each["outcome"] == "problem"]
    assert len(missing) == 7
    assert {each["remedy"] for each in missing} == {"Run: trimtab topics create"}
    assert found["addresses"][0]["outcome"] == "ok"


def test_it_finds_what_is_wrong_beside_a_controller_that_goes_on_undisturbed(stage: PulsarStage):
    lab = stage.lab
    stage.create_topics()
    nothing = Checkpoint(query_id=None, last_batch_id=None)
    with publisher_of(stage.loaded()) as running:
        running.open(lambda: nothing)
        lab.post(f"persistent/{lab.namespace}/{stage.topics.actions}/deduplicationEnabled", False)
        before = [subscriptions(stage, name) for name in (stage.topics.audit, stage.topics.beats)]
        found = doctor(stage)
        assert [subscriptions(stage, name) for name in (stage.topics.audit, stage.topics.beats)] == before
        running.ensure_owner()
    ((topics,),) = ([each for each in found["topics"] if each["outcome"] != "ok"],)
    assert (topics["outcome"], topics["about"]) == ("problem", stage.full_name(stage.topics.actions))
    assert topics["finding"].startswith("deduplication is off")
    assert "version " in found["addresses"][0]["finding"]
    assert found["checkpoint"][0]["outcome"] == "ok"
    assert [each["outcome"] for each in found["clocks"]] == ["ok"], "Pulsar says what time it is"
    assert found["leader"][0]["outcome"] == "problem"
