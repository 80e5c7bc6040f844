"""Input on Pulsar that is gone: what is missing between a checkpoint and the logs."""

from collections.abc import Sequence

from streaming.contract.skipped import SkippedRange
from streaming.pulsar.admin import AdminError
from streaming.pulsar.link import PulsarLink
from streaming.pulsar.positions import DataLoss, Log, Position
from streaming.pulsar.topic_names import PartitionLogs
from streaming.transport.errors import PublishError
from streaming.transport.reading import Place


def find_lost(link: PulsarLink, subscription: str, places: Sequence[Place]) -> list[SkippedRange]:
    """The ranges after these places that are gone. Raises ``PublishError``."""
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
