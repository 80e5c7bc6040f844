"""How each topic has to be set up on Kafka, and which settings are only chosen for a new topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.contract.envelope import LARGEST_RECORD_BYTES
from streaming.settings import TopicNames
from streaming.transport.topics import (
    ACTIONS_RETENTION_MS,
    AUDIT_RETENTION_MS,
    BEATS_RETENTION_MS,
    INPUT_RETENTION_MS,
)

RECORD_HEADROOM_BYTES = 64 * 1024
"""Key, headers and batch header on top of the largest value."""

MARKER_SEGMENT_BYTES = 1024 * 1024
"""Compaction leaves the newest segment alone; a start reads it whole (some 5,000 markers)."""

_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic: `fixed` settings are needed, `chosen` ones only proposed; None for `partitions_needed` leaves them unchecked.

    A controller runs without a topic that is `optional`.
    """

    name: str
    partitions: int
    partitions_needed: int | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    min_message_bytes: int | None = None
    optional: bool = False

    @property
    def configs(self) -> dict[str, str]:
        size = {} if self.min_message_bytes is None else {"max.message.bytes": str(self.min_message_bytes)}
        return {**self.chosen, **size, **self.fixed}


def specs_of(names: TopicNames, *, input_partitions: int | None, max_record_bytes: int) -> list[TopicSpec]:
    """All topics as they are made; partitions of the input are not compared where ``input_partitions`` is None."""
    return [
        TopicSpec(
            name=names.input,
            partitions=input_partitions or 1,
            partitions_needed=input_partitions,
            fixed=_APPEND_TIME,
            chosen={"retention.ms": str(INPUT_RETENTION_MS)},
            min_message_bytes=max_record_bytes + RECORD_HEADROOM_BYTES,
        ),
        TopicSpec(
            name=names.control,
            partitions=1,
            partitions_needed=1,
            fixed=_APPEND_TIME | _COMPACTED,
            # as long as input can be read again, so can the control events that were in force
            chosen={"min.compaction.lag.ms": str(INPUT_RETENTION_MS)},
        ),
        _output(names.actions, ACTIONS_RETENTION_MS, min_message_bytes=LARGEST_RECORD_BYTES),
        _output(names.actions_dry_run, ACTIONS_RETENTION_MS, min_message_bytes=LARGEST_RECORD_BYTES),
        _output(names.audit, AUDIT_RETENTION_MS),
        _output(names.dead_letter, ACTIONS_RETENTION_MS),
        TopicSpec(
            name=names.executor_kafka,
            partitions=1,
            partitions_needed=1,
            fixed=_COMPACTED,
            min_message_bytes=LARGEST_RECORD_BYTES,  # it holds the entries that an action added
        ),
        TopicSpec(
            name=names.commits,
            partitions=1,
            partitions_needed=1,
            fixed=_COMPACTED,
            chosen={"segment.bytes": str(MARKER_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.1"},
        ),
        TopicSpec(
            name=names.beats,
            partitions=1,
            partitions_needed=1,
            fixed=_APPEND_TIME,
            # only a segment that is no longer written is deleted
            chosen={"retention.ms": str(BEATS_RETENTION_MS), "segment.ms": str(BEATS_RETENTION_MS)},
            optional=True,
        ),
    ]


def _output(name: str, retention_ms: int, *, min_message_bytes: int | None = None) -> TopicSpec:
    chosen = {"retention.ms": str(retention_ms)}
    return TopicSpec(name=name, partitions=1, chosen=chosen, min_message_bytes=min_message_bytes)


def select_specs(specs: list[TopicSpec], only: frozenset[str] | None) -> list[TopicSpec]:
    """The specs of the topics in ``only``; all if it is None."""
    return specs if only is None else [spec for spec in specs if spec.name in only]
