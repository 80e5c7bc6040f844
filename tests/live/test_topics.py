"""Creating and checking the topics of a real Kafka."""

from collections.abc import Iterator
from dataclasses import asdict
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists
from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.kafka.link import Link
from streaming.kafka.side import KafkaSide
from streaming.kafka.topics import RECORD_HEADROOM_BYTES, create, validate
from streaming.settings import ControllerSettings, Settings, TopicNames
from streaming.transport.errors import StartError
from streaming.transport.executor import Memory, Remembered
from streaming.transport.topics import Outcome

pytestmark = pytest.mark.live

RECORD_BYTES = 4 * 1024 * 1024


@pytest.fixture
def admin(kafka: LocalKafka) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as client:
        yield client


@pytest.fixture
def names() -> TopicNames:
    unique = uuid4().hex[:8]
    return TopicNames(**{field: f"{name}.{unique}" for field, name in asdict(TopicNames()).items()})


def settings_of(names: TopicNames) -> Settings:
    return Settings(topics=names, controller=ControllerSettings(max_record_bytes=RECORD_BYTES))


def make(kafka: LocalKafka, names: TopicNames, *, input_partitions: int = 1) -> dict[str, Outcome]:
    outcomes = create(
        Link(kafka.bootstrap), settings_of(names), frozenset(names.all), input_partitions=input_partitions
    )
    return {outcome.topic: outcome.outcome for outcome in outcomes}


def check(kafka: LocalKafka, names: TopicNames) -> list[str]:
    return validate(Link(kafka.bootstrap), settings_of(names), frozenset(names.all))


def alter(admin: KafkaAdminClient, topic: str, setting: str, value: str) -> None:
    """Change a setting and wait until the broker shows it: the change itself is acknowledged earlier."""
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: value})])
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    while admin.describe_configs([resource], config_filter="all")["topic"][topic][setting]["value"] != value:
        pass


def refused(kafka: LocalKafka, names: TopicNames) -> str:
    with pytest.raises(StartError) as refusal:
        check(kafka, names)
    return str(refusal.value)


def test_created_topics_pass_the_check_at_start_and_a_second_create_changes_nothing(
    kafka: LocalKafka, names: TopicNames
) -> None:
    assert set(make(kafka, names).values()) == {Outcome.CREATED}
    assert len(make(kafka, names)) == 9
    assert set(make(kafka, names).values()) == {Outcome.ALREADY_RIGHT}
    assert check(kafka, names) == []


def test_the_default_names_are_the_documented_ones() -> None:
    assert set(asdict(TopicNames()).values()) == {
        "trimtab.input",
        "trimtab.control",
        "trimtab.actions",
        "trimtab.actions.dry-run",
        "trimtab.audit",
        "trimtab.dead-letter",
        "trimtab.commits",
        "trimtab.executor.kafka",
        "trimtab.beats",
    }


def test_a_controller_starts_without_the_topic_of_executors(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames
) -> None:
    make(kafka, names)
    admin.delete_topics([names.executor_kafka])
    assert check(kafka, names) == []


def test_a_controller_starts_without_the_topic_of_beats_and_is_told_what_it_lacks(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames
) -> None:
    make(kafka, names)
    admin.delete_topics([names.beats])
    (warning,) = check(kafka, names)
    assert warning.startswith(
        f"topic {names.beats} is missing at {kafka.bootstrap}. Run: trimtab topics create."
    )


def test_created_topics_have_append_time_compaction_and_partitions(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames
) -> None:
    make(kafka, names, input_partitions=3)
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in asdict(names).values()]
    configs = admin.describe_configs(resources, config_filter="all")["topic"]
    append_time = {
        name for name, found in configs.items() if found["message.timestamp.type"]["value"] == "LogAppendTime"
    }
    compacted = {name for name, found in configs.items() if found["cleanup.policy"]["value"] == "compact"}
    assert append_time == {names.input, names.control, names.beats}
    assert compacted == {names.control, names.commits, names.executor_kafka}
    partitions = {
        topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics([names.input, names.audit])
    }
    assert partitions == {names.input: 3, names.audit: 1}


def test_a_record_of_the_largest_accepted_size_fits_the_input_topic(
    kafka: LocalKafka, names: TopicNames
) -> None:
    make(kafka, names)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, max_request_size=2 * RECORD_BYTES)
    try:
        sent = producer.send(names.input, key=b"c" * 100, value=bytes(RECORD_BYTES))
        assert sent.get(timeout=20).offset == 0
    finally:
        producer.close(timeout=5)


def test_missing_topics_are_named_with_the_command_that_makes_them(
    kafka: LocalKafka, names: TopicNames
) -> None:
    refusal = refused(kafka, names)
    assert all(name in refusal for name in set(asdict(names).values()) - {names.executor_kafka, names.beats})
    assert "trimtab topics create" in refusal


@pytest.mark.parametrize(
    ("field", "setting", "wrong", "right"),
    [
        ("input", "message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("control", "message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("control", "cleanup.policy", "delete", "compact"),
        ("commits", "cleanup.policy", "delete", "compact"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_the_exact_remedy_and_is_not_altered(
    kafka: LocalKafka,
    admin: KafkaAdminClient,
    names: TopicNames,
    field: str,
    setting: str,
    wrong: str,
    right: str,
) -> None:
    make(kafka, names)
    topic = asdict(names)[field]
    alter(admin, topic, setting, wrong)
    refusal = refused(kafka, names)
    assert f"topic {topic}: {setting} is {wrong}, expected {right}" in refusal
    assert (
        f"kafka-configs.sh --bootstrap-server {kafka.bootstrap} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {setting}={right}"
    ) in refusal
    assert make(kafka, names)[topic] is Outcome.DIFFERS
    assert refused(kafka, names) == refusal


@pytest.mark.parametrize("field", ["control", "commits"])
def test_several_partitions_of_control_or_commits_are_refused(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames, field: str
) -> None:
    make(kafka, names)
    topic = asdict(names)[field]
    admin.create_partitions({topic: 2})
    while len(admin.describe_topics([topic])[0]["partitions"]) != 2:
        pass
    assert f"topic {topic}: partitions is 2, expected 1" in refused(kafka, names)


def test_another_number_of_input_partitions_is_fine_for_a_start_and_a_difference_for_create(
    kafka: LocalKafka, names: TopicNames
) -> None:
    make(kafka, names, input_partitions=2)
    assert check(kafka, names) == []
    assert make(kafka, names, input_partitions=3)[names.input] is Outcome.DIFFERS


@pytest.mark.parametrize(
    ("field", "needed"),
    [
        ("input", RECORD_BYTES + RECORD_HEADROOM_BYTES),
        ("actions", LARGEST_RECORD_BYTES),
        ("actions_dry_run", LARGEST_RECORD_BYTES),
    ],
)
def test_a_topic_without_room_for_the_largest_record_is_a_warning_at_the_start_and_a_difference_for_create(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames, field: str, needed: int
) -> None:
    make(kafka, names)
    assert check(kafka, names) == [], "a topic of ours has room"
    topic = asdict(names)[field]
    alter(admin, topic, "max.message.bytes", "1000000")
    (warning,) = check(kafka, names)
    assert f"topic {topic}: max.message.bytes is 1000000, expected {needed}" in warning
    assert warning.endswith(f"--entity-name {topic} --add-config max.message.bytes={needed}")
    assert make(kafka, names)[topic] is Outcome.DIFFERS


def test_the_executors_topic_has_room_for_what_an_action_may_hold_or_create_says_so(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames
) -> None:
    memory = Memory(KafkaSide(Link(kafka.bootstrap)), names.executor_kafka, "east-1")
    much = Remembered(
        added=ThrottledLists(leader={"t": ",".join(f"{partition}:1" for partition in range(300_000))})
    )
    make(kafka, names)
    with memory.hold() as held:
        held.write(much)
    assert memory.read() == much
    alter(admin, names.executor_kafka, "max.message.bytes", "1000000")
    assert check(kafka, names) == [], "no controller touches it"
    assert make(kafka, names)[names.executor_kafka] is Outcome.DIFFERS


def test_everything_wrong_is_said_at_once(
    kafka: LocalKafka, admin: KafkaAdminClient, names: TopicNames
) -> None:
    make(kafka, names)
    admin.delete_topics([names.audit])
    while names.audit in admin.list_topics():
        pass
    alter(admin, names.input, "message.timestamp.type", "CreateTime")
    refusal = refused(kafka, names)
    assert names.audit in refusal
    assert "message.timestamp.type" in refusal


def test_an_address_that_does_not_answer_is_refused_by_name() -> None:
    with pytest.raises(StartError, match=r"127\.0\.0\.1:1 .*address is right"):
        validate(Link("127.0.0.1:1"), Settings(), frozenset({"trimtab.input"}))
