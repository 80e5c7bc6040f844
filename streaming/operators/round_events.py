"""Round summaries and rejected records as they are on their topics."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from state.outputs import RoundSummary
from state.outputs.actions import ROUND_TYPE
from streaming.contract.encode import REJECTED_TYPE, RejectedData
from streaming.contract.envelope import ReadEnvelope, read_envelope
from streaming.operators.action_events import UnreadableEvent, epoch_of
from streaming.transport.side import TopicRecord

Round = ReadEnvelope[RoundSummary]
Rejected = ReadEnvelope[RejectedData]
LOOK_BACK_S = (300, 86_400)
"""How far back summaries are looked for: first where those of clusters that report now are, then a whole day."""


class _RoundNumber(msgspec.Struct, frozen=True):
    """Only a round's number, which is quick to read."""

    round: int


_numbers = msgspec.json.Decoder(ReadEnvelope[_RoundNumber])
_rounds = msgspec.json.Decoder(Round)
_rejected = msgspec.json.Decoder(Rejected)


def read_round(value: bytes) -> Round:
    """The summary that a record holds. Raises ``UnreadableEvent``."""
    found: Round = _read(value, ROUND_TYPE, _rounds)
    return found


def is_round_of(value: bytes, *, cluster: str, number: int) -> bool:
    """Whether a record holds the summary of this round."""
    try:
        head = _numbers.decode(value)
    except msgspec.MsgspecError:
        return False
    return (head.type, head.cluster, head.data.round) == (ROUND_TYPE, cluster, number)


def read_rejected(value: bytes) -> Rejected:
    """The event about a record that could not be used. Raises ``UnreadableEvent``."""
    found: Rejected = _read(value, REJECTED_TYPE, _rejected)
    return found


def _read(value: bytes, type_: str, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        head = read_envelope(value)
        if head.type == type_:
            return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise UnreadableEvent(f"not a {type_}: {error}; it may be from another version of trimtab") from error
    raise UnreadableEvent(f"{head.type} is not a {type_}")


class Newest:
    """The newest summary of each cluster; that of a controller which another one has replaced does not count."""

    def __init__(self) -> None:
        self._records: dict[str, TopicRecord] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Look at records, in their order."""
        for record in records:
            try:
                head = read_envelope(record.value or b"")
            except msgspec.MsgspecError:
                continue
            if head.type != ROUND_TYPE:
                continue
            key, epoch = (head.source, head.cluster), epoch_of(record.headers) or 0
            if epoch >= self._epochs.get(key, 0):
                self._epochs[key] = epoch
                self._records[head.cluster] = record

    def look_back(
        self,
        read: Callable[[float], Iterable[TopicRecord]],
        wanted: Collection[str],
        *,
        steps_s: Sequence[float] = LOOK_BACK_S,
    ) -> None:
        """Take the records that ``read`` finds so many seconds back, step by step until every wanted cluster (or any) has a summary."""
        for step_s in steps_s:
            self.take(read(step_s))
            if self._records and self._records.keys() >= set(wanted):
                break

    @property
    def clusters(self) -> set[str]:
        """Clusters with a summary."""
        return set(self._records)

    def records(self) -> list[TopicRecord]:
        """The newest record of each cluster, by the cluster's name."""
        return [record for _, record in sorted(self._records.items())]

    def rounds(self, topic: str) -> Iterator[tuple[TopicRecord, Round]]:
        """The same records, with the summary of each. Raises ``exits.Refused`` naming the place on ``topic`` of an unreadable one."""
        for record in self.records():
            try:
                yield record, read_round(record.value or b"")
            except UnreadableEvent as error:
                raise error.at(topic, record.offset) from error
