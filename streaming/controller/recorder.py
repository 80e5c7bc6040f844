"""``trimtab record``: input and control as records of a recording, in the order of their append times.

That is the order in which a controller that keeps up takes them, except that it takes the control records of a batch first.
docs/operations.md says what differs. Invariants: each partition's records come in its order; for equal append times control
comes first; what is there when a pass begins is written by its end.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import BinaryIO

from streaming.contract.origin import Origin
from streaming.controller.recording import Recorded, encode_recorded
from streaming.settings import Settings
from streaming.systems import input_partitions, input_topic
from streaming.transport.side import Begin, Place, Progress, Reader, TopicRecord


@dataclass(frozen=True, slots=True)
class _Log:
    """One partition, and the coordinates that its records have in the live application."""

    reader: Reader
    topic: str
    partition: int
    is_control: bool
    is_on_pulsar: bool
    end: Place | None = None
    """Where reading ends; None for the end that the partition has when it is read."""

    def records(self) -> Iterator[tuple[tuple[int, bool, Origin], Recorded]]:
        """The records up to the end, each with its place in the order; an append time below the one before counts as that one."""
        latest_ms = 0
        for record in self.reader.read_to_end() if self.end is None else self.reader.read_until(self.end):
            latest_ms = max(latest_ms, record.timestamp)
            recorded = self._record(record)
            yield (latest_ms, not self.is_control, recorded.origin), recorded

    def _record(self, record: TopicRecord) -> Recorded:
        value = record.value
        if value is None and self.is_on_pulsar:
            value = b""  # the live source makes this of a message without content
        return Recorded(
            origin=Origin(topic=self.topic, partition=record.partition, offset=record.offset),
            key=record.key,
            value=value,
            appended_ms=record.timestamp,
            is_control=self.is_control,
        )


class Recorder:
    """Reads both topics, only up to ``until`` if it is given; ``stack`` closes the connections. Raises ``exits.Refused``."""

    def __init__(
        self, stack: ExitStack, settings: Settings, *, begin: Begin, until: Progress | None = None
    ) -> None:
        topics = settings.topics
        logs = [
            *_logs(stack, settings, topics.input, begin=begin, is_control=False),
            *_logs(stack, settings, topics.control, begin="earliest", is_control=True),
        ]
        self._logs: Sequence[_Log] = logs if until is None else list(_limit_logs(logs, until))

    def records(self, *, is_stopped: Callable[[], bool]) -> Iterator[Recorded]:
        """One pass: all records that are there and were not yet returned."""
        for _, recorded in heapq.merge(*(log.records() for log in self._logs), key=lambda each: each[0]):
            if is_stopped():
                break
            yield recorded

    def write(self, out: BinaryIO, *, is_stopped: Callable[[], bool]) -> int:
        """Write a pass. Returns the number of records."""
        count = 0
        for recorded in self.records(is_stopped=is_stopped):
            out.write(encode_recorded(recorded) + b"\n")
            count += 1
        out.flush()
        return count


def _limit_logs(logs: Iterable[_Log], until: Progress) -> Iterator[_Log]:
    """Each partition with its end; one that had not been read at all is left out."""
    ends = until.by_partition()
    for log in logs:
        end = ends.get((log.topic, log.partition))
        if end is not None:
            yield replace(log, end=end)


def _logs(
    stack: ExitStack, settings: Settings, topic: str, *, begin: Begin, is_control: bool
) -> Iterator[_Log]:
    name, is_on_pulsar = input_topic(settings, topic), settings.input.is_pulsar
    for number, reader in enumerate(input_partitions(stack, settings, topic, begin=begin)):
        yield _Log(reader, name, number, is_control=is_control, is_on_pulsar=is_on_pulsar)
