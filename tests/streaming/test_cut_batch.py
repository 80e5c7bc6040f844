"""Which dead letters a rebuild publishes for a batch that its predecessor has published in part."""

import json
from collections.abc import Mapping, Sequence

import pytest

from state.events import Rejection
from streaming.contract.encode import Refused, encode_refused, encode_refused_event
from streaming.contract.origin import Origin
from streaming.controller import cut_batch
from streaming.controller.cut_batch import CutBatch
from streaming.ports.places import Place, Progress
from streaming.ports.reading import Begin, TopicRecord
from streaming.settings import Settings
from tests.streaming.test_rebuilding import Log

INPUT, CONTROL, LETTERS = "trimtab.input", "trimtab.control", "trimtab.dead-letter"
MINE, ANOTHERS = "/trimtab/trimtab", "/trimtab/another"


def refused(offset: int, *, topic: str = INPUT, partition: int = 0, appended_ms: int = 900_000) -> Refused:
    return encode_refused_event(
        b"no event",
        origin=Origin(topic, partition, offset),
        rejection=Rejection(reason="not-json", detail="it is no JSON"),
        cluster="east-1",
        appended_ms=appended_ms,
    )


def record(value: bytes | None, *, offset: int = 0) -> TopicRecord:
    return TopicRecord(key=None, value=value, timestamp=0, partition=0, offset=offset, headers=[])


class Brokers:
    """Records by topic and partition; ``begun`` keeps where each reading began."""

    def __init__(self, logs: Mapping[tuple[str, int], Sequence[TopicRecord]]) -> None:
        self._logs = logs
        self.begun: list[tuple[str, Begin | Place]] = []

    def reader(
        self, _: Settings, topic: str, *, begin: Begin | Place = "earliest", partition: int = 0
    ) -> Log:
        self.begun.append((topic, begin))
        return Log(*self._logs.get((topic, partition), ()))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    letters = [
        record(None),
        record(b"no event"),
        record(encode_refused(refused(7), ANOTHERS)),
        record(encode_refused(refused(8), MINE)),
    ]
    made = Brokers({(INPUT, 0): [record(b"", offset=7)], (LETTERS, 0): letters})
    monkeypatch.setattr(cut_batch, "input_reader", made.reader)
    monkeypatch.setattr(cut_batch, "output_reader", made.reader)
    return made


def unpublished(batch: CutBatch, *records: Refused) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of the record in each dead letter."""
    for each in records:
        batch.take(each)
    found = batch.unpublished_letters()
    assert {key for key, _ in found} <= {"east-1"}
    data = [json.loads(value)["data"] for _, value in found]
    return [(each["topic"], each["partition"], each["offset"]) for each in data]


def test_dead_letters_of_the_batch_that_are_not_on_their_topic_are_published(brokers: Brokers) -> None:
    read_from = Progress(
        [Place(INPUT, 0, INPUT, "7"), Place(INPUT, 1, INPUT, "40"), Place("gone", 0, "gone", "1")]
    )
    batch = CutBatch(Settings(), read_from)
    found = unpublished(
        batch,
        refused(6),  # belongs to an earlier batch
        refused(7),
        refused(8),  # is published already
        refused(9),
        refused(3, partition=1),  # its partition has no record after the batch before
        refused(0, topic=CONTROL),  # a topic that had not been read before
    )
    assert found == [(INPUT, 0, 7), (INPUT, 0, 9), (CONTROL, 0, 0)]
    assert brokers.begun[-1] == (LETTERS, 900_000 - cut_batch.CLOCKS_APART_MS)


def test_the_first_batch_there_was_begins_where_the_topics_begin(brokers: Brokers) -> None:
    assert unpublished(CutBatch(Settings(), None), refused(0), refused(8)) == [(INPUT, 0, 0)]
    assert [topic for topic, _ in brokers.begun] == [LETTERS]


def test_where_nothing_was_refused_the_dead_letters_are_not_read(brokers: Brokers) -> None:
    assert unpublished(CutBatch(Settings(), None)) == []
    assert brokers.begun == []
