"""Dead letters of a batch that was published only in part, which can happen on Pulsar, for a rebuild that drops the rest of the batch.

Decisions that the batch has not published do not count, so its rounds go on from what was published. A record that it refused stays
refused in any case, and is in no later batch. Its dead letter would be lost, so the rebuild publishes it. Its id is made of the
place of the record: a consumer that reads it twice recognizes the id.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from streaming.contract.encode import Refused, encode_refused, letter_id, source_of
from streaming.contract.envelope import read_envelope
from streaming.ports.places import Place, Progress
from streaming.ports.reading import TopicRecord
from streaming.settings import Settings
from streaming.systems.reading import input_reader, input_topic, output_reader

CLOCKS_APART_MS = 600_000
"""How far apart two clocks may be: the append times of outputs come from another clock than those of the input."""


def find_first_after(settings: Settings, place: Place) -> TopicRecord | None:
    """The first record after a place of input or control; None where there is none, or the place is in another topic.

    Raises ``exits.Refused``.
    """
    for name in (settings.topics.input, settings.topics.control):
        if input_topic(settings, name) == place.topic:
            with input_reader(settings, name, begin=place, partition=place.partition) as reader:
                return next(reader.read_to_end(), None)
    return None


class CutBatch:
    """``read_from`` is how far input and control had been read before the batch; None if not at all. Raises ``exits.Refused``."""

    def __init__(self, settings: Settings, read_from: Progress | None) -> None:
        self._settings = settings
        self._source = source_of(settings.controller.name)
        self._firsts = {} if read_from is None else _first_offsets(settings, read_from)
        self._refused: list[Refused] = []

    def take(self, refused: Refused) -> None:
        """Take a record that the rebuild refused, in this batch or an earlier one; only those of this batch are kept."""
        origin = refused.origin
        if origin.offset >= self._firsts.get((origin.topic, origin.partition), 0):
            self._refused.append(refused)

    def unpublished_letters(self) -> list[tuple[str, bytes]]:
        """Keys and values of the dead letters that are not on their topic. Raises ``exits.Refused``."""
        if not self._refused:
            return []
        appended_ms = min(each.appended_ms or 0 for each in self._refused)
        published = set(self._published_ids(since_ms=appended_ms - CLOCKS_APART_MS))
        return [
            (each.cluster, encode_refused(each, self._source))
            for each in self._refused
            if letter_id(each.origin) not in published
        ]

    def _published_ids(self, *, since_ms: int) -> Iterator[str]:
        with output_reader(self._settings, self._settings.topics.dead_letter, begin=since_ms) as reader:
            for record in reader.read_to_end():
                try:
                    envelope = read_envelope(record.value or b"")
                except msgspec.MsgspecError:
                    continue  # it is not one of our events
                if envelope.source == self._source:
                    yield envelope.id


def _first_offsets(settings: Settings, read_from: Progress) -> Mapping[tuple[str, int], float]:
    """The first offset of the batch by topic and partition; infinite where nothing came after."""
    firsts = {where: find_first_after(settings, place) for where, place in read_from.by_partition().items()}
    return {where: math.inf if first is None else first.offset for where, first in firsts.items()}
