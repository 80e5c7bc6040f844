"""A recording fed as if it happened now, and the made-up fleet that needs no recording."""

import io
import json
from typing import Any

import pytest

from streaming.contract.encode import Origin
from streaming.controller.feed import CLUSTER, FAST, Fed, sample_events, shift_to
from streaming.controller.recording import BadRecording, Recorded, encode_recorded
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource
from streaming.settings.identity import AcceptedClusters, identity_of
from streaming.settings.load import compose
from tests.streaming.events import at, report

NOW_MS = 1_700_000_000_000


def fed(*lines: bytes, speed: float = 1) -> list[Fed]:
    return list(shift_to(lines, NOW_MS, speed=speed))


def time_of(record: Fed) -> str:
    return str(json.loads(record.value)["time"])


def recorded(value: bytes | None, *, key: bytes | None = b"east-1", is_control: bool = False) -> bytes:
    origin = Origin(topic="in", partition=0, offset=3)
    return encode_recorded(
        Recorded(origin=origin, key=key, value=value, appended_ms=1, is_control=is_control)
    )


def test_events_keep_their_distance_and_everything_but_their_time() -> None:
    first, second = fed(report(time_s=100, recordedtime=at(101)), report("b2", time_s=130.5))
    assert [record.at_ms - NOW_MS for record in (first, second)] == [0, 30_500]
    assert (time_of(first), time_of(second)) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:50.500Z")
    assert (first.key, second.key) == ("east-1", "east-1")
    before = json.loads(report("b2", time_s=130.5))
    assert json.loads(second.value) == before | {"time": time_of(second)}
    assert "recordedtime" not in json.loads(first.value)


def test_faster_brings_their_times_closer_together() -> None:
    found = fed(report(time_s=0), report(time_s=60), report(time_s=120), speed=FAST)
    assert [record.at_ms - NOW_MS for record in found] == [0, 5_000, 10_000]


def test_an_event_that_came_late_keeps_its_older_time_and_is_fed_in_its_place() -> None:
    _, newer, late = fed(report(time_s=0), report(time_s=60), report(time_s=10))
    assert newer.at_ms == late.at_ms == NOW_MS + 60_000
    assert time_of(late) == "2023-11-14T22:13:30.000Z"


def test_of_a_recording_the_input_is_fed_with_its_keys_and_what_is_no_event_as_it_is() -> None:
    found = fed(
        recorded(report(time_s=0)) + b"\n",
        recorded(b"\xffno json", key=b"west"),
        recorded(b"[]", key=None),
        recorded(report(time_s=0), is_control=True),
        recorded(None),
        b"\n",
        recorded(report(time_s=5)),
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
def test_an_event_without_a_time_that_can_be_read_is_fed_as_it_is(time: Any) -> None:
    value = report(time=time)
    assert [record.value for record in fed(value)] == [value]


def test_a_line_that_is_marked_as_recorded_and_is_not_is_refused() -> None:
    with pytest.raises(BadRecording):
        fed(b'{"trimtab_record":1,')


def test_the_made_up_fleet_leads_to_a_decision_in_its_third_round() -> None:
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
    lines = b"".join(record.value + b"\n" for record in shift_to(sample_events(), NOW_MS, speed=FAST))
    replay.play(io.BytesIO(lines), "sample")
    first = json.loads(out.getvalue().partition(b"\n")[0])
    assert (first["cluster"], first["data"]["source_broker"]) == (CLUSTER, "broker-1:8080")
    assert first["time"] == "2023-11-14T22:13:35.000Z", (
        "fifteen seconds after the start: two hits after the warm-up"
    )
