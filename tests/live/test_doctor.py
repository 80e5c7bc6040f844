"""`trimtab doctor` against a real Kafka: it finds what is wrong there, disturbs nobody and changes nothing."""

import json
import socket
import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.processes import free_ports
from streaming.contract.beat import Beat, encode
from streaming.process.exits import OK, REFUSED, UNREACHABLE
from streaming.settings import load
from streaming.systems import publisher_of
from streaming.transport.publishing import Checkpoint
from tests.support.loads import closing, leaning
from tests.support.processes import command, until
from tests.support.stage import Stage

pytestmark = pytest.mark.live


def doctor(*arguments: str, code: int) -> dict[str, list[dict[str, str]]]:
    """The doctor's findings by check."""
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(command("doctor", *arguments, "-o", "json", code=code).stdout):
        found.setdefault(finding["check"], []).append(finding)
    return found


def wrong(found: dict[str, list[dict[str, str]]]) -> dict[tuple[str, str], str]:
    """The outcomes that are not ok, by check and subject."""
    return {
        (check, each["about"]): each["outcome"]
        for check, findings in found.items()
        for each in findings
        if each["outcome"] != "ok"
    }


def ends(stage: Stage) -> dict[str, int]:
    """How many records each topic has."""
    partitions = [TopicPartition(name, 0) for name in stage.topics.all]
    with KafkaConsumer(bootstrap_servers=stage.bootstrap) as consumer:
        return {at.topic: end for at, end in consumer.end_offsets(partitions).items()}


def alter(stage: Stage, topic: str, setting: str, value: str) -> None:
    """Change a setting; returns when the broker shows it."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {setting: value})
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:

        def shown() -> object:
            found = admin.describe_configs([resource], config_filter="all")["topic"]
            return found[topic][setting]["value"]

        admin.alter_configs([resource])
        until(lambda: shown() == value, what=f"{setting} of {topic}")


def test_it_finds_what_is_wrong_beside_a_controller_that_goes_on_undisturbed(stage: Stage):
    file = str(stage.settings())
    settings = load(file=stage.settings(), flags={}, environ={}).settings
    with publisher_of(settings) as running:
        nothing = Checkpoint(query_id=None, last_batch_id=None)
        epoch = running.open(lambda: nothing)
        instance = f"{socket.gethostname()}:1"
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        beat = Beat(
            name=stage.name,
            instance=instance,
            epoch=epoch,
            batch=None,
            at=at,
            version="0.0.9",
            session_s=10.0,
        )
        stage.send_raw(stage.name.encode(), encode(beat), to=stage.topics.beats)
        stage.send([*leaning(0), closing(1)])
        stage.flush()
        alter(stage, stage.topics.commits, "cleanup.policy", "delete")
        alter(stage, stage.topics.input, "retention.ms", "60000")
        before = ends(stage)
        found = doctor("--config", file, code=REFUSED)
        assert ends(stage) == before
        running.ensure_owner()
    assert wrong(found) == {
        ("topics", stage.topics.commits): "problem",
        ("topics", stage.topics.input): "warning",
        ("clocks", found["clocks"][0]["about"]): "warning",  # the events are of 1970
        ("versions", instance): "warning",
        ("lag", stage.topics.audit): "problem",
    }
    assert "behind the brokers' clock" in found["clocks"][0]["finding"]
    remedies = {each["about"]: each["remedy"] for each in found["topics"]}
    commits, sent = stage.topics.commits, stage.topics.input
    assert f"--entity-name {commits} --add-config cleanup.policy=compact" in remedies[commits]
    assert f"--entity-name {sent} --add-config retention.ms=86400000" in remedies[sent]
    assert found["leader"][0]["finding"] == f"{instance} runs, epoch {epoch}, batch none"
    assert found["checkpoint"][0]["outcome"] == "ok"
    assert found["lag"][0]["outcome"] == "ok"


@pytest.mark.slow
def test_brokers_that_do_not_answer_are_named_once_and_the_exit_code_says_so(stage: Stage):
    (port,) = free_ports(1)
    file = str(stage.settings(input__url=f"kafka://127.0.0.1:{port}"))
    found = doctor("--config", file, code=UNREACHABLE)
    assert found["addresses"][0]["outcome"] == "problem"
    assert f"kafka://127.0.0.1:{port} does not answer" == found["leader"][0]["finding"]
    assert {each["outcome"] for each in found["topics"]} == {"not checked"}


@pytest.mark.slow
def test_topics_that_are_missing_are_named_and_an_empty_cluster_is_told_what_to_start(stage: Stage):
    with KafkaAdminClient(bootstrap_servers=stage.bootstrap) as admin:
        admin.delete_topics([stage.topics.audit, stage.topics.beats])
    found = doctor("--config", str(stage.settings()), code=REFUSED)
    assert wrong(found) == {
        ("topics", stage.topics.audit): "problem",
        ("topics", stage.topics.beats): "warning",
        ("permissions", "input and output"): "not checked",
        ("lag", stage.topics.audit): "not checked",
        ("balancers", ""): "not checked",
        ("executors", ""): "not checked",
        ("leader", ""): "not checked",
        ("clocks", ""): "not checked",
        ("lag", stage.topics.input): "problem",
    }
    assert "trimtab topics create" in found["topics"][0]["remedy"]
    table = command("doctor", "--config", str(stage.settings()), code=REFUSED).output
    assert table.startswith("2 problems, 1 warning, 6 not checked, ")
    assert command("doctor", "--help", code=OK).output
