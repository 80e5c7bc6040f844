"""Creating and checking the topics of a real Kafka, and what programs may rely on there."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.executor.memory import Memory, Remembered
from streaming.kafka.link import KafkaLink
from streaming.kafka.side import KafkaSide
from streaming.kafka.topics import RECORD_HEADROOM_BYTES, create
from streaming.settings import ControllerSettings, Settings, TopicNames, load
from streaming.systems import validate
from streaming.transport.errors import StartError
from streaming.transport.topics import Outcome
from tests.support.ports_suite import PortsSuite
from tests.support.processes import until
from tests.support.stage import Stage

pytestmark = pytest.mark.live

RECORD_BYTES = 4 * 1024 * 1024
TIMESTAMPS, POLICY, SIZE = "message.timestamp.type", "cleanup.policy", "max.message.bytes"


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of a test's own, not there yet."""

    bootstrap: str
    admin: KafkaAdminClient
    names: TopicNames

    @property
    def settings(self) -> Settings:
        return Settings(topics=self.names, controller=ControllerSettings(max_record_bytes=RECORD_BYTES))

    def make(self, *, input_partitions: int = 1) -> dict[str, Outcome]:
        made = create(
            KafkaLink(self.bootstrap),
            self.settings,
            frozenset(self.names.all),
            input_partitions=input_partitions,
        )
        return {outcome.topic: outcome.outcome for outcome in made}

    def check(self) -> list[str]:
        return validate(KafkaSide(KafkaLink(self.bootstrap)), self.settings, frozenset(self.names.all))

    def refused(self) -> str:
        with pytest.raises(StartError) as refusal:
            self.check()
        return str(refusal.value)

    def configs(self, *topics: str) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        found = self.admin.describe_configs(resources, config_filter="all")["topic"]
        return {
            name: {key: each["value"] for key, each in settings.items()} for name, settings in found.items()
        }

    def alter(self, field: str, setting: str, value: str) -> str:
        """Change a setting and wait until the broker shows it, which is later; returns the topic."""
        topic = str(getattr(self.names, field))
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: value})])
        until(lambda: self.configs(topic)[topic][setting] == value, what=f"{setting} of {topic}")
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])
        until(lambda: topic not in self.admin.list_topics(), what=f"{topic} to be gone")


@pytest.fixture
def topics(kafka: LocalKafka) -> Iterator[Topics]:
    unique = uuid4().hex[:8]
    names = {field: f"{name}.{unique}" for field, name in asdict(TopicNames()).items()}
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        yield Topics(kafka.bootstrap, admin, TopicNames(**names))


def test_created_topics_pass_the_check_and_a_second_create_changes_nothing(topics: Topics):
    assert set(topics.make().values()) == {Outcome.CREATED}
    assert len(topics.make()) == 9
    assert set(topics.make().values()) == {Outcome.ALREADY_RIGHT}
    assert topics.check() == []


def test_the_default_names_are_the_documented_ones():
    own = [
        "input",
        "control",
        "actions",
        "actions.dry-run",
        "audit",
        "dead-letter",
        "commits",
        "executor.kafka",
        "beats",
    ]
    assert set(asdict(TopicNames()).values()) == {f"trimtab.{each}" for each in own}


def test_a_controller_starts_without_the_topics_of_executors_and_beats(topics: Topics):
    topics.make()
    topics.delete(topics.names.executor_kafka)
    assert topics.check() == []
    topics.delete(topics.names.beats)
    (warning,) = topics.check()
    missing = f"topic {topics.names.beats} is missing at {topics.bootstrap}"
    assert warning.startswith(f"{missing}. Run: trimtab topics create.")


def test_created_topics_have_append_time_compaction_and_partitions(topics: Topics):
    topics.make(input_partitions=3)
    names = topics.names
    configs = topics.configs(*asdict(names).values())
    append_time = {name for name, found in configs.items() if found[TIMESTAMPS] == "LogAppendTime"}
    compacted = {name for name, found in configs.items() if found[POLICY] == "compact"}
    assert append_time == {names.input, names.control, names.beats}
    assert compacted == {names.control, names.commits, names.executor_kafka}
    described = topics.admin.describe_topics([names.input, names.audit])
    partitions = {topic["name"]: len(topic["partitions"]) for topic in described}
    assert partitions == {names.input: 3, names.audit: 1}


def test_a_record_of_the_largest_accepted_size_fits_the_input_topic(topics: Topics):
    topics.make()
    with KafkaProducer(bootstrap_servers=topics.bootstrap, max_request_size=2 * RECORD_BYTES) as producer:
        sent = producer.send(topics.names.input, key=b"c" * 100, value=bytes(RECORD_BYTES))
        assert sent.get(timeout=20).offset == 0


def test_missing_topics_are_named_with_the_command_that_makes_them(topics: Topics):
    refusal, names = topics.refused(), topics.names
    assert all(name in refusal for name in set(asdict(names).values()) - {names.executor_kafka, names.beats})
    assert "trimtab topics create" in refusal


WRONG = [
    ("input", TIMESTAMPS, "CreateTime", "LogAppendTime"),
    ("control", TIMESTAMPS, "CreateTime", "LogAppendTime"),
    ("control", POLICY, "delete", "compact"),
    ("commits", POLICY, "delete", "compact"),
]


@pytest.mark.parametrize(("field", "setting", "wrong", "right"), WRONG)
def test_a_wrong_setting_is_refused_with_the_remedy(
    topics: Topics, field: str, setting: str, wrong: str, right: str
):
    topics.make()
    topic = topics.alter(field, setting, wrong)
    refusal = topics.refused()
    assert f"topic {topic}: {setting} is {wrong}, expected {right}" in refusal
    assert (
        f"kafka-configs.sh --bootstrap-server {topics.bootstrap} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {setting}={right}"
    ) in refusal
    assert topics.make()[topic] is Outcome.DIFFERS
    assert topics.refused() == refusal


@pytest.mark.parametrize("field", ["control", "commits"])
def test_several_partitions_of_control_or_commits_are_refused(topics: Topics, field: str):
    topics.make()
    topic = asdict(topics.names)[field]
    topics.admin.create_partitions({topic: 2})
    refused = f"topic {topic}: partitions is 2, expected 1"
    until(lambda: len(topics.admin.describe_topics([topic])[0]["partitions"]) == 2, what="two partitions")
    assert refused in topics.refused()


def test_another_number_of_input_partitions_is_a_difference_for_create_only(topics: Topics):
    topics.make(input_partitions=2)
    assert topics.check() == []
    assert topics.make(input_partitions=3)[topics.names.input] is Outcome.DIFFERS


NEEDED = {
    "input": RECORD_BYTES + RECORD_HEADROOM_BYTES,
    "actions": LARGEST_RECORD_BYTES,
    "actions_dry_run": LARGEST_RECORD_BYTES,
}


@pytest.mark.parametrize(("field", "needed"), NEEDED.items())
def test_a_topic_without_room_for_the_largest_record_is_a_warning(topics: Topics, field: str, needed: int):
    topics.make()
    topic = topics.alter(field, SIZE, "1000000")
    (warning,) = topics.check()
    assert f"topic {topic}: {SIZE} is 1000000, expected {needed}" in warning
    assert warning.endswith(f"--entity-name {topic} --add-config {SIZE}={needed}")
    assert topics.make()[topic] is Outcome.DIFFERS


def test_the_executors_topic_has_room_for_what_an_action_may_hold_or_create_says_so(topics: Topics):
    memory = Memory(KafkaSide(KafkaLink(topics.bootstrap)), topics.names.executor_kafka, "east-1")
    replicas = ",".join(f"{partition}:1" for partition in range(300_000))
    much = Remembered(added=ThrottledLists(leader={"t": replicas}))
    topics.make()
    with memory.hold() as held:
        held.write(much)
    assert memory.read() == much
    topic = topics.alter("executor_kafka", SIZE, "1000000")
    assert topics.check() == [], "no controller touches it"
    assert topics.make()[topic] is Outcome.DIFFERS


def test_everything_wrong_is_said_at_once(topics: Topics):
    topics.make()
    topics.delete(topics.names.audit)
    topics.alter("input", TIMESTAMPS, "CreateTime")
    refusal = topics.refused()
    assert topics.names.audit in refusal
    assert TIMESTAMPS in refusal


def test_an_address_that_does_not_answer_is_refused_by_name():
    with pytest.raises(StartError, match=r"127\.0\.0\.1:1 .*address is right"):
        validate(KafkaSide(KafkaLink("127.0.0.1:1")), Settings(), frozenset({"trimtab.input"}))


@pytest.fixture
def settings(stage: Stage) -> Settings:
    return load(file=stage.settings(), flags={}, environ={}).settings


class TestPorts(PortsSuite):
    """The same tests as on Pulsar."""
