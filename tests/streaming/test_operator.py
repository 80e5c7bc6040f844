"""The stateful operator without a JVM: what it yields, what it remembers, what it refuses."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from state.closing import Identity
from state.controller import RoundLengthError
from state.layouts import VERSION, NewerStateError
from streaming.settings import ClusterSettingsSource, Settings, load
from streaming.settings.identity import AcceptedClusters
from streaming.spark.operator import ClusterProcessor
from streaming.spark.rows import ACTION, DRY_RUN_ACTION, OBSERVED, REJECTED, ROUND, OutputRow
from streaming.transport.intake import decode_observation
from tests.streaming.events import control
from tests.support.loads import START_S, closing, leaning, played
from tests.support.stage import QUICK

INPUT, CONTROL = "in", "control"


@pytest.fixture
def tester(tmp_path: Path) -> TwsTester:
    return built(tmp_path, mode="act")


def built(directory: Path, *, mode: str) -> TwsTester:
    file = directory / "trimtab.toml"
    file.write_text(QUICK)
    settings = load(file=file, flags={"controller.mode": mode}, environ={}).settings
    processor = ClusterProcessor(
        name="unit",
        identity=Identity(mode=settings.controller.mode, action_ttl_s=settings.controller.action_ttl_s),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
    )
    return TwsTester(processor)


def rows(
    values: Sequence[bytes], *, first_offset: int = 0, key: str = "east-1", topic: str = INPUT
) -> list[Row]:
    return [
        Row(
            cluster=key,
            key=key,
            chunk=0,
            value=value,
            oversize_bytes=None,
            sha256=None,
            topic=topic,
            partition=0,
            offset=first_offset + place,
            appended_ms=1_900_000_000_000,
            is_control=topic == CONTROL,
        )
        for place, value in enumerate(values)
    ]


def values_of(found: list[Row], kind: str) -> list[bytes]:
    return [bytes(row.value) for row in found if row.kind == kind]


def published(found: list[Row]) -> list[Row]:
    return [row for row in found if row.kind != OBSERVED]


def test_rounds_that_close_in_a_batch_yield_their_actions_and_then_their_summary(tester: TwsTester):
    found = tester.test("east-1", rows(played(range(3))))
    assert [row.kind for row in published(found)] == [ROUND, ROUND, ACTION, ROUND]
    assert {tuple(row.__fields__) for row in found} == {OutputRow._fields}
    numbers = [row.round for row in published(found)]
    assert numbers == sorted(numbers)
    last = [row.place for row in published(found) if row.round == numbers[-1]]
    assert last == sorted(set(last)), "the place in the round tells its outputs apart"
    assert json.loads(values_of(found, ACTION)[0])["source"] == "/trimtab/unit"


def test_in_dry_run_actions_are_of_a_kind_of_their_own(tmp_path: Path):
    found = built(tmp_path, mode="dry-run").test("east-1", rows(played(range(3))))
    assert values_of(found, ACTION) == []
    assert len(values_of(found, DRY_RUN_ACTION)) == 1


def test_hits_and_open_rounds_survive_however_the_records_are_cut(tester: TwsTester, tmp_path: Path):
    records = rows(played(range(6)))
    whole = tester.test("east-1", records)
    for size in (1, 2, 5):
        cut = built(tmp_path, mode="act")
        pieces = [
            row
            for begin in range(0, len(records), size)
            for row in cut.test("east-1", records[begin : begin + size])
        ]
        assert published(pieces) == published(whole)
        assert len(values_of(pieces, ACTION)) == 2


def test_rows_are_taken_in_the_order_of_their_source_with_control_first(tester: TwsTester, tmp_path: Path):
    pause = control(time_s=1_699_999_900, data={"paused": True, "who": "ops", "why": "test"})
    reports, controls = rows(played(range(4))), rows([pause], topic=CONTROL)
    found = tester.test("east-1", [*reversed(reports), *controls])
    assert published(found) == published(built(tmp_path, mode="act").test("east-1", [*controls, *reports]))
    assert values_of(found, ACTION) == []
    assert all(json.loads(value)["data"]["paused"] for value in values_of(found, ROUND))


def test_clusters_do_not_share_memory(tester: TwsTester):
    for cluster in ("east-1", "west-1"):
        found = tester.test(cluster, rows(played(range(2), cluster=cluster), key=cluster))
        assert values_of(found, ACTION) == []
    found = tester.test("east-1", rows(played([2]), first_offset=6))
    assert len(values_of(found, ACTION)) == 1


def test_a_refused_record_carries_its_coordinates_and_what_is_seen_is_counted(tester: TwsTester):
    events = [*leaning(0), b"junk", closing(0)]
    found = tester.test("east-1", rows(events, first_offset=40))
    refused = [row for row in found if row.kind == REJECTED]
    assert [(row.topic, row.partition, row.offset) for row in refused] == [(INPUT, 0, 42)]
    events_seen = [decode_observation(value) for value in values_of(found, OBSERVED)]
    assert [one.rejected for one in events_seen] == [{"not-json": 1}]
    assert sum(count.count for one in events_seen for count in one.counts) == len(events)


def test_memory_of_a_newer_version_or_another_round_length_is_refused(tester: TwsTester, tmp_path: Path):
    tester.test("east-1", rows(played(range(1))))
    header = bytes(tester.peekValueState("header", "east-1")[0])
    tester.updateValueState("header", "east-1", (bytes([VERSION + 1]) + header[1:],))
    with pytest.raises(NewerStateError, match=f"version {VERSION + 1}"):
        tester.test("east-1", rows(played([1]), first_offset=3))

    (tmp_path / "trimtab.toml").write_text(QUICK.replace("length_s = 10", "length_s = 20"))
    settings = load(file=tmp_path / "trimtab.toml", flags={}, environ={}).settings
    other = TwsTester(
        ClusterProcessor(
            name="unit",
            identity=Identity(),
            settings=ClusterSettingsSource(settings),
            max_record_bytes=settings.controller.max_record_bytes,
        )
    )
    other.updateValueState("header", "east-1", (header,))
    with pytest.raises(RoundLengthError, match="length_s"):
        other.test("east-1", rows(played([1])))


def test_a_cluster_that_is_forgotten_leaves_nothing_in_sparks_state(tester: TwsTester):
    tester.test("east-1", rows(played(range(2))))
    assert tester.peekValueState("header", "east-1") is not None
    asked = control(time_s=START_S + 10_000, data={"forget": True, "who": "ann", "why": "dismantled"})
    found = tester.test("east-1", rows([asked], topic=CONTROL))
    (seen,) = (decode_observation(value) for value in values_of(found, OBSERVED))
    assert (seen.cluster, seen.forgotten) == ("east-1", True)
    assert tester.peekValueState("header", "east-1") is None
    assert tester.peekValueState("fleet", "east-1") is None
    assert tester.peekMapState("waiting", "east-1") in (None, {})


def test_a_cluster_that_is_not_accepted_is_refused_and_leaves_nothing_in_sparks_state():
    tester = TwsTester(
        ClusterProcessor(
            name="unit",
            identity=Identity(),
            settings=ClusterSettingsSource(Settings()),
            max_record_bytes=2**20,
            accepted=AcceptedClusters(("west-*",)),
        )
    )
    found = tester.test("east-1", rows(played(range(1))))
    refused = [json.loads(value) for value in values_of(found, REJECTED)]
    assert {each["data"]["reason"] for each in refused} == {"unknown-cluster"}
    assert "no entry of controller.accepted_clusters (west-*)" in refused[0]["data"]["detail"]
    assert tester.peekValueState("header", "east-1") is None
