"""Clients of Kafka: the same limits for every admin client, callers' own words for errors, and what the network client does beside connecting."""

import asyncio
import gc
import logging
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast
from unittest.mock import Mock

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
)
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeLogDirsResponse

from streaming.kafka import client, side
from streaming.kafka.client import ClusterError, connect_quickly
from streaming.kafka.cluster import KafkaCluster, cluster_of
from streaming.kafka.link import KafkaLink
from streaming.kafka.topics import topic_ids, topics_seen
from streaming.process.exits import Refused
from streaming.settings import KafkaTarget, SecuritySettings, Settings
from streaming.transport.errors import NoAnswer, StartError, Unreachable

LINK = KafkaLink("b1:9092", "input", SecuritySettings())
NO_ANSWER = r"Kafka at b1:9092 does not answer as expected: no answer in time\."


class Admin:
    """A client that fails when it is made, or when the brokers are asked; it notes its options, and that it was closed."""

    def __init__(self) -> None:
        self.unreachable: KafkaError | None = None
        self.refusal: KafkaError = KafkaTimeoutError()
        self.options: dict[str, Any] = {}
        self.closed_count = 0

    def make(self, **options: object) -> Self:
        self.options = options
        if self.unreachable is not None:
            raise self.unreachable
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed_count += 1

    def describe_topics(self, _: list[str]) -> None:
        raise self.refusal

    def describe_cluster(self) -> None:
        raise self.refusal


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    made = Admin()
    monkeypatch.setattr(client, "KafkaAdminClient", made.make)
    return made


def _cluster(timeout_s: float = 10.0) -> None:
    with cluster_of(KafkaTarget(bootstrap="b1:9092", timeout_s=timeout_s), cluster="c") as cluster:
        cluster.require_answer()


ASKERS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "cluster": (_cluster, ClusterError, f"{NO_ANSWER}.*Check the address, whether the brokers are up"),
    "topics": (
        lambda: topics_seen(LINK, Settings(), frozenset({"trimtab.input"})),
        Unreachable,
        f"{NO_ANSWER}.*Check that the address is right .input.url., that the brokers are up, and .input.security",
    ),
    "ids": (lambda: topic_ids(LINK, ["a"]), NoAnswer, "no answer in time"),
}


@pytest.mark.parametrize(("bootstrap", "is_default"), [("127.0.0.1:9092", True), ("b1:9092", False)])
def test_a_default_address_at_which_nobody_answers_is_called_that(bootstrap: str, *, is_default: bool):
    said = client.explain_unanswered(KafkaLink(bootstrap, "input"), None)
    assert (
        "it is the default where no ./trimtab.toml, --config or --input gives another" in said
    ) is is_default


def test_who_follows_a_topic_is_told_once_that_the_brokers_are_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    consumer = Mock()
    consumer.poll.side_effect = [{}, {}, {}, {}, KafkaTimeoutError("the end of the test")]
    away, back = ClusterError("no broker of Kafka answers."), None
    monkeypatch.setattr(side, "open_consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(side, "partitions_of", lambda *_, **__: frozenset({0}))
    monkeypatch.setattr(side, "find_missing_topic", Mock(side_effect=[away, away, back, away]))
    with side.KafkaTopicReader(LINK, "t", begin="latest", silence_s=1e-9) as reader, pytest.raises(Refused):
        list(reader.follow())
    assert caplog.messages == ["no broker of Kafka answers. Waiting until they answer"] * 2


class Brokers:
    """Stands in for a client of brokers that have one directory without logs; it notes whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, object]] = []
        self._manager = self

    def run(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        return asyncio.run(ask())  # type: ignore[arg-type]

    async def send(self, request: Any, *, node_id: int) -> DescribeLogDirsResponse:
        self.asked.append((node_id, request.topics))
        directory = DescribeLogDirsResponse.DescribeLogDirsResult
        return DescribeLogDirsResponse(
            error_code=0, results=[directory(error_code=0, log_dir="/a", topics=[])]
        )


def test_all_logs_of_a_broker_are_one_request_without_the_metadata_of_all_topics():
    brokers = Brokers()
    found = KafkaCluster(cast("KafkaAdminClient", brokers)).log_sizes(None, [1, 2])
    assert found.directories == {1: ["/a"], 2: ["/a"]}
    assert brokers.asked == [(1, None), (2, None)]


class Controllers:
    """Stands in for a client that asks broker 3 for reassignments, which it does not reach; it asks another once it has forgotten 3."""

    def __init__(self, error: KafkaError, *, comes_back: bool) -> None:
        self._error, self._comes_back = error, comes_back
        self._controller_id: int | None = 3
        self._manager = self.cluster = self
        self.is_known = False

    def run(self, ask: Callable[[], object]) -> object:
        return ask()

    def refresh_metadata(self) -> None:
        self.is_known = self._comes_back

    def list_partition_reassignments(self) -> dict[object, object]:
        if self._controller_id == 3 or not self.is_known:
            raise self._error
        return {}


@pytest.mark.parametrize("error", [UnknownBrokerIdError(3), NodeNotReadyError(3)])
def test_a_broker_that_went_or_has_just_come_back_does_not_hide_what_moves(error: KafkaError):
    client = Controllers(error, comes_back=True)
    assert KafkaCluster(cast("KafkaAdminClient", client)).reassignments() == {}


UNLISTED = (
    "the cluster does not list broker 3 now: it is down, was removed, or has just started; start it if it is meant to run, and try again in "
    "a few seconds"
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnknownBrokerIdError(3), UNLISTED),
        (NodeNotReadyError(3), "broker 3 cannot be reached now"),
        (NodeNotReadyError("No node_id provided"), "no broker can be reached now"),
        (KafkaTimeoutError(), "no answer in time"),
    ],
)
def test_an_error_of_the_client_is_told_in_words_without_the_name_of_its_class(error: KafkaError, words: str):
    client = Controllers(error, comes_back=False)
    with pytest.raises(ClusterError) as told:
        KafkaCluster(cast("KafkaAdminClient", client)).reassignments()
    assert str(told.value) == words


def test_a_broker_that_the_cluster_does_not_list_fails_alone():
    class Client:
        def describe_configs(self, *_: object, **__: object) -> None:
            raise UnknownBrokerIdError(3)

    found = KafkaCluster(cast("KafkaAdminClient", Client())).throttle(topics=[], brokers=[3])
    assert found.failed == {3: UNLISTED}


@pytest.mark.parametrize("is_reached", [False, True])
@pytest.mark.parametrize("asker", ASKERS)
def test_brokers_that_do_not_answer_are_told_and_a_client_that_was_opened_is_closed(
    admin: Admin, asker: str, *, is_reached: bool
):
    ask, kind, text = ASKERS[asker]
    admin.unreachable = None if is_reached else KafkaTimeoutError()
    with pytest.raises(kind, match=text):
        ask()
    assert admin.closed_count == is_reached
    limits = {"bootstrap_timeout_ms": 8_000, "request_timeout_ms": 10_000}
    if asker == "cluster":  # of all it alone stays open for long, while brokers go and come back
        limits["metadata_max_age_ms"] = 5_000
    assert {name: admin.options[name] for name in admin.options if name.endswith("_ms")} == limits
    assert admin.options["bootstrap_servers"] == "b1:9092"
    assert admin.options.items() >= LINK.client_options().items()


def test_a_refusal_that_does_not_pass_is_no_outage(admin: Admin):
    admin.refusal = TopicAuthorizationFailedError()
    with pytest.raises(StartError) as start:
        topics_seen(LINK, Settings(), frozenset({"trimtab.input"}))
    assert not isinstance(start.value, Unreachable)
    with pytest.raises(NoAnswer) as read:
        topic_ids(LINK, ["a"])
    assert not read.value.is_transient


def test_a_target_sets_how_long_a_request_may_take(admin: Admin):
    with pytest.raises(ClusterError, match="no answer in time"):
        _cluster(timeout_s=2.5)
    assert admin.options["request_timeout_ms"] == 2_500


def test_a_broker_that_is_lost_is_one_line_and_the_search_for_a_first_one_is_none(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()
    error = ConnectionResetError(104, "100% reset by peer")
    logging.getLogger("kafka.net.transport").error("%s: Error receiving", "broker 1", exc_info=error)
    logging.getLogger("kafka.net.manager").error("Connection failed: %s", error)
    logging.getLogger("kafka.consumer.fetcher").error("Fetch to node %s failed: %s", 1, error)
    for node in ("bootstrap-0", "1"):
        connection = SimpleNamespace(node_id=node)
        logging.getLogger("kafka.net.connection").error("%s: Connection lost: %s", connection, error)
    assert [each.getMessage() for each in caplog.records] == [
        "there is no connection to Kafka's broker 1: 100% reset by peer"
    ]
    caplog.clear()
    logging.getLogger("kafka.producer.sender").error("%s: it fails: %s", "<Sender client_id=x>", error)
    assert caplog.messages == [f"Kafka's producer: it fails: {error}"]


def test_no_client_makes_a_topic_by_asking_for_it():
    client = connect_quickly(bootstrap_servers=["127.0.0.1:1"])
    try:
        assert not client.cluster.metadata_request().allow_auto_topic_creation
    finally:
        client.close()


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_a_client_that_finds_no_broker_leaves_no_thread_and_no_open_file(
    kind: Callable[..., object], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.CRITICAL, "kafka")  # a captured line keeps its error, and that the socket

    def held() -> tuple[set[threading.Thread], int]:
        gc.collect()
        return set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    with pytest.raises(KafkaTimeoutError):
        kind(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100, kafka_client=connect_quickly)
    assert held() == before


def run_task(selector: NetworkSelector, waits: Callable[[], Awaitable[None]]) -> None:
    selector.call_soon(waits())
    selector.drain()


def test_a_wait_for_a_socket_that_the_client_has_closed_is_no_news(caplog: pytest.LogCaptureFixture):
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()
    selector, (ours, theirs) = NetworkSelector(), socket.socketpair()

    async def read() -> None:
        await selector.wait_read(ours)

    async def fail() -> None:
        raise ValueError("anything else")

    with theirs:
        ours.close()
        run_task(selector, read)
        assert caplog.text == ""
        run_task(selector, fail)
    assert "Unhandled exception in task" in caplog.text
    assert "ValueError: anything else" in caplog.text, "with its traceback: it is a fault of the client"


def test_a_client_that_stops_working_is_reported_whatever_its_error_is(caplog: pytest.LogCaptureFixture):
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()

    class BrokenSelector(selectors.DefaultSelector):
        def select(self, *_: object) -> list[tuple[selectors.SelectorKey, int]]:
            raise ValueError("Invalid file descriptor: -1")

    with pytest.raises(ValueError, match="Invalid file descriptor"):
        NetworkSelector(selector=BrokenSelector).run_forever()
    assert "IO loop crashed" in caplog.text
