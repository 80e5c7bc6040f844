"""``trimtab throttle plan`` on a real cluster: what it looks up, what it sets, and what it leaves alone."""

import json
from collections.abc import Iterator, Mapping

import pytest
from click.testing import Result
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local.kafka import LocalKafka
from policies.throttle.lists import ThrottledLists, without
from policies.throttle.rates import BrokerRole
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import KafkaCluster
from streaming.kafka.throttles import Change, Throttle, changes_of
from tests.support.processes import command, until

pytestmark = pytest.mark.live

RECORD = b"x" * 100_000
RECORDS_COUNT = 200
RATE = 2_000_000
FOREIGN = "1:9"
LEADER_LIST = "leader.replication.throttled.replicas"


@pytest.fixture(scope="module")
def admin(brokers: LocalKafka) -> Iterator[KafkaAdminClient]:
    """A client, and the topic ``mv``: two partitions on brokers 1 and 2, data in the first."""
    with KafkaAdminClient(bootstrap_servers=brokers.bootstrap) as client:
        client.create_topics({"mv": {"assignments": {0: [1, 2], 1: [1, 2]}}}, wait_for_metadata=True)
        with KafkaProducer(bootstrap_servers=brokers.bootstrap, acks="all") as producer:
            for _ in range(RECORDS_COUNT):
                producer.send("mv", RECORD, partition=0)
            producer.flush()
        yield client


def proposal(*target: int, partition: int = 0, topic: str = "mv", **more: object) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [{"topic": topic, "partition": partition, "replicas": list(target), **more}],
    }


def plan(brokers: LocalKafka, request: Mapping[str, object], *options: str, code: int = 0) -> Result:
    asked = ("throttle", "plan", "--input", "-", "--bootstrap", brokers.bootstrap, "--interval", "5")
    return command(*asked, *options, given=json.dumps(request), code=code)


def throttle_of(admin: KafkaAdminClient) -> Throttle:
    return KafkaCluster(admin).throttle(topics=["mv"], brokers=[1, 2, 3]).throttle


def wait_for_throttle(admin: KafkaAdminClient, expected: Throttle) -> None:
    """Each question goes to some broker, and one that was read back from is not the last to know."""
    until(lambda: throttle_of(admin) == expected, what=f"{expected}")


def test_a_planned_throttle_is_merged_with_what_is_there(brokers: LocalKafka, admin: KafkaAdminClient):
    change = Change(kind=ConfigResourceType.TOPIC, name="mv", key=LEADER_LIST, value=FOREIGN)
    KafkaCluster(admin).apply([change])
    before = Throttle(lists=ThrottledLists(leader={"mv": FOREIGN}, follower={}), rates_bytes_per_s={})
    wait_for_throttle(admin, before)

    result = plan(brokers, proposal(2, 3), "--rate", str(RATE), "--apply")
    answer = json.loads(result.stdout)
    assert answer["leader_throttled_replicas"] == {"mv": "0:1,0:2"}
    assert answer["follower_throttled_replicas"] == {"mv": "0:3"}
    assert answer["leader_min_bytes_per_s"] == {"1": 0}
    size = answer["follower_bytes_to_receive"]["3"]
    assert size >= RECORDS_COUNT * len(RECORD)
    assert answer["uniform"]["total_s"] == size / RATE
    assert (
        f"topic mv has {LEADER_LIST} that are not of this plan; they are kept: {FOREIGN}"
        in answer["warnings"]
    )
    assert result.stderr.count("set and read back: ") == 5
    wait_for_throttle(
        admin,
        Throttle(
            lists=ThrottledLists(leader={"mv": "0:1,0:2,1:9"}, follower={"mv": "0:3"}),
            rates_bytes_per_s=dict.fromkeys(
                map(BrokerRole, ("leader", "leader", "follower"), (1, 2, 3)), RATE
            ),
        ),
    )

    again = plan(brokers, proposal(2, 3), "--rate", str(RATE), "--apply")
    assert again.stderr == "everything was set already\n"

    other = plan(brokers, proposal(2, 3), "--rate", "3000000", "--apply", code=5)
    assert "leader:1 has 2,000,000 bytes/s" in other.stderr
    assert "--replace-rates" in other.stderr

    forced = ("--rate", str(RATE), "--apply", "--replace-rates")
    never = plan(brokers, proposal(2, 3, write_bytes_per_s=RATE), *forced, code=3)
    assert json.loads(never.stdout)["uniform"]["feasible"] is False
    assert "not applied: it would never end" in never.stderr
    set_ = throttle_of(admin)
    assert set_.rates_bytes_per_s[BrokerRole("leader", 1)] == RATE

    admin.alter_partition_reassignments({TopicPartition("mv", 0): [2, 3]})
    stray = plan(brokers, proposal(1, 3), code=2)
    assert "mv-0: already being reassigned, to [2, 3] and not to [1, 3]" in stray.stderr
    running = plan(brokers, proposal(2, 3), "--rate", str(RATE))
    found = json.loads(running.stdout)
    assert found["fingerprint"] == answer["fingerprint"]
    assert found["follower_bytes_to_receive"]["3"] < size

    ours = ThrottledLists(
        leader=answer["leader_throttled_replicas"], follower=answer["follower_throttled_replicas"]
    )
    KafkaCluster(admin).apply(
        changes_of(set_, without(set_.lists, ours), dict.fromkeys(set_.rates_bytes_per_s))
    )
    wait_for_throttle(admin, before)


UNFIT = [
    (proposal(1, 3, topic="nowhere"), "nowhere-0: the cluster has no topic 'nowhere'"),
    (proposal(1, 3, partition=7), "mv-7: topic 'mv' has partitions 0 to 1"),
    (proposal(1, 9, partition=1), "mv-1: broker 9 of the target is down, or there is none; up are 1, 2, 3"),
    (
        proposal(1, 3, partition=1, log_size_bytes=2**62),
        "broker 3 would receive 4.6 EB and",
    ),
    (
        proposal(1, 3, partition=1, current_replicas=[2, 3]),
        "mv-1: current_replicas is [2, 3], and the cluster has [1, 2]",
    ),
]


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(("request_", "message"), UNFIT)
def test_a_request_that_does_not_fit_is_refused(
    brokers: LocalKafka, request_: dict[str, object], message: str
):
    result = plan(brokers, request_, code=2)
    assert result.stdout == ""
    assert message in result.stderr


def test_a_misspelt_setting_that_kafka_accepts_is_found(
    admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("streaming.kafka.throttles._SEEN_TIMEOUT_S", 0.0)
    change = Change(
        kind=ConfigResourceType.BROKER, name="1", key="leader.replication.throttle.rate", value="5000000"
    )
    with pytest.raises(ClusterError, match="accepted by Kafka, but it shows None"):
        KafkaCluster(admin).apply([change])
    there = ConfigResource(ConfigResourceType.BROKER, "1", [change.key])
    admin.reset_configs([there], raise_on_unknown=False)


def test_a_rate_of_zero_is_refused_before_anything_is_set():
    with pytest.raises(ValueError, match=r"leader:1: a rate of 0 is refused"):
        changes_of(Throttle(), ThrottledLists(), {BrokerRole("leader", 1): 0})


def test_a_cluster_that_does_not_answer_is_named():
    asked = ("throttle", "plan", "--input", "-", "--bootstrap", "127.0.0.1:1")
    result = command(*asked, given=json.dumps(proposal(1)), code=6)
    assert result.stdout == ""
    assert "no broker of Kafka answers: nothing listens at 127.0.0.1:1 (connection refused)" in result.stderr
