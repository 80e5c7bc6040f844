"""`trimtab topics create` on Pulsar, and what a start finds wrong with topics."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar, StandalonePulsar
from streaming.process.exits import REFUSED
from streaming.pulsar import topics
from streaming.pulsar.log import partitions_count
from streaming.settings import TopicNames
from streaming.transport.errors import StartError
from tests.live.driving import command, until
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage

pytestmark = pytest.mark.live


@pytest.fixture
def bare(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage without topics."""
    made = PulsarStage("", "bare", tmp_path, lab=Lab(pulsar, bundles_count=1))
    yield made
    made.close()


INACTIVE = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 3600}


def create(stage: PulsarStage, *, code: int = 0) -> dict[str, str]:
    """What `trimtab topics create` says of each topic by its short name; under "" what differs."""
    message = {"": ""}
    for line in command("topics", "create", "--config", str(stage.settings()), code=code).output.splitlines():
        topic, _, outcome = line.rpartition(": ")
        name = topic.rpartition("/")[2].partition(".bare")[0]
        if outcome in {
            "created",
            "already right",
            "differs",
            "deduplication switched on",
            "deletion while idle switched off",
        }:
            message[name] = outcome
        else:
            message[""] += line
    return message


def test_topics_are_made_as_needed_once_and_what_exists_gets_deduplication_and_is_told_what_else_it_lacks(
    bare: PulsarStage,
) -> None:
    lab = bare.lab
    assert lab is not None
    settings = bare.loaded()
    with pytest.raises(
        StartError, match=r"(?s)topics missing.*trimtab\.input.*trimtab\.commits.*topics create"
    ):
        topics.validate(settings)
    names = asdict(TopicNames()).values()
    assert create(bare) == {"": "", **dict.fromkeys(names, "created")}
    assert create(bare) == {"": "", **dict.fromkeys(names, "already right")}
    assert topics.validate(settings) == []

    audit = f"persistent/{lab.namespace}/{bare.topics.audit}"
    lab.post(f"{audit}/inactiveTopicPolicies", {**INACTIVE, "deleteWhileInactive": True})
    (warning,) = until(lambda: topics.validate(settings), what="the policy to be in force")
    assert f"{bare.topics.audit}: deleteWhileInactive is true" in warning
    assert create(bare)["trimtab.audit"] == "deletion while idle switched off"
    assert topics.validate(settings) == []

    actions = f"persistent/{lab.namespace}/{bare.topics.actions}"
    lab.post(f"{actions}/deduplicationEnabled", False)
    lab.post(f"{actions}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 10})
    refused = until(lambda: refusal(bare), what="the policies to be in force")
    assert f"topic persistent://{lab.namespace}/{bare.topics.actions}: deduplication is off" in refused
    assert "trimtab topics create" in refused
    assert "retention" not in refused, "that is a warning"

    message = create(bare, code=REFUSED)
    assert message["trimtab.actions"] == "deduplication switched on"
    assert "retention is 5 minutes, 10 MB" in message[""]
    assert (
        f"set-retention persistent://{lab.namespace}/{bare.topics.actions} --time 10080m --size -1"
        in message[""]
    )
    (warning,) = topics.validate(settings)
    assert "retention is 5 minutes" in warning


def refusal(stage: PulsarStage) -> str:
    """Why a start is refused; empty if it is not."""
    try:
        topics.validate(stage.loaded())
    except StartError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_pulsar_with_its_defaults_deletes_idle_topics_and_none_of_trimtabs(tmp_path: Path) -> None:
    quick = {
        "brokerDeleteInactiveTopicsFrequencySeconds": 1,
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": 1,
    }
    with StandalonePulsar(tmp_path / "pulsar", extra=quick) as pulsar:
        stage = PulsarStage("", "idle", tmp_path, lab=Lab(pulsar, bundles_count=1))
        lab = stage.lab
        assert lab is not None
        create(stage)
        for _ in range(2):
            lab.put(f"persistent/{lab.namespace}/somebody-elses", None)
            until(
                lambda: partitions_count(lab.admin, f"persistent://{lab.namespace}/somebody-elses") is None,
                what="an idle topic to be deleted",
            )
        assert topics.validate(stage.loaded()) == []
        stage.close()
