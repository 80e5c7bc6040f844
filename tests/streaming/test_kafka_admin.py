"""Every admin client of Kafka is opened with the same limits, and each caller says in its own words what goes wrong."""

from collections.abc import Callable
from typing import Any, Self

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError

from streaming.kafka import client
from streaming.kafka.client import ClusterError
from streaming.kafka.cluster import cluster_of
from streaming.kafka.link import Link
from streaming.kafka.topics import topic_ids, validate
from streaming.settings import KafkaTarget, SecuritySettings, Settings
from streaming.transport.errors import NoAnswer, StartError, Unreachable

LINK = Link("b1:9092", "input", SecuritySettings())
NO_ANSWER = r"Kafka at b1:9092 does not answer as expected: KafkaTimeoutError\(\)\."


class Admin:
    """A client that fails when it is made, or when the brokers are asked; it notes its options, and that it was closed."""

    def __init__(self) -> None:
        self.unreachable: KafkaError | ValueError | None = None
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
        lambda: validate(LINK, Settings(), frozenset({"trimtab.input"})),
        Unreachable,
        f"{NO_ANSWER}.*Check that the address is right, that the brokers are up",
    ),
    "ids": (lambda: topic_ids(LINK, ["a"]), NoAnswer, "KafkaTimeoutError"),
}


@pytest.mark.parametrize("is_reached", [False, True])
@pytest.mark.parametrize("asker", ASKERS)
def test_brokers_that_do_not_answer_are_told_and_a_client_that_was_opened_is_closed(
    admin: Admin, asker: str, *, is_reached: bool
) -> None:
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


def test_a_refusal_that_does_not_pass_is_no_outage(admin: Admin) -> None:
    admin.refusal = TopicAuthorizationFailedError()
    with pytest.raises(StartError) as start:
        validate(LINK, Settings(), frozenset({"trimtab.input"}))
    assert not isinstance(start.value, Unreachable)
    with pytest.raises(NoAnswer) as read:
        topic_ids(LINK, ["a"])
    assert not read.value.passes


def test_a_target_chooses_how_long_a_request_may_take_and_a_certificate_that_cannot_be_used_is_told(
    admin: Admin,
) -> None:
    admin.unreachable = ValueError("no certificate")
    with pytest.raises(ClusterError, match="no certificate"):
        _cluster(timeout_s=2.5)
    assert admin.options["request_timeout_ms"] == 2_500
