"""How far a query has read, as Spark notes it, and when it has passed the data that its input lost."""

import json

import pytest
from jsonschema import Draft202012Validator

from deploy.docs.schemas import KINDS, schema_of
from streaming.contract.encode import SKIPPED_TYPE, SkippedRange, encode_skipped
from streaming.spark.checkpoint import decode_progress
from streaming.transport.side import Place, is_past

KAFKA = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{"in":{"1":7,"0":12}}\n{"control":{"0":0}}'
PULSAR = b'v1\n{"batchWatermarkMs":0}\n{"persistent://t/n/in-partition-3": "5:-1"}\n{"persistent://t/n/control": "9:3"}'


def test_offsets_are_read_as_spark_writes_them() -> None:
    assert decode_progress(KAFKA).places == [
        Place("in", 1, "in", "7"),
        Place("in", 0, "in", "12"),
        Place("control", 0, "control", "0"),
    ]
    assert decode_progress(PULSAR).places == [
        Place("persistent://t/n/in", 3, "persistent://t/n/in-partition-3", "5:-1"),
        Place("persistent://t/n/control", 0, "persistent://t/n/control", "9:3"),
    ]
    assert (decode_progress(KAFKA).planned_ms, decode_progress(PULSAR).planned_ms) == (1, 0)
    assert decode_progress(b"v1\n{}\n-\n-").places == [], "sources that have not begun"


@pytest.mark.parametrize("torn", [b"", b"v1", b"v1\n{", b'v1\n{}\n{"in":{"0":', b"\xff\xfe"])
def test_a_torn_offsets_file_is_said_to_be_none(torn: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_progress(torn)


def gap(topic: str, read_until: str, goes_on_from: str) -> SkippedRange:
    return SkippedRange(topic=topic, partition=0, read_until=read_until, goes_on_from=goes_on_from)


@pytest.mark.parametrize(
    ("read_until", "goes_on_from", "at", "over"),
    [
        ("12", "40", "12", False),
        ("12", "40", "39", False),
        ("12", "40", "40", True),
        ("12", "9", "12", False),
        ("12", "9", "9", True),
        ("5:-1", "6:-1", "5:-1", False),
        ("5:-1", "6:-1", "6:-1", True),
        ("5:8", "11:-1", "11:2", True),
        ("9:8", "11:-1", "10:0", False),
    ],
)
def test_a_gap_is_passed_when_reading_goes_on_behind_it(
    read_until: str, goes_on_from: str, at: str, *, over: bool
) -> None:
    gaps = [gap("in", read_until, goes_on_from)]
    assert is_past(gaps, [Place("in", 0, "in", at)]) is over
    assert (
        is_past([*gaps, gap("other", "1", "2")], [Place("in", 0, "in", at), Place("other", 0, "", "1")])
        is False
    )


def test_the_statement_is_the_same_event_whenever_it_is_said_and_fits_its_schema() -> None:
    ranges = [gap("in", "12", "40")]
    events = [json.loads(encode_skipped(ranges, name="trimtab", time_ms=at)) for at in (1_700_000_000_000, 2)]
    assert events[0]["id"] == events[1]["id"]
    assert events[0]["type"] == SKIPPED_TYPE
    (kind,) = [kind for kind in KINDS if kind.type == SKIPPED_TYPE]
    Draft202012Validator(schema_of(kind, events[0])).validate(events[0])
