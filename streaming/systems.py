"""Kafka or Pulsar, whichever an address of the settings names: the one place that chooses between them.

Load reports, results and control events are on the input's side; everything the controller writes is on the output's. Both may
be on different systems. If both addresses lead to the same brokers as the same user, the two sides count as one. A system's
client is loaded when a side that is on it is asked for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from streaming.contract.encode import SkippedRange, encode_skipped
from streaming.contract.envelope import EPOCH_HEADER
from streaming.kafka.link import KafkaLink, input_link, output_link
from streaming.process.exits import Refused
from streaming.pulsar.link import PulsarLink, input_on_pulsar, output_on_pulsar
from streaming.settings import Settings
from streaming.settings.identity import kept_digest
from streaming.transport.errors import NoAnswer, NotAllowed, PublishError, TopicsWrong, Unreachable
from streaming.transport.publisher import Publisher
from streaming.transport.publishing import RanWith
from streaming.transport.side import EventSink, Side
from streaming.transport.topics import BrokersSeen, TopicOutcome, TopicsSeen


def input_side(settings: Settings) -> Side:
    """Where load reports, results and control events are."""
    return _side(input_on_pulsar(settings) or input_link(settings))


def output_side(settings: Settings) -> Side:
    """Where decisions go: the input's side if the output has no address of its own."""
    return _side(output_on_pulsar(settings) or output_link(settings))


def _side(link: KafkaLink | PulsarLink) -> Side:
    if isinstance(link, PulsarLink):
        from streaming.pulsar.side import PulsarSide  # noqa: PLC0415  Pulsar's client, when it is needed

        return PulsarSide(link)
    from streaming.kafka.side import KafkaSide  # noqa: PLC0415  Kafka's client, when it is needed

    return KafkaSide(link)


def _topics_by_side(settings: Settings) -> list[tuple[Side, frozenset[str]]]:
    """Each side with the names of its topics, the input's first."""
    names = settings.topics
    first, second = input_side(settings), output_side(settings)
    if first.is_same(second):
        return [(first, frozenset(names.all))]
    read = frozenset({names.input, names.control})
    return [(first, read), (second, frozenset(names.all) - read)]


def create_all(settings: Settings, *, input_partitions: int) -> list[TopicOutcome]:
    """Make what is missing on both sides; raises ``StartError``."""
    return [
        outcome
        for side, topics in _topics_by_side(settings)
        for outcome in side.create_topics(settings, topics, input_partitions=input_partitions)
    ]


def validate_all(settings: Settings) -> list[str]:
    """Check both sides; returns warnings, raises ``StartError``."""
    warnings: list[str] = []
    problems: list[str] = []
    for side, topics in _topics_by_side(settings):
        try:
            warnings += validate(side, settings, topics)
        except TopicsWrong as error:
            problems.append(str(error))
    if problems:
        raise TopicsWrong("\n".join(problems))
    return warnings


def validate(side: Side, settings: Settings, topics: frozenset[str]) -> list[str]:
    """Check topics of a side, but for the executors', which no controller touches; returns warnings, raises ``StartError``."""
    names = settings.topics
    seen = side.topics_seen(settings, topics - {names.executor_kafka})
    return seen.warnings_at_start(
        address=side.url.removeprefix("kafka://"), beats=side.full_name(names.beats)
    )


@dataclass(frozen=True, slots=True)
class Address:
    """One side as a person looks at it; ``brokers`` and ``topics`` raise ``StartError`` or ``WrongUse`` and change nothing."""

    name: str
    url: str
    brokers: Callable[[], BrokersSeen]
    topics: Callable[[], TopicsSeen]


def addresses_of(settings: Settings) -> list[Address]:
    """The addresses of the settings, the input's first."""
    names = settings.topics
    return [
        Address(
            name="input and output" if len(topics) == len(names.all) else side.section,
            url=side.url,
            brokers=partial(side.brokers_seen, names.input if side.section == "input" else names.actions),
            topics=partial(side.topics_seen, settings, topics),
        )
        for side, topics in _topics_by_side(settings)
    ]


def event_sink_of(settings: Settings) -> EventSink:
    """The input topic, connected. Raises ``PublishError`` or ``NoTopic``."""
    size = settings.controller.max_record_bytes
    return input_side(settings).events(settings.topics.input, max_record_bytes=size)


def beat_sink_of(settings: Settings) -> EventSink:
    """The topic of beats, connected. Raises ``PublishError`` or ``NoTopic``."""
    size = settings.controller.max_record_bytes
    return output_side(settings).events(settings.topics.beats, max_record_bytes=size)


def publisher_of(settings: Settings) -> Publisher:
    """The publisher of a controller with these settings, not yet connected to anything."""
    return output_side(settings).publisher(
        name=settings.controller.name,
        commits_topic=settings.topics.commits,
        announce_on=settings.topics.actions,
        ran_with=RanWith(version=version("trimtab"), settings=kept_digest(settings)),
    )


def input_ids(settings: Settings) -> dict[str, str]:
    """Ids of the input and control topic, as far as there are any: Pulsar gives none. Raises ``NoAnswer``."""
    return input_side(settings).topic_ids([settings.topics.input, settings.topics.control])


def publish_skipped(settings: Settings, ranges: list[SkippedRange], *, epoch: int) -> None:
    """Publish what is skipped to the audit topic, and wait until it is there. Raises ``PublishError``.

    It is published before anything is skipped, possibly twice, with one id.
    """
    value = encode_skipped(ranges, name=settings.controller.name, time_ms=round(time.time() * 1000))
    headers = [(EPOCH_HEADER, str(epoch))]
    try:
        output_side(settings).append(settings.topics.audit, [(None, value)], headers=headers)
    except Refused as error:
        kind = PublishError if is_transient(error.__cause__) else NotAllowed
        raise kind(error.message) from error


def is_transient(error: BaseException | None) -> bool:
    """Whether the error means that brokers do not answer. A wrong address looks the same; a missing permission or topic does not."""
    if isinstance(error, NoAnswer):
        return error.is_transient
    from streaming.kafka import client as kafka  # noqa: PLC0415  the brokers' clients are imported late
    from streaming.pulsar import clients as pulsar  # noqa: PLC0415  the same

    return isinstance(error, Unreachable) or kafka.is_transient(error) or pulsar.is_transient(error)


def is_outage(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, means that brokers do not answer: errors of ours are judged by what they are raised from."""
    return error is not None and (is_transient(error) or is_outage(error.__cause__))
