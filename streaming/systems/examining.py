"""Looking at the brokers and topics of each side, on the system that its address names. Nothing is changed.

If both addresses lead to the same brokers as the same user, the two sides count as one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from streaming.kafka import topics as kafka
from streaming.kafka.link import Link
from streaming.settings import Settings
from streaming.systems.topics import kafka_sides
from streaming.transport.topics import BrokersSeen, TopicsSeen


@dataclass(frozen=True, slots=True)
class Side:
    """One address; ``brokers`` and ``topics`` look at it. Both raise ``StartError``, ``Unreachable`` or ``WrongUse``."""

    name: str
    url: str
    brokers: Callable[[], BrokersSeen]
    topics: Callable[[], TopicsSeen]


def sides_of(settings: Settings) -> list[Side]:
    """The addresses of the settings, the input's first."""
    return sorted([*_on_kafka(settings), *_on_pulsar(settings)], key=lambda side: side.name)


def _on_kafka(settings: Settings) -> list[Side]:
    return [
        Side(
            name="input and output" if only is None else link.section,
            url=f"kafka://{link.bootstrap}",
            brokers=partial(kafka.brokers_seen, link),
            topics=partial(_kafka_topics, settings, link, only),
        )
        for link, only in kafka_sides(settings)
    ]


def _kafka_topics(settings: Settings, link: Link, only: frozenset[str] | None) -> TopicsSeen:
    return kafka.topics_seen(
        link, settings.topics, max_record_bytes=settings.controller.max_record_bytes, only=only
    )


def _on_pulsar(settings: Settings) -> list[Side]:
    if not (settings.input.is_pulsar or settings.output_is_pulsar):
        return []
    from streaming.pulsar import topics  # noqa: PLC0415  only with Pulsar its client is needed
    from streaming.pulsar.topics import specs_of  # noqa: PLC0415  the same

    names = settings.topics
    sides = specs_of(settings, input_partitions=0)
    return [
        Side(
            name="input and output" if len(specs) == len(names.all) else link.section,
            url=link.service_url,
            brokers=partial(
                topics.brokers_seen, link, names.input if link.section == "input" else names.actions
            ),
            topics=partial(topics.topics_seen, settings, link),
        )
        for link, specs in sides.items()
    ]
