"""Readers of topics for a person, on the system that the address of their side names."""

from contextlib import ExitStack

from streaming.kafka.link import input_link, output_link
from streaming.pulsar.link import input_on_pulsar, output_on_pulsar
from streaming.settings import Settings
from streaming.transport.reading import Begin, Place, Reader


def input_topic(settings: Settings, topic: str) -> str:
    """The name of a topic on the input's side in places and origins: on Pulsar its full name."""
    pulsar = input_on_pulsar(settings)
    return topic if pulsar is None else pulsar.full_name(topic)


def input_reader(
    settings: Settings,
    topic: str,
    *,
    begin: Begin | Place = "earliest",
    partition: int | None = None,
    compacted: bool = False,
) -> Reader:
    """Reader of a topic on the input's side, or of one of its partitions if ``partition`` is given.

    ``compacted``: in the compacted part, the newest record of each key is enough. On Kafka compaction removes the others for
    every reader, on Pulsar only for readers that ask for that.
    """
    pulsar = input_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.reading import PulsarTopicReader  # noqa: PLC0415  Pulsar's client, when it is needed

        return PulsarTopicReader(pulsar, topic, begin=begin, partition=partition, compacted=compacted)
    from streaming.kafka.reading import TopicReader  # noqa: PLC0415  Kafka's client, when it is needed

    return TopicReader(input_link(settings), topic, begin=begin, partition=partition)


def input_partitions(
    stack: ExitStack, settings: Settings, topic: str, *, begin: Begin = "earliest"
) -> list[Reader]:
    """A reader of each partition of a topic on the input's side, for callers that need them side by side; ``stack`` closes them."""
    first = stack.enter_context(input_reader(settings, topic, begin=begin, partition=0))
    others = range(1, first.partitions_count)
    return [
        first,
        *(
            stack.enter_context(input_reader(settings, topic, begin=begin, partition=number))
            for number in others
        ),
    ]


def output_reader(settings: Settings, topic: str, *, begin: Begin = "earliest") -> Reader:
    """Reader of a topic on the output's side."""
    pulsar = output_on_pulsar(settings)
    if pulsar is not None:
        from streaming.pulsar.reading import PulsarTopicReader  # noqa: PLC0415  Pulsar's client, when it is needed

        return PulsarTopicReader(pulsar, topic, begin=begin)
    from streaming.kafka.reading import TopicReader  # noqa: PLC0415  Kafka's client, when it is needed

    return TopicReader(output_link(settings), topic, begin=begin)
