"""CloudEvents that trimtab publishes: decisions and round summaries, refused records, a take-over, and skipped input.

``data`` of an output is already canonical JSON and is embedded as it is.
"""

import base64
import hashlib

import msgspec

from policies.wording import counted
from state.events import Rejection
from state.outputs import Output, canonical, content_id, rfc3339

REJECTED_TYPE = "trimtab.rejected.v1"
MAX_QUOTED_BYTES = 64 * 1024
"""How many bytes of a refused record are kept in the dead letter."""


class Origin(msgspec.Struct, frozen=True, order=True):
    """Coordinates of a record in a log, or of a line in a file."""

    topic: str
    """Topic, or file name."""
    partition: int
    offset: int
    """Offset, or number of the line, from 1."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str | None = None
    cluster: str
    datacontenttype: str
    data: msgspec.Raw


class RejectedData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.rejected.v1`."""

    reason: str
    """One of a fixed list, e.g. `negative-rate`."""
    detail: str
    """What is wrong, with the value found, what was expected and what to do."""
    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset of the record."""
    size_bytes: int
    """Size of the record's whole value."""
    sha256: str
    """SHA-256 of the whole value, in hex."""
    head_base64: str
    """The first 64 KiB of the value, in Base64."""


class RefusedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that could not be used, as far as it is known."""

    origin: Origin
    rejection: Rejection
    head: bytes
    """Its first bytes, at least 64 KiB if it has so many."""
    size_bytes: int
    sha256: str
    cluster: str
    """The record's cluster; empty where it is not valid or not equal to the record's key."""
    appended_ms: int | None

    def of_size(self, size_bytes: int, sha256: str) -> "RefusedRecord":
        """The same with the size and the hash of the whole record, of which only a part is here."""
        return msgspec.structs.replace(self, size_bytes=size_bytes, sha256=sha256)


_encoder = msgspec.json.Encoder()


def source_of(name: str) -> str:
    """CloudEvents source of everything that the controller of that name publishes."""
    return f"/trimtab/{name}"


def encode(output: Output, source: str) -> bytes:
    """An action or a round summary as a CloudEvent."""
    return encode_event(
        type_=output.type,
        id_=output.id,
        source=source,
        subject=output.subject,
        time_ms=output.time_ms,
        cluster=output.cluster,
        data=output.data,
    )


def encode_event(
    *, type_: str, id_: str, source: str, subject: str, time_ms: int | None, cluster: str, data: bytes
) -> bytes:
    """A CloudEvent; ``data`` is JSON and embedded as it is, an unknown time is left out."""
    return _encoder.encode(
        _Out(
            specversion="1.0",
            id=id_,
            source=source,
            type=type_,
            subject=subject,
            time=None if time_ms is None else rfc3339(time_ms),
            cluster=cluster,
            datacontenttype="application/json",
            data=msgspec.Raw(data),
        )
    )


def encode_refused_event(
    value: bytes, *, origin: Origin, rejection: Rejection, cluster: str, appended_ms: int | None
) -> RefusedRecord:
    """A refused record whose bytes are all here."""
    return RefusedRecord(
        origin=origin,
        rejection=rejection,
        head=value[:MAX_QUOTED_BYTES],
        size_bytes=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
        cluster=cluster,
        appended_ms=appended_ms,
    )


def letter_id(origin: Origin) -> str:
    """Id of the dead letter of the record from there."""
    return content_id(f"{origin.topic}\n{origin.partition}\n{origin.offset}".encode())


def encode_refused(record: RefusedRecord, source: str) -> bytes:
    """A refused record as a CloudEvent for the dead letter; its id is computed from its coordinates."""
    origin = record.origin
    data = RejectedData(
        reason=record.rejection.reason,
        detail=record.rejection.detail,
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        size_bytes=record.size_bytes,
        sha256=record.sha256,
        head_base64=base64.b64encode(record.head[:MAX_QUOTED_BYTES]).decode(),
    )
    return encode_event(
        type_=REJECTED_TYPE,
        id_=letter_id(origin),
        source=source,
        subject=record.rejection.reason,
        time_ms=record.appended_ms,
        cluster=record.cluster,
        data=canonical(data),
    )


LEADER_TYPE = "trimtab.leader.v1"


class LeaderData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.leader.v1`."""

    controller: str
    """Name of the controller."""
    epoch: int
    """Its epoch from now on; the `trimtab-epoch` header of the record has the same number."""


def encode_leader(name: str, *, epoch: int, time_ms: int) -> bytes:
    """The event of the controller of that name as a CloudEvent; it is the same for every partition of the topic."""
    data = LeaderData(controller=name, epoch=epoch)
    return _encode_own(LEADER_TYPE, "leader", data, name=name, time_ms=time_ms)


SKIPPED_TYPE = "trimtab.input-skipped.v1"


class SkippedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition that do not exist any more."""

    topic: str
    """Topic on the input's side; on Pulsar its full name."""
    partition: int
    """Its number; 0 for a topic without partitions."""
    read_until: str
    """How far it had been read: on Kafka the offset of the next record, on Pulsar `ledger:entry` of the last one."""
    goes_on_from: str
    """Where reading goes on, in the same terms."""
    records_count: int | None = None
    """How many records are missing; null where the number cannot be known."""

    @property
    def where(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        count = "records" if self.records_count is None else counted(self.records_count, "record")
        return f"{self.topic}, partition {self.partition}: {count} after {self.read_until}, reading goes on from {self.goes_on_from}"


class SkippedData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.input-skipped.v1`."""

    ranges: list[SkippedRange]
    """The skipped records, in the order of topic and partition."""


def encode_skipped(ranges: list[SkippedRange], *, name: str, time_ms: int) -> bytes:
    """The event of the controller of that name as a CloudEvent; the same ranges have the same id."""
    return _encode_own(SKIPPED_TYPE, "input", SkippedData(ranges=ranges), name=name, time_ms=time_ms)


def _encode_own(type_: str, subject: str, data: msgspec.Struct, *, name: str, time_ms: int) -> bytes:
    """An event about the controller of that name itself, and about no cluster; the same data has the same id."""
    encoded = canonical(data)
    return encode_event(
        type_=type_,
        id_=content_id(encoded),
        source=source_of(name),
        subject=subject,
        time_ms=time_ms,
        cluster="",
        data=encoded,
    )
