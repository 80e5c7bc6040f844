"""Records on their way to the controller: in source order and bounded memory, each counted once; its memory packed; where it has read to."""

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from deploy.docs.schemas import KINDS, schema_of
from state.closing import Identity
from state.controller import Controller
from state.layouts import VERSION, NewerStateError, unseal
from state.memory import Header, encode_header
from state.store import DictStore
from streaming.contract.encode import SKIPPED_TYPE, Origin, RefusedRecord, SkippedRange, encode_skipped
from streaming.settings import ClusterSettingsSource, Settings
from streaming.spark.decider import in_source_order
from streaming.spark.operator import pack, unpack
from streaming.transport.checkpoint import decode_progress
from streaming.transport.intake import Intake, Record
from streaming.transport.side import Place, is_past
from tests.streaming.events import (
    ACTION_RESULT,
    CLUSTER,
    CONTROL,
    LOAD_REPORT,
    TICK,
    TOPIC_STATS,
    control,
    event,
    report,
    result,
    tick,
)

SETTINGS = ClusterSettingsSource(Settings())


class Desk:
    """An intake with controllers in dicts, and records with rising offsets."""

    def __init__(self) -> None:
        self.controllers: dict[str, Controller] = {}
        self.intake = Intake(self._controller_of, max_record_bytes=1000)
        self._offset = 0

    def _controller_of(self, cluster: str) -> Controller:
        if cluster not in self.controllers:
            self.controllers[cluster] = Controller(
                cluster, DictStore(), identity=Identity(), settings=SETTINGS
            )
        return self.controllers[cluster]

    def take(
        self,
        value: bytes | None,
        *,
        topic: str = "input",
        key: str | None = CLUSTER,
        partition: int = 0,
        appended_s: float | None = None,
        oversize: tuple[int, str] | None = None,
    ) -> RefusedRecord | None:
        self._offset += 1
        record = Record(
            value=value,
            origin=Origin(topic=topic, partition=partition, offset=self._offset),
            key=key,
            appended_ms=None if appended_s is None else round(appended_s * 1000),
            is_control=topic == "control",
            oversize=oversize,
        )
        return self.intake.take(record)[1]


def reason(found: RefusedRecord | None) -> str:
    return found.rejection.reason


def test_every_record_is_counted_once_by_cluster_type_and_end():
    desk = Desk()
    records = [
        report(time_s=5),
        report(time_s=6),
        report(time_s=6),
        tick(time_s=10),
        event(TOPIC_STATS, time_s=10, data={}),
        result("x", "failed", time_s=20),
        b"nonsense",
        report(subject=""),
        event(TICK, time_s=10, data={"asked": 1}),
        tick(time_s=70),
        report(time_s=7),
    ]
    for value in records:
        desk.take(value)
    desk.take(control(time_s=10, data={}), topic="control")
    desk.take(control(time_s=10, data={}), topic="control")
    desk.take(control(time_s=11, data={"settings": {"nonsense": 1}}), topic="control")
    assert desk.intake.tally.results == Counter(
        {
            (CLUSTER, LOAD_REPORT, "superseded"): 2,
            (CLUSTER, LOAD_REPORT, "used"): 1,
            (CLUSTER, LOAD_REPORT, "late"): 1,
            (CLUSTER, TICK, "used"): 2,
            (CLUSTER, TOPIC_STATS, "used"): 1,
            (CLUSTER, ACTION_RESULT, "used"): 1,
            (CLUSTER, CONTROL, "used"): 1,
            (CLUSTER, CONTROL, "superseded"): 1,
            (CLUSTER, CONTROL, "rejected"): 1,
            (CLUSTER, LOAD_REPORT, "rejected"): 1,
            (CLUSTER, TICK, "rejected"): 1,
            ("", "unknown", "rejected"): 1,
        }
    )
    assert desk.intake.tally.count_of("rejected") == 4
    assert desk.intake.tally.reasons == {"not-json": 1, "no-subject": 1, "bad-data": 1, "bad-settings": 1}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (report(specversion="2.0"), LOAD_REPORT),
        (report(cluster="west-1"), LOAD_REPORT),
        (event("com.example.x", time_s=5, data={}), "unknown"),
        (control(time_s=5, data={}), CONTROL),
        (tick(time_s=-5), TICK),
        (b"[]", "unknown"),
        (None, "unknown"),
    ],
    ids=[
        "no CloudEvent",
        "of another cluster",
        "of another type",
        "elsewhere",
        "of no time",
        "a list",
        "nothing",
    ],
)
def test_a_rejected_record_is_counted_under_its_type_where_that_is_known(value: bytes | None, kind: str):
    desk = Desk()
    assert desk.take(value) is not None
    assert [(name, end) for _, name, end in desk.intake.tally.results] == [(kind, "rejected")]


def test_an_event_on_the_other_topic_is_refused_and_decides_nothing():
    desk = Desk()
    assert reason(desk.take(control(time_s=5, data={"paused": True}))) == "wrong-topic"
    refused = desk.take(report(time_s=5), topic="control")
    assert reason(refused) == "wrong-topic"
    assert refused.rejection.detail == f"{LOAD_REPORT} belongs on the input topic, it came on control"
    assert not desk.controllers


def test_the_controllers_own_refusals_come_back_too():
    desk = Desk()
    assert desk.take(report(time_s=5), partition=0) is None
    assert reason(desk.take(report(time_s=6), partition=1)) == "wrong-partition"
    assert reason(desk.take(report(time_s=20), appended_s=9)) == "ahead-of-log"
    assert desk.take(report(time_s=19), appended_s=9) is None
    unchangeable = {"settings": {"pulsar": {"rounds": {"length_s": 1}}}}
    assert reason(desk.take(control(time_s=6, data=unchangeable), topic="control")) == "not-changeable"


def test_the_partition_of_a_control_event_is_not_the_clusters():
    desk = Desk()
    assert desk.take(report(time_s=5), partition=2) is None
    assert desk.take(control(time_s=6, data={}), topic="control", partition=0) is None
    assert desk.take(report(time_s=7), partition=2) is None


def test_a_record_that_is_too_large_is_refused_with_its_true_size():
    refused = Desk().take(b"its first bytes", oversize=(5000, "ab" * 32))
    assert reason(refused) == "too-large"
    assert (refused.size_bytes, refused.sha256, refused.head) == (5000, "ab" * 32, b"its first bytes")
    assert "5000 bytes, at most 1000 are taken" in refused.rejection.detail
    assert refused.cluster == ""


def test_a_tombstone_and_a_missing_key_are_refused_without_a_cluster():
    desk = Desk()
    tombstone, keyless = desk.take(None), desk.take(report(time_s=5), key="")
    assert (reason(tombstone), reason(keyless)) == ("not-json", "cluster-mismatch")
    assert tombstone.size_bytes == 0
    assert not desk.controllers


def test_results_of_actions_are_counted_by_outcome_and_repeats_are_not():
    desk = Desk()
    for id_ in ("r-1", "r-1", "r-2"):
        desk.take(result("x", "failed", time_s=20, id=id_))
    desk.take(result("y", "succeeded", time_s=20, id="r-3"))
    assert desk.intake.tally.action_results == {"failed": 2, "succeeded": 1}


MIB = 1024 * 1024


def record(offset: int, value: bytes | None, key: str = "east-1") -> Record:
    return Record(
        value=value, origin=Origin("input", 0, offset), key=key, appended_ms=offset, is_control=False
    )


def chunks(whole: Record, size: int) -> list[tuple[Record, int]]:
    value = whole.value or b""
    if len(value) <= size:
        return [(whole, 0)]
    starts = range(0, len(value), size)
    return [
        (replace(whole, value=value[start : start + size]), number) for number, start in enumerate(starts)
    ]


@given(
    values=st.lists(st.none() | st.binary(max_size=40), max_size=30),
    in_memory_bytes=st.integers(min_value=0, max_value=200),
    chunk_bytes=st.integers(min_value=1, max_value=50),
    shuffled=st.randoms(use_true_random=False),
)
def test_the_order_and_every_field_are_the_same_whatever_waits_in_the_file(
    values: list[bytes | None], in_memory_bytes: int, chunk_bytes: int, shuffled: object
):
    wanted = [record(offset, value) for offset, value in enumerate(values)]
    parts = [part for each in wanted for part in chunks(each, chunk_bytes)]
    shuffled.shuffle(parts)
    assert list(in_source_order(parts, in_memory_bytes=in_memory_bytes)) == wanted


def test_control_comes_first_whatever_its_topic_is_called():
    load = record(0, b"load")
    control = replace(load, origin=Origin("z-control", 3, 9), is_control=True)
    assert list(in_source_order([(load, 0), (control, 0)])) == [control, load]


def test_two_hundred_records_of_a_mebibyte_take_the_memory_of_a_few():
    def many() -> Iterator[tuple[Record, int]]:
        for offset in reversed(range(200)):
            yield record(offset, offset.to_bytes(4, "big") * (MIB // 4)), 0

    tracemalloc.start()
    try:
        found = [
            int.from_bytes(each.value[:4], "big")
            for each in in_source_order(many(), in_memory_bytes=4 * MIB)
            if each.value is not None and len(each.value) == MIB
        ]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == list(range(200))
    assert peak_bytes < 12 * MIB


def test_a_chunk_in_the_file_leaves_tens_of_bytes_in_memory():
    def many() -> Iterator[tuple[Record, int]]:
        for offset in range(100):
            yield from chunks(record(offset, b"x" * 2_000, key="".join(["east", str(offset)])), 10)

    tracemalloc.start()
    try:
        found = in_source_order(many(), in_memory_bytes=0)
        assert next(found).value == b"x" * 2_000
        left_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left_bytes < 60 * 100 * 200


def test_an_ordinary_batch_never_touches_the_disk(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    few = [(record(offset, b"x" * 4_000), 0) for offset in range(2_000)]
    assert len(list(in_source_order(few))) == 2_000


def test_the_file_lies_where_spark_keeps_its_own_and_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    assert [each.value for each in in_source_order([(record(0, b"abc"), 0)], in_memory_bytes=1)] == [b"abc"]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    with pytest.raises(FileNotFoundError):
        list(in_source_order([(record(0, b"abc"), 0)], in_memory_bytes=1))


LONG = bytes([VERSION]) + b"tenant/namespace/0x00000000_0x10000000\n" * 100


@given(value=st.binary(max_size=2000).map(lambda rest: bytes([VERSION]) + rest))
def test_what_is_packed_is_read_as_it_was(value: bytes):
    assert unpack(pack(value)) == value
    assert unpack(bytearray(pack(value))) == value


@pytest.mark.parametrize("value", [LONG, encode_header(Header(length_ms=60_000))])
def test_what_was_stored_plain_is_read(value: bytes):
    assert unpack(value) == value


def test_names_take_a_fraction_of_their_bytes():
    assert len(pack(LONG)) < len(LONG) / 10


def test_a_trimtab_that_knows_no_packed_values_says_that_a_newer_one_wrote_them():
    with pytest.raises(NewerStateError, match="written by a newer trimtab"):
        unseal("header", pack(LONG))


KAFKA = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{"in":{"1":7,"0":12}}\n{"control":{"0":0}}'
PULSAR = b'v1\n{"batchWatermarkMs":0}\n{"persistent://t/n/in-partition-3": "5:-1"}\n{"persistent://t/n/control": "9:3"}'


def test_offsets_are_read_as_spark_writes_them():
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
    assert decode_progress(b"v1\n{}\n-\n-").places == decode_progress(None).places == [], "nothing has begun"


@pytest.mark.parametrize("torn", [b"", b"v1", b"v1\n{", b'v1\n{}\n{"in":{"0":', b"\xff\xfe"])
def test_a_torn_offsets_file_is_said_to_be_none(torn: bytes):
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
def test_a_gap_is_passed_when_reading_is_behind_it(
    read_until: str, goes_on_from: str, at: str, *, over: bool
):
    gaps = [gap("in", read_until, goes_on_from)]
    assert is_past(gaps, [Place("in", 0, "in", at)]) is over
    assert (
        is_past([*gaps, gap("other", "1", "2")], [Place("in", 0, "in", at), Place("other", 0, "", "1")])
        is False
    )


def test_the_statement_is_the_same_event_whenever_it_is_said_and_fits_its_schema():
    ranges = [gap("in", "12", "40")]
    events = [json.loads(encode_skipped(ranges, name="trimtab", time_ms=at)) for at in (1_700_000_000_000, 2)]
    assert events[0]["id"] == events[1]["id"]
    assert events[0]["type"] == SKIPPED_TYPE
    (kind,) = [kind for kind in KINDS if kind.type == SKIPPED_TYPE]
    Draft202012Validator(schema_of(kind, events[0])).validate(events[0])
