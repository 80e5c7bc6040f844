"""The order in which a micro-batch's outputs are published, and the digest that identifies them.

A re-run of a batch may collect the same rows in another order, so both publishing and hashing go by a total
order: topic, key, round, place in the round; rejected records by where they came from. Pure: no Kafka, no
Spark.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_NO_COORDINATES = ("", -1, -1)

PIECE_BYTES = 4 * 1024 * 1024
"""Bytes sent before waiting for their delivery. A broker has 20 s for each piece, so 200 kB/s suffice for any batch."""


@dataclass(frozen=True, slots=True)
class OutboundRecord:
    """One encoded output: `value` is published as it is under `key`, the cluster's name.

    `round` and `place` are the round's number and the output's place in it. A rejected record has no round:
    it carries the `coordinates` (topic, partition, offset) of the record it was made from.
    """

    topic: str
    key: str
    value: bytes
    round: int = 0
    place: int = 0
    coordinates: tuple[str, int, int] | None = None


def _order(record: OutboundRecord) -> tuple[str, str, int, int, tuple[str, int, int]]:
    return (record.topic, record.key, record.round, record.place, record.coordinates or _NO_COORDINATES)


def sort_records(records: Iterable[OutboundRecord]) -> list[OutboundRecord]:
    """The records in the order in which they are published."""
    return sorted(records, key=_order)


def digest(records: Iterable[OutboundRecord]) -> str:
    """SHA-256, in hexadecimal, of topic, key and value of every record in publishing order.

    Each part is preceded by its length, so that no two different batches give the same bytes. Headers are left out:
    the epoch rises at every start, while a re-run of a batch must have the digest of the first run.
    """
    sha = hashlib.sha256()
    for record in sort_records(records):
        for part in (record.topic.encode(), record.key.encode(), record.value):
            sha.update(len(part).to_bytes(8, "big"))
            sha.update(part)
    return sha.hexdigest()


def pieces(
    records: Iterable[OutboundRecord], *, most_bytes: int = PIECE_BYTES
) -> Iterator[Sequence[OutboundRecord]]:
    """The records in their order, cut into pieces of at most so many bytes; a larger record is a piece of its own."""
    piece: list[OutboundRecord] = []
    size = 0
    for record in records:
        if piece and size + len(record.value) > most_bytes:
            yield piece
            piece, size = [], 0
        piece.append(record)
        size += len(record.value)
    if piece:
        yield piece
