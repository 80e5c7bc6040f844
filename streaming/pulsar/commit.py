"""What a controller on Pulsar writes down beside each batch, and the names and numbers that make a re-run harmless.

Pulsar has no transactions for this client, so a batch becomes visible message by message. Therefore the marker is written
twice: before the first message of a batch, with the digest of all of it, and after the last. Between the two, the first
part of the batch in publishing order is out, and a re-run sends the whole batch again: the broker drops the messages that it
has, by producer name and sequence id. Both are pure functions of what is written down, so they are the same after any crash.
Pure: no Pulsar here.
"""

import msgspec

from streaming.transport.errors import CheckpointMismatch, StartWith
from streaming.transport.publishing import Checkpoint, Marker, RanWith, mark_published, next_start

_PLACE_BITS = 32
"""Bits of a sequence id for the place; a batch has far fewer outputs than 2^32, and batch ids stay below 2^31."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The marker, and how far its batch got."""

    marker: Marker
    lineage: int
    """Epoch of the last start that forgot what was published before it. Batch ids may begin anew there, so sequence ids
    do too, under another producer name: otherwise the broker would drop new messages as duplicates."""
    is_whole: bool
    """Whether all of the marker's batch is out."""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Commit)


def encode_commit(commit: Commit) -> bytes:
    """The commit as the JSON value of a message of the commits topic."""
    return _ENCODER.encode(commit)


def decode_commit(value: bytes, *, topic: str) -> Commit:
    """Read a message of the commits topic back; raises ``CheckpointMismatch`` when it is none."""
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(
            f"the last message of {topic} is not a marker ({error}): "
            "is the topic used by something else, or written by a newer version of trimtab?"
        ) from error


def claim_name(
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
    marker = mark_published(
        commit.marker,
        batch_id=batch_id,
        query_id=query_id,
        batch_digest=batch_digest,
        ran_with=ran_with,
    )
    return Commit(marker=marker, lineage=commit.lineage, is_whole=False)


def finish(commit: Commit) -> Commit:
    """The commit that is written after the last message of a batch."""
    return msgspec.structs.replace(commit, is_whole=True)


def producer_name(name: str, commit: Commit) -> str:
    """Name of the producers of the outputs; the broker lets only one producer of a name connect to a topic."""
    return f"{name}/{commit.lineage}"


def announcer_name(name: str) -> str:
    """Name of the producer that announces a take-over, with the epoch as its sequence id.

    It is not the name of the outputs' producers: their ids rise with the batches, and an epoch among them would make the
    broker drop the rest of a batch that was begun.
    """
    return f"{name}/leader"


def sequence_id(batch_id: int, place: int) -> int:
    """Sequence id of the output at a place, from 0, in its batch's publishing order; rises, with gaps. Never 0, which Pulsar replaces."""
    return (batch_id << _PLACE_BITS) + place + 1
