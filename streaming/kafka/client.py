"""Clients of kafka-python, and every way around their faults.

A client learns a topic's partitions with its second request for metadata, and sends that no sooner than 100 ms after the first,
whatever its ``retry_backoff_ms`` (kafka-python 3.0.12 does not pass it on). A fail-over opens five clients, one after another.
Nor does it pass on ``allow_auto_create_topics``: a request for a topic that is missing would make it, with the brokers' defaults.

A client logs up to four lines for each connection that it cannot make, although it connects again by itself, and what fails for it
is raised. One line is kept, with broker and error, and none of the search for a first broker, which ends with an error that says what
is wrong with the address. It also logs when it has closed a connection while a task was about to wait for it: nothing is wrong.

It waits without limit for metadata of a topic, for a position, and for records of a partition that has lost its leader; each of
these is bounded here. A producer's ``close`` waits for records that cannot be delivered: without limit when none is given, and
with one it raises ``KafkaTimeoutError`` and leaves the thread that sends them running.
"""

import logging
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from streaming.kafka.link import KafkaLink, Operation, Resource, describe_hidden_topic, describe_missing
from streaming.process.deadline import Deadline, within
from streaming.process.exits import split_name, words_of
from streaming.process.logs import logs_stacks
from streaming.settings import InputSettings
from streaming.transport.errors import NoAnswer
from streaming.transport.reach import Protocol, faults_of

_LOG = logging.getLogger(__name__)
REACH_TIMEOUT_MS = 8_000
"""How long at most until some broker has answered: a command says within about 10 s that there is none at its address."""
_REQUEST_TIMEOUT_S = 10.0
"""How long one request may take, as long as a target's ``timeout_s`` allows by default: a healthy broker needs well under 1 s."""
_POLL_MS = 200
_BETWEEN_METADATA_MS = 10
_CONNECTION = logging.getLogger("kafka.net.connection")
_OF_CONNECTIONS = ("kafka.cluster", "kafka.net.inet", "kafka.net.manager", "kafka.net.transport")
"""Loggers that repeat what is said of a connection, and of its error."""
_OF_PRODUCERS = ("kafka.producer.kafka", "kafka.producer.sender")
_LOST = "%s: Connection lost: %s"
_OTHER_NODES = ("bootstrap", "coordinator")
"""Nodes that are no brokers of their own: the search for a first broker, and a second connection to one."""
_DISCONNECTED = "socket disconnected"
"""A client connects again at once; if that fails, another line says so."""
_FETCHER = logging.getLogger("kafka.consumer.fetcher")
_BATCH = logging.getLogger("kafka.producer.producer_batch")
"""Says what is raised for each record."""
_SELECTOR = logging.getLogger("kafka.net.selector")
_TASK_FAILED = "Unhandled exception in task"
_BUSY = "It is blocking the event loop"
"""Warns that the machine is busy, when it has waited a tenth of a second for its processor."""
_CLOSED = "Invalid file descriptor: -1"
"""What Python's selectors say of a socket that is closed."""
_UNFOUND = "Unable to bootstrap"
"""What the client says when no address answered; one at which nothing listens has been named before."""
_FIRST_TRY_MS = 1_000
"""How long a search for brokers takes before the address is asked what is wrong with it."""
_VERSIONS_KEY, _REQUEST_ID = 18, 1947
_KAFKA = Protocol(
    "Kafka",
    greeting=struct.pack(">ihhih", 10, _VERSIONS_KEY, 0, _REQUEST_ID, -1),
    is_answer=lambda answer: answer[4:8] == struct.pack(">i", _REQUEST_ID),
)


def connect_quickly(**options: Any) -> KafkaNetClient:
    """Make the network client; for the option ``kafka_client`` of a consumer, a producer or an admin client."""
    _SELECTOR.addFilter(_is_news)  # the same filter is added once
    _CONNECTION.addFilter(_name_broker)
    _BATCH.addFilter(_is_asked_for)
    _FETCHER.addFilter(_is_no_lost_fetch)
    for name in _OF_PRODUCERS:
        logging.getLogger(name).addFilter(_name_producer)
    for name in _OF_CONNECTIONS:
        logging.getLogger(name).addFilter(_is_asked_for)
    network = NetworkSelector(**options)
    client = KafkaNetClient(network, ClosingManager(network, **options), **options)
    client.cluster.config["retry_backoff_ms"] = _BETWEEN_METADATA_MS
    client.cluster.config["allow_auto_create_topics"] = False
    return client


def _name_producer(record: logging.LogRecord) -> bool:
    """The line then begins with what it is about, not with the client's own name for its producer."""
    if str(record.msg).startswith("%s: ") and isinstance(record.args, tuple):
        record.args = ("Kafka's producer", *record.args[1:])
    return True


def _is_asked_for(_: logging.LogRecord) -> bool:
    """Whether somebody asked to see everything."""
    return logs_stacks()


def _is_no_lost_fetch(record: logging.LogRecord) -> bool:
    """Whether it is about more than a fetch that a lost connection has ended, of which another line tells."""
    return _is_asked_for(record) or not str(record.msg).startswith("Fetch to node")


def _name_broker(record: logging.LogRecord) -> bool:
    """Whether it is the loss of a connection to a broker that had been found; the line then names the broker, and the error."""
    if _is_asked_for(record):
        return True
    if record.msg != _LOST or not isinstance(record.args, tuple):
        return False
    connection, error = record.args
    broker = str(getattr(connection, "node_id", connection))
    record.levelno, record.levelname = logging.WARNING, "WARNING"
    record.msg, record.args = (
        "there is no connection to Kafka's broker %s: %s",
        (broker, words_of(str(error))),
    )
    return not broker.startswith(_OTHER_NODES) and not str(error).endswith(_DISCONNECTED)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it is about more than a wait for a socket that the client itself has closed, or for the processor."""
    error = record.exc_info[1] if record.exc_info else None
    is_closed = isinstance(error, ValueError) and str(error) == _CLOSED
    text = str(record.msg)
    return not ((is_closed and text.startswith(_TASK_FAILED)) or _BUSY in text)


class NoBroker(KafkaTimeoutError):  # type: ignore[misc]
    """No broker was found at the address; the text says what is wrong with it."""

    def __str__(self) -> str:
        return str(self.args[0])

    __repr__ = __str__


class ClosingManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Says what is wrong with an address, and closes the client's network if no broker answers.

    A client of kafka-python 3.0.12 that finds no broker raises when it is made, so nobody can close it; its thread and four open
    files would stay. A standby that looks for its brokers every 45 s would be out of files after hours without them.
    """

    def bootstrap(self, timeout_ms: int | None = None, refresh: bool = True) -> None:  # noqa: FBT001, FBT002  its signature
        """Find the brokers. Raises ``KafkaError``: ``NoBroker`` soon, where a longer wait is of no use."""
        try:
            self._find_broker(timeout_ms, refresh=refresh)
        except BaseException:
            self.close()
            self._net.close()
            raise

    def _find_broker(self, timeout_ms: int | None, *, refresh: bool) -> None:
        if timeout_ms is None or timeout_ms <= _FIRST_TRY_MS:
            super().bootstrap(timeout_ms, refresh)
            return
        try:
            super().bootstrap(_FIRST_TRY_MS, refresh)
        except KafkaTimeoutError as error:
            servers = self.cluster.config["bootstrap_servers"]
            addresses = servers.split(",") if isinstance(servers, str) else list(servers)
            why = faults_of(addresses, _KAFKA, encrypts=self.ssl_enabled)
            if why is not None:
                raise NoBroker(why) from error
            super().bootstrap(timeout_ms - _FIRST_TRY_MS, refresh=True)


def close_producer(producer: KafkaProducer | None, *, wait_s: float = 0.0) -> None:
    """Close the producer (None: there is none yet); records not written within ``wait_s`` are given up and not sent any more."""
    if producer is None:
        return
    try:
        producer.close(timeout=wait_s)
    except KafkaTimeoutError:
        _LOG.info("a producer with unsent records is closed by force")
        producer._sender.force_close()  # noqa: SLF001 - close() gives up at its flush and never gets to this


def commit_within(timeout_s: float, producer: KafkaProducer) -> None:
    """Commit the producer's transaction; kafka-python waits for its coordinator without limit. Raises ``KafkaError``."""
    try:
        within(timeout_s, producer.commit_transaction, what="commit")
    except TimeoutError as error:
        raise KafkaTimeoutError(str(error)) from error


class ClusterError(Exception):
    """The cluster does not answer, or not as it must; the message names the request and the remedy."""


class Unanswered(ClusterError):
    """A request failed; the error of Kafka's client is its cause."""


def open_consumer(link: KafkaLink, **options: Any) -> KafkaConsumer:
    """A consumer of committed records, from the earliest on; it joins no group unless ``options`` name one. Raises ``KafkaError``."""
    defaults = {
        "bootstrap_servers": link.bootstrap,
        "kafka_client": connect_quickly,
        "isolation_level": "read_committed",
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    return KafkaConsumer(**defaults | link.client_options() | options)


def open_producer(link: KafkaLink, *, timeout_s: float, **options: Any) -> KafkaProducer:
    """A producer that waits for its brokers, and for their acknowledgements, for ``timeout_s`` at most. Raises ``KafkaError``."""
    timeout_ms = round(timeout_s * 1000)
    defaults = {
        "bootstrap_servers": link.bootstrap,
        "kafka_client": connect_quickly,
        "bootstrap_timeout_ms": timeout_ms,
        "max_block_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
        "delivery_timeout_ms": timeout_ms,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    return KafkaProducer(**defaults | link.client_options() | options)


def open_admin(link: KafkaLink, *, timeout_s: float = _REQUEST_TIMEOUT_S, **options: Any) -> KafkaAdminClient:
    """An admin client, which closes at the end of its ``with``. Raises ``KafkaError``."""
    return KafkaAdminClient(
        bootstrap_servers=link.bootstrap,
        kafka_client=connect_quickly,
        bootstrap_timeout_ms=REACH_TIMEOUT_MS,
        request_timeout_ms=round(1000 * timeout_s),
        **link.client_options(),
        **options,
    )


@contextmanager
def connected(link: KafkaLink, *, timeout_s: float, **options: Any) -> Iterator[KafkaAdminClient]:
    """Open an admin client, and close it at the end.

    Raises ``ClusterError``, also for any request that Kafka refuses while the client is used.
    """
    try:
        with open_admin(link, timeout_s=timeout_s, **options) as admin:
            yield admin
    except (KafkaError, Unanswered) as error:
        cause = error.__cause__ if isinstance(error, Unanswered) else error
        raise _no_answer_error_of(link.bootstrap, cause) from error


def describe_error(error: BaseException) -> str:
    """What an error of the client says, without the name of its class; of a topic that is gone a producer only says that it waited."""
    text = words_of(error)
    if isinstance(error, UnknownTopicOrPartitionError) or "Failed to update metadata" in text:
        return "there is no such topic (any more), or it has no leader: `trimtab doctor` says which, `trimtab topics create` makes it"
    kind = type(error).__name__
    said = text.removeprefix(kind).removeprefix(": ")
    if said.startswith(_UNFOUND):
        return "something listens there and says nothing (a firewall, or TLS on one side only?)"
    if isinstance(error, UnknownBrokerIdError):
        return (
            f"the cluster does not list broker {said} now: it is down, was removed, or has just started; "
            "start it if it is meant to run, and try again in a few seconds"
        )
    if isinstance(error, NodeNotReadyError):
        return f"broker {said} cannot be reached now" if said.isdigit() else "no broker can be reached now"
    if said in {"", "None"}:
        said = split_name(kind.removeprefix("Kafka").removesuffix("Error"))
    return "no answer in time" if said == "timeout" else said


def describe_missing_topic(link: KafkaLink, topic: str, operation: Operation) -> str:
    """The sentence about a topic that we do not see, which is not there, or hidden from us; both, if brokers do not answer that."""
    found = None
    with suppress(ClusterError):
        found = find_missing_topic(link, topic, operation)
    return found or describe_hidden_topic(link, topic, operation)


def find_missing_topic(link: KafkaLink, topic: str, operation: Operation) -> str | None:
    """The sentence about a topic that is gone, or hidden from us; None if it is there. A consumer waits for such a topic in silence.

    Raises ``ClusterError``.
    """
    with connected(link, timeout_s=_REQUEST_TIMEOUT_S) as admin:
        (described,) = admin.describe_topics([topic])
    if described["error_code"] == TopicAuthorizationFailedError.errno:
        return describe_missing(link, "topic", topic, [operation])
    if described["error_code"] == UnknownTopicOrPartitionError.errno:
        return f"there is no topic {topic} at {link.bootstrap}: run `trimtab topics create`"
    return None


def describe_unanswered(bootstrap: str, error: BaseException | None) -> str:
    """The sentence about brokers that do not answer, its cause first if that is known."""
    if isinstance(error, NoBroker):
        return f"no broker of Kafka answers: {error}."
    return f"Kafka at {bootstrap} does not answer as expected: {describe_error(error) if error else 'no answer'}."


def explain_unanswered(link: KafkaLink, error: BaseException | None) -> str:
    """The same with the settings to check."""
    at = f"{link.section}.url"
    if link.bootstrap == InputSettings().bootstrap:
        at += "; it is the default where no ./trimtab.toml, --config or --input gives another"
    return (
        f"{describe_unanswered(link.bootstrap, error)} Check that the address is right ({at}), that the brokers are up, "
        f"and [{link.section}.security]."
    )


def _no_answer_error_of(bootstrap: str, error: BaseException | None) -> ClusterError:
    return ClusterError(
        f"{describe_unanswered(bootstrap, error)} Check the address, whether the brokers are up, and the security settings."
    )


def partitions_of(consumer: KafkaConsumer, topic: str, *, timeout_s: float) -> frozenset[int]:
    """Numbers of a topic's partitions; empty if there is no such topic. Raises ``KafkaError``; close the consumer then."""
    try:
        return frozenset(
            within(timeout_s, lambda: consumer.partitions_for_topic(topic), what=f"partitions of {topic}")
        )
    except TimeoutError as error:
        raise KafkaTimeoutError(str(error)) from error


def read_to_end(
    consumer: KafkaConsumer, *, silence_s: float, ends: Mapping[TopicPartition, int] | None = None
) -> Iterator[ConsumerRecord]:
    """Records of the assigned partitions, from the consumer's position to ``ends``, or to the end at the time of the call.

    Every partition is fetched from at least once: Kafka gives its end to any client that may describe the topic, and only
    a fetch fails if the client may not read it. Raises ``KafkaError``, also after ``silence_s`` without a record.
    """
    assigned = sorted(consumer.assignment())
    ends = ends or consumer.end_offsets(assigned, timeout_ms=round(1000 * silence_s))
    deadline = Deadline(silence_s)
    while not all(_is_read(consumer, partition, ends[partition]) for partition in assigned):
        polled = consumer.poll(timeout_ms=_POLL_MS)
        for partition in assigned:
            yield from polled.get(partition, ())
        if polled:
            deadline = Deadline(silence_s)
        elif deadline.is_over:
            topics = ", ".join(sorted({partition.topic for partition in assigned}))
            raise KafkaTimeoutError(
                f"{topics} could not be read to its end: nothing came for {silence_s:g} s. Does each partition have a leader?"
            )


def _is_read(consumer: KafkaConsumer, partition: TopicPartition, end: int) -> bool:
    if consumer.highwater(partition) is None:  # it is known from the first answer to a fetch
        return False
    position = consumer.position(partition, timeout_ms=_POLL_MS)
    return position is not None and position >= end


def denied_resource(error: KafkaError) -> Resource | None:
    """The kind of resource that was refused; None if the error is not about a missing permission."""
    match error:
        case TopicAuthorizationFailedError():
            return "topic"
        case GroupAuthorizationFailedError():
            return "group"
        case ClusterAuthorizationFailedError():
            return "cluster"
    # an idempotent producer gets an id if it may write to any topic (KIP-679); only the text shows that it got none
    text = str(error)
    has_no_id = "InitProducerId" in text and "ClusterAuthorizationFailed" in text
    return "topic" if has_no_id else None


def explain_denied(
    error: KafkaError, link: KafkaLink, operation: Operation, *, topic: str = "", group: str = ""
) -> str:
    """The missing permission, if the error is about one, and otherwise Kafka's own words.

    Kafka names the kind of resource that was refused, but not the operation: ``operation`` is what was tried on the topic
    or the cluster; a group is only ever read.
    """
    match denied_resource(error):
        case "topic":
            return describe_missing(link, "topic", topic, [operation])
        case "group":
            return describe_missing(link, "group", group, ["Read"])
        case "cluster":
            return describe_missing(link, "cluster", "", [operation])
    return describe_error(error)


def is_transient(error: BaseException | None) -> bool:
    """Whether brokers do not answer, which may pass. A wrong address looks the same; a missing permission or topic does not."""
    return isinstance(error, KafkaError) and bool(error.retriable)


@contextmanager
def as_no_answer() -> Iterator[None]:
    """Turn what the client raises into ``NoAnswer``."""
    try:
        yield
    except KafkaError as error:
        raise NoAnswer(describe_error(error), is_transient=is_transient(error)) from error
