"""What a controller publishes, in which order, and the marker that says what is out: the same for Kafka and Pulsar.

A re-run of a batch may collect the same rows in another order, so both publishing and hashing go by a total order: topic,
key, round, place in the round; rejected records by where they came from.

The marker travels with the records it stands for. It is compared with the checkpoint at start and with every batch. So the
actions of a batch that runs twice are published once, and a checkpoint that was deleted, restored from a backup or swapped
is noticed. Pure: no broker and no Spark here.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from state.layouts import FRESH
from streaming.transport.errors import ADOPT, CheckpointMismatch, Fenced, StartWith

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


class RanWith(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch ran with: trimtab's version, and the digest of the settings that shaped its outputs."""

    version: str
    settings: str


UNNAMED = RanWith(version="", settings="")
"""For a publisher that was given neither version nor settings."""


class BatchState(Enum):
    """Whether a batch is out already; true where it is still to be published."""

    NEW = "new"
    OUT = "out"
    """It was published already, exactly as it is now."""
    OTHERWISE = "otherwise"
    """It was published already with other contents, from another version or by `--adopt`."""

    def __bool__(self) -> bool:
        return self is BatchState.NEW


class Marker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest batch a controller has published; `batch_id` and `digest` are None before its first one.

    `query_id` is Spark's id of the query, None while every query that is not over is accepted (first start, `--fresh`).
    `epoch` rises at every start of the controller: to the seconds of its clock, or by one where that is more.
    """

    query_id: str | None
    batch_id: int | None
    digest: str | None
    epoch: int
    over: tuple[str, ...] = ()
    """Queries given up by `--fresh` or `--adopt`, the newest last: a start does not go on with their checkpoints."""
    ran_with: RanWith | None = None
    """What the batch ran with. None: not known any more, so the batch stays as it was published, whatever a re-run gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the checkpoint says: its query id, the newest batch id of its `offsets` log, if any, and its start's epoch."""

    query_id: str | None
    last_batch_id: int | None
    epoch: int = 0
    location: str = field(default="the checkpoint", compare=False)
    """Where it is, for messages."""

    def __str__(self) -> str:
        if self.query_id is None:
            return f"{self.location} holds no query"
        newest = "no batch yet" if self.last_batch_id is None else f"batch {self.last_batch_id} as its newest"
        return f"{self.location} belongs to query {self.query_id} and has {newest}"


_MOST_OVER = 100
"""How many queries are remembered as over: they take 4 kB of a marker."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Marker)


def encode_marker(marker: Marker) -> bytes:
    """The marker as the JSON value of a record of the commits topic."""
    return _ENCODER.encode(marker)


def decode_marker(value: bytes, *, topic: str, offset: int) -> Marker:
    """Read a record of the commits topic back; raises `CheckpointMismatch` when it is not a marker."""
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(
            f"the record at offset {offset} of {topic} is not a marker ({error}): "
            "is the topic used by something else, or written by a newer version of trimtab?"
        ) from error


def next_start(
    marker: Marker | None,
    checkpoint: Checkpoint,
    *,
    name: str,
    start_with: StartWith,
    now_s: float,
) -> Marker:
    """The marker a starting controller writes: the old one with the next epoch.

    `fresh` forgets what was published. `adopt` trusts the checkpoint about what comes next; if its newest batch was
    published, that batch stays as it was. Raises `CheckpointMismatch` when marker and `checkpoint` disagree.
    """
    # above every earlier one, even if the commits topic was lost: consumers remember the highest
    known = 0 if marker is None else marker.epoch
    epoch = max(known + 1, checkpoint.epoch + 1, int(now_s))
    if start_with == "fresh":
        over = _ended_queries_of(marker, checkpoint.query_id, going_on=None)
        return Marker(query_id=None, batch_id=None, digest=None, epoch=epoch, over=over)
    if start_with == "adopt":
        return _adopt(marker, checkpoint, epoch)
    problem = _disagreement(marker, checkpoint)
    if problem is not None:
        raise CheckpointMismatch(_start_refusal(problem, marker, checkpoint, name))
    if marker is None:
        return Marker(query_id=None, batch_id=None, digest=None, epoch=epoch)
    return msgspec.structs.replace(marker, epoch=epoch)


def _adopt(marker: Marker | None, checkpoint: Checkpoint, epoch: int) -> Marker:
    query_id = checkpoint.query_id
    over = _ended_queries_of(marker, going_on=query_id)
    newest = (query_id, checkpoint.last_batch_id)
    if None not in newest and marker is not None and (marker.query_id, marker.batch_id) == newest:
        return msgspec.structs.replace(marker, epoch=epoch, over=over, ran_with=None)
    return Marker(query_id=query_id, batch_id=None, digest=None, epoch=epoch, over=over)


def _ended_queries_of(marker: Marker | None, *queries: str | None, going_on: str | None) -> tuple[str, ...]:
    """The queries that are over once this start has claimed its epoch; ``going_on`` is not, even if it was before."""
    before = () if marker is None else (*marker.over, marker.query_id)
    ended = dict.fromkeys(query for query in (*before, *queries) if query is not None and query != going_on)
    return tuple(ended)[-_MOST_OVER:]


def _disagreement(marker: Marker | None, checkpoint: Checkpoint) -> str | None:
    newest = -1 if checkpoint.last_batch_id is None else checkpoint.last_batch_id
    if marker is None:
        return "the checkpoint has batches, but no marker says which were published" if newest >= 0 else None
    if checkpoint.query_id in marker.over:
        return "the checkpoint belongs to a query that is over (--fresh or --adopt gave it up)"
    if marker.query_id not in {None, checkpoint.query_id}:
        place = f"not at {checkpoint.location} (deleted, replaced by a new one, or spark.checkpoint names another place)"
        return (
            f"its checkpoint is {place}"
            if checkpoint.query_id is None
            else "the checkpoint belongs to another query"
        )
    is_older = marker.query_id is not None and marker.batch_id is not None and marker.batch_id > newest
    return "the checkpoint is older than what was published (restored from a backup?)" if is_older else None


def _start_refusal(problem: str, marker: Marker | None, checkpoint: Checkpoint, name: str) -> str:
    adopt = "" if checkpoint.query_id is None else f"; or with {ADOPT}"  # there is nothing to adopt
    return (
        f'controller "{name}" does not start: {problem}. {_describe(marker)}; {checkpoint}. '
        f"Going on could repeat or lose actions. Correct spark.checkpoint, or put the matching checkpoint back; or start with {FRESH}{adopt}."
    )


def _describe(marker: Marker | None) -> str:
    if marker is None:
        return "The marker is missing"
    return (
        f"The marker says query {marker.query_id}, batch {marker.batch_id}, "
        f"digest {marker.digest and marker.digest[:12]}, epoch {marker.epoch}"
    )


def superseded_error(name: str, *, epoch: int) -> Fenced:
    """The error of a controller's publisher when a newer controller of its name has claimed a higher epoch."""
    return Fenced(
        f'another controller called "{name}" has taken over (this one has epoch {epoch}): this '
        "process ends. To run two controllers side by side, give each a controller.name, [topics] and a checkpoint of its own."
    )


def compare_batch(
    marker: Marker, *, batch_id: int, query_id: str, batch_digest: str, version: str
) -> BatchState:
    """Whether the batch has still to be published by this version of trimtab.

    Raises `CheckpointMismatch` for another query, an older batch, or the same batch of the same version with other
    contents.
    """
    is_other = marker.query_id is not None and marker.query_id != query_id
    if is_other or query_id in marker.over:
        raise _batch_refusal("it belongs to another query", marker, batch_id, query_id, batch_digest)
    if marker.batch_id is None or marker.batch_id < batch_id:
        return BatchState.NEW
    if marker.batch_id > batch_id:
        raise _batch_refusal("a newer batch is already published", marker, batch_id, query_id, batch_digest)
    if marker.digest == batch_digest:
        return BatchState.OUT
    if marker.ran_with is None or marker.ran_with.version != version:
        return BatchState.OTHERWISE
    raise _batch_refusal("it was published with other contents", marker, batch_id, query_id, batch_digest)


def _batch_refusal(
    problem: str, marker: Marker, batch_id: int, query_id: str, batch_digest: str
) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"batch {batch_id} of query {query_id} (digest {batch_digest[:12]}) is not published: {problem}. "
        f"{_describe(marker)}. If the input was changed between the two runs of the batch, leave it as it was "
        f"published and go on with {ADOPT}; or start over with {FRESH}."
    )


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The marker, and how far its batch got."""

    marker: Marker
    lineage: int
    """Epoch of the last start that forgot what was published before it. Batch ids may begin anew there, so sequence ids
    do too, under another producer name: otherwise the broker would drop new messages as duplicates."""
    is_whole: bool
    """Whether all of the marker's batch is out."""


def next_commit(
    commit: Commit | None,
    checkpoint: Checkpoint,
    *,
    name: str,
    start_with: StartWith,
    now_s: float,
) -> Commit:
    """What a starting controller writes; raises ``CheckpointMismatch`` as ``next_start`` does."""
    before = None if commit is None else commit.marker
    marker = next_start(before, checkpoint, name=name, start_with=start_with, now_s=now_s)
    if commit is None or start_with == "fresh" or (start_with == "adopt" and marker.batch_id is None):
        return Commit(marker=marker, lineage=marker.epoch, is_whole=True)
    return msgspec.structs.replace(commit, marker=marker)


def begin_batch(
    commit: Commit,
    *,
    batch_id: int,
    query_id: str,
    batch_digest: str,
    ran_with: RanWith | None = None,
) -> Commit:
    """The commit that is written before the first message of a batch."""
    marker = msgspec.structs.replace(
        commit.marker, batch_id=batch_id, query_id=query_id, digest=batch_digest, ran_with=ran_with
    )
    return Commit(marker=marker, lineage=commit.lineage, is_whole=False)


def finish_batch(commit: Commit) -> Commit:
    """The commit that is written after the last message of a batch."""
    return msgspec.structs.replace(commit, is_whole=True)
