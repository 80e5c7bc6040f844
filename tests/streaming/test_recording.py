"""What ``trimtab record`` writes is what was in the log, byte for byte; ``replay`` takes it as the live source does, ``feed`` as if it happened now."""

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.errors import KafkaTimeoutError

from streaming.cli import main
from streaming.contract.encode import Origin
from streaming.controller.feed import CLUSTER as FLEET
from streaming.controller.feed import FAST, Fed, sample_events, shift_to
from streaming.controller.recorder import Recorder
from streaming.controller.recording import (
    PREFIX,
    BadRecording,
    Recorded,
    decode_recorded,
    encode_recorded,
    opened_for_recording,
)
from streaming.controller.replay import Replay
from streaming.kafka import side as kafka_side
from streaming.kafka.client import ClusterError
from streaming.process.exits import REFUSED, UNREACHABLE, WRONG_USE
from streaming.settings import ClusterSettingsSource, load
from streaming.settings.identity import AcceptedClusters, identity_of
from streaming.settings.load import compose
from streaming.transport.side import TopicRecord
from tests.streaming import records
from tests.streaming.events import at, control, pair, report, tick
from tests.streaming.records import on_topic

INPUT, CONTROL = "trimtab.input", "trimtab.control"
SETTINGS = "[pulsar.rounds]\nwarmup_rounds = 0\n[pulsar.avg_shedder]\nhigh_hit_count = 1\n"
HOUR_MS = 3_600_000


recorded = partial(records.recorded, at_ms=HOUR_MS)


def replayed(tmp_path: Path, records: list[Recorded], *arguments: str, code: int = 0) -> list[bytes]:
    config, file = tmp_path / "trimtab.toml", tmp_path / "recording.ndjson"
    config.write_text(SETTINGS)
    file.write_bytes(b"".join(encode_recorded(record) + b"\n" for record in records))
    done = CliRunner().invoke(main, ["replay", "--config", str(config), *arguments, str(file)])
    assert done.exit_code == code, done.stderr
    return done.stdout_bytes.splitlines()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.dictionaries(st.text(), inner)
)
"""Values with NaN and infinity, which Python writes although JSON does not have them."""
VALUES = (
    st.none()
    | st.binary()
    | st.binary().map(lambda data: b"{" + data + b"}")
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps({"a": value}, indent=1).encode())
)


@given(
    key=st.none() | st.binary(),
    value=VALUES,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    appended_ms=st.integers(-1, 2**63 - 1),
    is_control=st.booleans(),
    topic=st.text(),
)
@example(None, b'{"a":1},"value_base64":{"b":2}', 0, 0, 0, False, "t")
@example(None, b'{"a":1},"value_base64":"e30=","x":{}', 0, 0, 0, False, "t")
@example(b"", b'{"a":' * 20_000 + b"1" + b"}" * 20_000, 0, 0, 0, False, "t")
def test_whatever_its_bytes_are_a_record_comes_back_as_it_was_from_a_line_of_its_own(
    key: bytes | None,
    value: bytes | None,
    partition: int,
    offset: int,
    appended_ms: int,
    is_control: bool,  # noqa: FBT001
    topic: str,
):
    record = Recorded(
        origin=Origin(topic=topic, partition=partition, offset=offset),
        key=key,
        value=value,
        appended_ms=appended_ms,
        is_control=is_control,
    )
    line = encode_recorded(record)
    assert decode_recorded(line) == record
    assert line.startswith(PREFIX)
    assert b"\n" not in line
    assert json.loads(line)["offset"] == offset


def test_an_event_stands_in_its_line_as_it_is():
    event = tick(time_s=5)
    assert event in encode_recorded(recorded(event))


def test_a_recorded_run_is_decided_as_its_bare_events_are(tmp_path: Path):
    events = [*pair(10), *pair(70), *pair(130)]
    bare = tmp_path / "bare.ndjson"
    bare.write_bytes(b"\n".join(events) + b"\n")
    found = replayed(tmp_path, [recorded(value, offset=at) for at, value in enumerate(events)])
    config = str(tmp_path / "trimtab.toml")
    assert (
        found == CliRunner().invoke(main, ["replay", "--config", config, str(bare)]).stdout_bytes.splitlines()
    )
    assert b"trimtab.action.unload.v1" in b"".join(found)


def test_what_only_coordinates_and_append_times_tell_is_refused_as_it_was_live(tmp_path: Path):
    records = [
        recorded(pair(10)[0], offset=3),
        recorded(pair(10)[1], offset=4, partition=1),
        recorded(pair(10_000)[0], offset=5),
        recorded(control(time_s=10, data={"paused": True}), offset=6),
        recorded(tick(time_s=20), offset=7, is_control=True),
        recorded(b"garbage", offset=8),
        recorded(None, offset=9),
    ]
    letters = [json.loads(line)["data"] for line in replayed(tmp_path, records, "--only", "rejected")]
    assert [(each["reason"], each["topic"], each["partition"], each["offset"]) for each in letters] == [
        ("wrong-partition", INPUT, 1, 4),
        ("ahead-of-log", INPUT, 0, 5),
        ("wrong-topic", INPUT, 0, 6),
        ("wrong-topic", CONTROL, 0, 7),
        ("not-json", INPUT, 0, 8),
        ("not-json", INPUT, 0, 9),
    ]


def test_a_record_above_the_limit_is_refused_with_its_size_and_a_larger_limit_takes_it():
    event = pair(10)[0]
    taken = recorded(event).to_record(len(event))
    assert (taken.value, taken.oversize) == (event, None)
    refused = recorded(event).to_record(len(event) - 1)
    assert refused.oversize[0] == len(event)


def test_a_line_that_was_cut_off_is_named_after_what_came_before_it(tmp_path: Path):
    file = tmp_path / "cut.ndjson"
    file.write_bytes(
        encode_recorded(recorded(b"garbage")) + b"\n" + encode_recorded(recorded(tick(time_s=1)))[:-5]
    )
    done = CliRunner().invoke(main, ["replay", str(file)])
    assert done.exit_code == 2
    assert f"{file}, line 2: not a line of a recording" in done.stderr
    assert b"trimtab.rejected.v1" in done.stdout_bytes


def test_a_recording_of_a_later_version_is_refused():
    line = encode_recorded(recorded(b"{}")).replace(b'"trimtab_record":1', b'"trimtab_record":2')
    with pytest.raises(BadRecording, match="has version 2"):
        decode_recorded(line)


def test_a_recorded_line_with_broken_base64_is_refused_by_name():
    line = PREFIX + '1,"topic":"t","partition":0,"offset":1,"appended_ms":1,"value_base64":"é"}'.encode()
    with pytest.raises(BadRecording, match=r"not a line of a recording: .*ASCII"):
        decode_recorded(line)


def test_a_recording_never_writes_over_a_file(tmp_path: Path):
    file = tmp_path / "there.ndjson"
    file.write_bytes(b"precious")
    done = CliRunner().invoke(main, ["record", "--until-now", str(file)])
    assert done.exit_code == 2
    assert "exists" in done.stderr
    assert file.read_bytes() == b"precious"


def test_a_name_ending_in_gz_is_packed(tmp_path: Path):
    file = tmp_path / "r.ndjson.gz"
    with opened_for_recording(str(file)) as out:
        out.write(encode_recorded(recorded(tick(time_s=1))) + b"\n")
    done = CliRunner().invoke(main, ["replay", str(file)])
    assert "1 record: 1 used" in done.stderr


class Log(closing["Log"]):
    """A partition with these append times."""

    def __init__(self, partition: int, times_ms: list[int], *, partitions_count: int = 1) -> None:
        super().__init__(self)
        self.partition = partition
        self.times_ms = times_ms
        self.partitions_count = partitions_count
        self.read_count = 0

    def read_to_end(self) -> Iterator[TopicRecord]:
        while self.read_count < len(self.times_ms):
            at = self.read_count
            self.read_count += 1
            yield on_topic(b"{}", at_ms=self.times_ms[at], partition=self.partition, offset=at)

    def close(self) -> None:
        pass


def test_partitions_are_merged_by_append_time_with_control_first_and_each_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
):
    topics = {
        INPUT: [Log(0, [10, 40, 30, 50], partitions_count=2), Log(1, [20, 35], partitions_count=2)],
        CONTROL: [Log(0, [40, 60])],
    }
    side = SimpleNamespace(
        full_name=lambda topic: topic, reader=lambda topic, *, partition, **_: topics[topic][partition]
    )
    monkeypatch.setattr("streaming.controller.recorder.input_side", lambda _: side)

    settings = load(file=None, flags={}, environ={}).settings
    with ExitStack() as stack, closing(io.BytesIO()) as out:
        recorder = Recorder(stack, settings, begin="earliest")
        recorder.write(out, is_stopped=lambda: False)
        topics[INPUT][0].times_ms.append(55)
        recorder.write(out, is_stopped=lambda: False)
        found = [decode_recorded(line) for line in out.getvalue().splitlines()]
    assert [(each.is_control, each.origin.partition, each.appended_ms) for each in found] == [
        (False, 0, 10),
        (False, 1, 20),
        (False, 1, 35),
        (True, 0, 40),
        (False, 0, 40),
        (False, 0, 30),
        (False, 0, 50),
        (True, 0, 60),
        (False, 0, 55),
    ]


def test_a_full_disk_is_no_wrong_option_and_what_is_left_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    side = SimpleNamespace(
        full_name=lambda topic: topic,
        reader=lambda _, *, partition, **__: Log(partition, [1], partitions_count=1),
    )
    monkeypatch.setattr("streaming.controller.recorder.input_side", lambda _: side)

    def full(file: str) -> BinaryIO:
        Path(file).write_bytes(b"half a li")
        return Path("/dev/full").open("wb")

    monkeypatch.setattr("streaming.cli.recordings.opened_for_recording", full)
    file = tmp_path / "a.ndjson"
    done = CliRunner().invoke(main, ["record", "--until-now", str(file)])
    assert done.exit_code == REFUSED, done.output
    assert f"{file} cannot be written: No space left on device" in done.stderr
    assert "delete it or give a new file" in done.stderr
    beyond = CliRunner().invoke(main, ["record", "--until-now", str(tmp_path / "no" / "a.ndjson")])
    assert beyond.exit_code == WRONG_USE, "a wrong path is a wrong option"


NOW_MS = 1_700_000_000_000


def fed(*lines: bytes, speed: float = 1) -> list[Fed]:
    return list(shift_to(lines, NOW_MS, speed=speed))


def time_of(record: Fed) -> str:
    return str(json.loads(record.value)["time"])


def recorded_line(value: bytes | None, *, key: bytes | None = b"east-1", is_control: bool = False) -> bytes:
    origin = Origin(topic="in", partition=0, offset=3)
    return encode_recorded(
        Recorded(origin=origin, key=key, value=value, appended_ms=1, is_control=is_control)
    )


def test_events_keep_their_distance_and_everything_but_their_time():
    first, second = fed(report(time_s=100, recordedtime=at(101)), report("b2", time_s=130.5))
    assert [record.at_ms - NOW_MS for record in (first, second)] == [0, 30_500]
    assert (time_of(first), time_of(second)) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:50.500Z")
    assert (first.key, second.key) == ("east-1", "east-1")
    before = json.loads(report("b2", time_s=130.5))
    assert json.loads(second.value) == before | {"time": time_of(second)}
    assert "recordedtime" not in json.loads(first.value)


def test_faster_brings_their_times_closer_together():
    found = fed(report(time_s=0), report(time_s=60), report(time_s=120), speed=FAST)
    assert [record.at_ms - NOW_MS for record in found] == [0, 5_000, 10_000]


def test_an_event_that_came_late_keeps_its_older_time_and_is_fed_in_its_place():
    _, newer, late = fed(report(time_s=0), report(time_s=60), report(time_s=10))
    assert newer.at_ms == late.at_ms == NOW_MS + 60_000
    assert time_of(late) == "2023-11-14T22:13:30.000Z"


def test_of_a_recording_the_input_is_fed_with_its_keys_and_what_is_no_event_as_it_is():
    found = fed(
        recorded_line(report(time_s=0)) + b"\n",
        recorded_line(b"\xffno json", key=b"west"),
        recorded_line(b"[]", key=None),
        recorded_line(report(time_s=0), is_control=True),
        recorded_line(None),
        b"\n",
        recorded_line(report(time_s=5)),
        b"garbage",
    )
    assert [(record.key, record.at_ms - NOW_MS) for record in found] == [
        ("east-1", 0),
        ("west", 0),
        ("", 0),
        ("east-1", 5_000),
        ("", 5_000),
    ]
    assert [found[1].value, found[2].value, found[4].value] == [b"\xffno json", b"[]", b"garbage"]


@pytest.mark.parametrize("time", [3, "yesterday", "", None])
def test_an_event_without_a_time_that_can_be_read_is_fed_as_it_is(time: Any):
    value = report(time=time)
    assert [record.value for record in fed(value)] == [value]


def test_a_line_that_is_marked_as_recorded_and_is_not_is_refused():
    with pytest.raises(BadRecording):
        fed(b'{"trimtab_record":1,')


@pytest.mark.parametrize("text", ['\n[input]\nurl = "kafka://127.0.0.1:1"\n', '\n{"a": 1}\n'])
def test_a_feed_of_a_file_that_begins_with_no_record_says_so_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    file, taking = tmp_path / "trimtab.toml", Taking()
    file.write_text(text)
    monkeypatch.setattr("streaming.systems.event_sink_of", lambda _settings: taking)
    done = CliRunner().invoke(main, ["feed", "--input", "kafka://127.0.0.1:1", str(file)])
    assert done.exit_code == WRONG_USE, done.output
    assert (
        f"{file}: line 2, the first, holds no event: give a file of `trimtab record`, or of events as lines"
        in done.stderr
    )
    assert not taking.values


def test_a_feed_whose_brokers_go_away_ends_with_the_code_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "mine.ndjson"
    file.write_bytes(report(time_s=0))
    late = SimpleNamespace(get=Mock(side_effect=KafkaTimeoutError()))
    producer = SimpleNamespace(partitions_for=lambda _: {0}, send=lambda *_, **__: late)
    monkeypatch.setattr(kafka_side, "open_producer", lambda *_, **__: producer)
    monkeypatch.setattr(kafka_side, "close_producer", lambda *_, **__: None)
    monkeypatch.setattr(kafka_side, "find_missing_topic", Mock(side_effect=ClusterError("away")))
    done = CliRunner().invoke(main, ["feed", "--input", "kafka://127.0.0.1:1", str(file)])
    assert done.exit_code == UNREACHABLE, done.output
    monkeypatch.setattr(kafka_side, "find_missing_topic", lambda *_: "there is no topic in")
    done = CliRunner().invoke(main, ["feed", "--input", "kafka://127.0.0.1:1", str(file)])
    assert done.exit_code == REFUSED, "brokers answer, and have no such topic"


def test_the_made_up_fleet_leads_to_a_decision_in_its_third_round():
    settings = compose({"pulsar": {"rounds": {"length_s": 5.0, "lateness_s": 1.0}}})
    out = io.BytesIO()
    replay = Replay(
        out,
        name="trimtab",
        identity=identity_of(settings),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
        accepted=AcceptedClusters(settings.controller.accepted_clusters),
        only="actions",
    )
    minutes = islice(sample_events(), 100)
    lines = b"".join(record.value + b"\n" for record in shift_to(minutes, NOW_MS, speed=FAST))
    replay.play(io.BytesIO(lines), "sample")
    first = json.loads(out.getvalue().partition(b"\n")[0])
    assert (first["cluster"], first["data"]["source_broker"]) == (FLEET, "broker-1:8080")
    assert first["time"] == "2023-11-14T22:13:35.000Z", (
        "fifteen seconds after the start: two hits after the warm-up"
    )


def test_the_made_up_fleet_reports_for_days():
    late = next(islice(sample_events(), 100_000, None))
    assert json.loads(late)["time"] > "1970-01-05"


class Taking:
    """An input topic that takes events."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, _key: str, value: bytes) -> None:
        self.values.append(value)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_a_feed_of_a_recording_says_that_the_recording_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file, taking = tmp_path / "mine.ndjson", Taking()
    file.write_bytes(report(time_s=0) + b"\n" + report("b2", time_s=0) + b"\n")
    monkeypatch.setattr("streaming.systems.event_sink_of", lambda _settings: taking)
    done = CliRunner().invoke(main, ["feed", "--input", "kafka://127.0.0.1:1", str(file)])
    assert done.exit_code == 0, done.output
    assert done.stderr.endswith("mine.ndjson has ended: 2 records fed\n")
    assert len(taking.values) == 2
