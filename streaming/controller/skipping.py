"""Going on without input that is gone: what is missing between a checkpoint and the logs, and saying so in the audit.

Records deleted before they were read (a retention that is shorter than an outage) end every start, until a person says
with ``--skip-lost`` that they may be passed over. Memory, cooldowns and budgets stay. The source then skips until it is past
the gap, and not one record longer. The statement is said before anything is skipped, and possibly twice, under one id.
"""

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from streaming.contract.skipped import SkippedRange, encode_skipped
from streaming.kafka.link import input_link, output_link
from streaming.ports.publishing import EPOCH_HEADER, PublishError
from streaming.pulsar.link import PulsarLink, input_on_pulsar, output_on_pulsar
from streaming.pulsar.positions import DataLoss, Log, Position
from streaming.settings import Settings
from streaming.spark.offsets import Place, order_of

__all__ = ["is_past", "lost", "say"]

_TIMEOUT_S = 20.0


def lost(settings: Settings, places: Sequence[Place]) -> list[SkippedRange]:
    """What is gone after these places. Raises ``KafkaError`` or ``PublishError``."""
    link = input_on_pulsar(settings)
    if link is None:
        found = _lost_on_kafka(settings, places)
    else:
        found = _lost_on_pulsar(link, settings.input.pulsar.subscription, places)
    return sorted(found, key=lambda each: each.where)


def is_past(ranges: Sequence[SkippedRange], places: Sequence[Place]) -> bool:
    """Whether reading has got over every gap."""
    at = {(place.topic, place.partition): place.at for place in places}
    return all(
        each.where not in at
        or (at[each.where] != each.read_until and order_of(at[each.where]) >= order_of(each.goes_on_from))
        for each in ranges
    )


def say(settings: Settings, ranges: list[SkippedRange], *, epoch: int) -> None:
    """Publish what is skipped to the audit topic, and wait until it is there. Raises ``PublishError``."""
    value = encode_skipped(ranges, name=settings.controller.name, time_ms=round(time.time() * 1000))
    link = output_on_pulsar(settings)
    if link is None:
        _say_on_kafka(settings, value, epoch)
    else:
        _say_on_pulsar(link, settings.topics.audit, value, epoch)


def _lost_on_kafka(settings: Settings, places: Sequence[Place]) -> list[SkippedRange]:
    link = input_link(settings)
    consumer = KafkaConsumer(bootstrap_servers=link.bootstrap, **link.client_options())
    at = {TopicPartition(place.topic, place.partition): int(place.at) for place in places}
    try:
        begins, ends = consumer.beginning_offsets(list(at)), consumer.end_offsets(list(at))
    finally:
        consumer.close()
    return [
        SkippedRange(
            topic=where.topic,
            partition=where.partition,
            read_until=str(offset),
            goes_on_from=str(max(begins[where], min(offset, ends[where]))),
            records_count=begins[where] - offset if begins[where] > offset else None,
        )
        for where, offset in at.items()
        if not begins[where] <= offset <= ends[where]
    ]


def _lost_on_pulsar(link: PulsarLink, subscription: str, places: Sequence[Place]) -> list[SkippedRange]:
    from streaming.pulsar.admin import AdminError  # noqa: PLC0415  loads httpx
    from streaming.pulsar.topic_names import PartitionLogs  # noqa: PLC0415  loads httpx

    try:
        with link.admin() as admin:
            logs = PartitionLogs(admin, subscription=subscription)
            found = [_gap(logs.log(place.log), place) for place in places]
    except AdminError as error:
        raise PublishError(f"[{link.section}.pulsar]: {error}") from error
    return [gap for gap in found if gap is not None]


def _gap(log: Log, place: Place) -> SkippedRange | None:
    at = Position.parse(place.at)
    try:
        log.require(at, place.log)
    except DataLoss:
        return SkippedRange(
            topic=place.topic,
            partition=place.partition,
            read_until=place.at,
            goes_on_from=str(log.nearest(at)),
        )
    return None


def _say_on_kafka(settings: Settings, value: bytes, epoch: int) -> None:
    link = output_link(settings)
    headers = [(EPOCH_HEADER, str(epoch).encode())]
    try:
        producer = KafkaProducer(bootstrap_servers=link.bootstrap, **link.client_options())
        try:
            producer.send(settings.topics.audit, value=value, headers=headers).get(timeout=_TIMEOUT_S)
        finally:
            producer.close(timeout=_TIMEOUT_S)
    except KafkaError as error:
        raise PublishError(
            f"what is skipped could not be published to {link.bootstrap}: {error!r}"
        ) from error


def _say_on_pulsar(link: PulsarLink, topic: str, value: bytes, epoch: int) -> None:
    import pulsar  # noqa: PLC0415  only with Pulsar its client is needed

    from streaming.pulsar.clients import close  # noqa: PLC0415

    client = link.client(timeout_s=_TIMEOUT_S)
    try:
        producer = client.create_producer(link.full_name(topic), send_timeout_millis=round(_TIMEOUT_S * 1000))
        producer.send(value, properties={EPOCH_HEADER: str(epoch)})
    except pulsar.PulsarException as error:
        raise PublishError(
            f"what is skipped could not be published to {link.service_url}: {error!r}"
        ) from error
    finally:
        close(client)
