"""The event about input that was deleted before the controller read it, and that a person allowed it to skip."""

import msgspec

from state.outputs import canonical, content_id
from streaming.contract.encode import encode_event, source_of

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


class SkippedData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.input-skipped.v1`."""

    ranges: list[SkippedRange]
    """The skipped records, in the order of topic and partition."""


def encode_skipped(ranges: list[SkippedRange], *, name: str, time_ms: int) -> bytes:
    """The event of the controller of that name as a CloudEvent; the same ranges have the same id."""
    data = canonical(SkippedData(ranges=ranges))
    return encode_event(
        type_=SKIPPED_TYPE,
        id_=content_id(data),
        source=source_of(name),
        subject="input",
        time_ms=time_ms,
        cluster="",
        data=data,
    )
