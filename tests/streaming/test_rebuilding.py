"""What a rebuild needs of the past, what counts as published, and what it refuses."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from state.engine.closing import Identity
from state.engine.published import Published
from state.outputs import Output
from streaming.cli import main
from streaming.contract.origin import Origin
from streaming.controller import rebuilding
from streaming.controller.rebuilding import Rebuilding, require_possible
from streaming.controller.replay import Controllers
from streaming.intake.records import Record
from streaming.ports.actions import Epochs
from streaming.ports.reading import TopicRecord
from streaming.process.closing import Closing
from streaming.process.exits import Refused, WrongUse
from streaming.settings import ClusterSettingsSource, Settings, load
from streaming.settings.memory_span import memory_span_s
from streaming.settings.reader import compose
from streaming.spark.packing import unpack
from tests.live.loads import RECORDED_CLUSTER, RECORDINGS, played, recording
from tests.streaming.test_operator import built, published, rows


@pytest.mark.parametrize(
    ("tree", "wanted_s"),
    [
        pytest.param({}, 7200 + 180 + 10 + 180, id="the rest after an action without effect is the longest"),
        pytest.param({"pulsar": {"guards": {"bundle_cooldown_s": 9000.0}}}, 9000 + 370, id="a cooldown"),
        pytest.param(
            {"pulsar": {"split": {"enabled": True, "bundle_cooldown_s": 9000.0}}}, 9370, id="split cooldown"
        ),
        pytest.param({"pulsar": {"split": {"bundle_cooldown_s": 9000.0}}}, 7570, id="split cooldown, but splits are off"),
        pytest.param({"pulsar": {"rounds": {"warmup_rounds": 200}}}, 211 * 60 + 370, id="a warm-up"),
        pytest.param({"pulsar": {"bundle_average_samples": 200}}, 202 * 60 + 370, id="an average"),
        pytest.param({"pulsar": {"avg_shedder": {"low_hit_count": 200}}}, 202 * 60 + 370, id="hit counts"),
        pytest.param(
            {"pulsar": {"shedding_policy": "threshold-shedder", "threshold_shedder": {"history_ratio": 0.97}}},
            (152 + 2) * 60 + 370,
            id="a history that fades",
        ),
        pytest.param({"pulsar": {"shedding_policy": "fleet-planner"}}, (152 + 2) * 60 + 370, id="learned costs that fade"),
        pytest.param(
            {"pulsar": {"shedding_policy": "transfer-shedder", "transfer_shedder": {"hit_count": 200}}},
            202 * 60 + 370,
            id="hits of the whole fleet",
        ),
        pytest.param({"controller": {"proposal_ttl_s": 9000.0}}, 9000, id="a proposal"),
        pytest.param(
            {"clusters": {"east": {"pulsar": {"guards": {"bundle_cooldown_s": 9000.0}}}}}, 9370, id="a cluster's"
        ),
        pytest.param({"kafka": {"throttle": {"min_change_interval_s": 9000.0}}}, 9000 + 180 + 180 + 5, id="Kafka's"),
    ],
)  # fmt: skip
def test_a_rebuild_reads_as_far_back_as_anything_is_remembered(
    tree: dict[str, object], wanted_s: float
) -> None:
    assert memory_span_s(compose(tree)) == wanted_s


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    found = dict.fromkeys(("trimtab.input", "trimtab.actions", "trimtab.audit"), math.inf)
    monkeypatch.setattr(rebuilding, "input_kept_s", lambda *_: found)
    monkeypatch.setattr(rebuilding, "output_kept_s", lambda *_: found)
    monkeypatch.setattr(rebuilding, "_require_readable", lambda _: None)
    return found


def test_a_topic_that_keeps_less_is_refused_with_both_figures(kept: dict[str, float]) -> None:
    require_possible(Settings(), None)
    kept["trimtab.actions"] = 3600.0
    with pytest.raises(
        Refused, match=r"reads 7570 s back \(controller.rebuild_s\).*trimtab.actions.*for only 3600 s"
    ):
        require_possible(Settings(), None)


def test_a_rebuild_that_is_too_short_is_refused_with_both_figures(kept: dict[str, float]) -> None:
    with pytest.raises(Refused, match=r"controller.rebuild_s is 3600 s.*reach 7570 s back"):
        require_possible(compose({"controller": {"rebuild_s": 3600.0}}), None)
    kept["trimtab.input"] = 7600.0
    require_possible(compose({"controller": {"rebuild_s": 7600.0}}), None)
    with pytest.raises(Refused, match=r"reads 7601 s back.*trimtab.input.*for only 7600 s"):
        require_possible(compose({"controller": {"rebuild_s": 7601.0}}), None)


def record(
    type_: str,
    epoch: int | None,
    *,
    source: str = "/trimtab/trimtab",
    id_: str = "a",
    trigger: str = "first-throttle",
    appended_ms: int = 0,
) -> TopicRecord:
    event = {
        "specversion": "1.0",
        "id": id_,
        "source": source,
        "type": type_,
        "cluster": "east-1",
        "time": "2026-11-21T13:21:25.206Z",
        "data": {"round": 7, "trigger": trigger},
    }
    headers = [] if epoch is None else [("trimtab-epoch", str(epoch).encode())]
    return TopicRecord(
        key=b"east-1",
        value=json.dumps(event).encode(),
        timestamp=appended_ms,
        partition=0,
        offset=0,
        headers=headers,
    )


def test_what_consumers_would_not_obey_was_not_published() -> None:
    epochs, unload = Epochs(), "trimtab.action.unload.v1"
    log = [
        record(unload, 3, id_="first"),
        record(unload, 9, source="/trimtab/another"),
        record(unload, None),
        record("trimtab.leader.v1", 5),
        record(unload, 3, id_="of the one before"),
        record(unload, 5, id_="last"),
    ]
    found = [rebuilding._event(each, "/trimtab/trimtab", epochs, {unload}) for each in log]
    actions = [each for each in found if each is not None]
    assert [each.id for each in actions] == ["first", "last"]
    assert {each.time_ms for each in actions} == {1_795_267_285_206}
    assert {each.data for each in actions} == {b'{"round": 7, "trigger": "first-throttle"}'}


class Log(Closing):
    """A topic that holds these records."""

    def __init__(self, *records: TopicRecord) -> None:
        self._records = records

    def read_to_end(self) -> Iterator[TopicRecord]:
        yield from self._records

    def close(self) -> None:
        pass


def test_of_actions_from_before_what_is_read_again_only_throttles_in_force_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    since_ms, unload, throttle = 10_000_000, "trimtab.action.unload.v1", "trimtab.action.throttle.v1"
    log = Log(
        record(unload, 3, id_="long ago"),
        record(throttle, 3, id_="of a move that is over"),
        record(throttle, 3, id_="its end", trigger="finished"),
        record(throttle, 3, id_="in force"),
        record(throttle, 3, id_="and raised", trigger="minimum-rose"),
        record(unload, 3, id_="within it", appended_ms=since_ms),
        record(throttle, 3, id_="taken off", trigger="finished", appended_ms=since_ms),
    )
    dry_run = Log(record(throttle, 3, id_="the end of a dry-run's", trigger="finished"))
    logs = {"trimtab.actions": log, "trimtab.actions.dry-run": dry_run}
    monkeypatch.setattr(rebuilding, "output_reader", lambda _, topic, **_begin: logs[topic])
    found = Rebuilding(settings=Settings(), go_on=lambda _: True)._find_published(since_ms)
    ids = [each.id for each in found["east-1"].take_left()]
    assert ids == ["in force", "and raised", "within it", "taken off"]


def test_the_operator_begins_with_memory_that_was_rebuilt(tmp_path: Path) -> None:
    before, wanted = built(tmp_path, mode="act"), built(tmp_path, mode="act")
    records = rows(played(range(4)))
    before.test("east-1", records[:7])
    header, fleet = (unpack(before.peekValueState(name, "east-1")[0]) for name in ("header", "fleet"))
    waiting = [
        {"round": key[0], "number": key[1], "value": unpack(value[0])}  # as Spark does
        for key, value in before.peekMapState("waiting", "east-1").items()
    ]
    assert waiting
    state = Row(cluster="east-1", header=header, fleet=fleet, waiting=waiting)
    after = TwsTester(before.processor, initialStateRow=[("east-1", state)])
    wanted.test("east-1", records[:7])
    found = published(after.test("east-1", records[7:]))
    assert found == published(wanted.test("east-1", records[7:]))
    assert len(found) > 2


def played_by(controllers: Controllers, records: list[Record]) -> list[Output]:
    return [output for record in records for output in controllers.intake.take(record)[0]]


def test_wherever_a_recording_is_cut_what_is_decided_after_a_rebuild_is_what_was_decided() -> None:
    settings = load(file=RECORDINGS / "pulsar-3-brokers.toml", flags={}, environ={}).settings
    source, identity = ClusterSettingsSource(settings), Identity(mode="act")
    most = settings.controller.max_record_bytes
    records = [
        Record(value=value, origin=Origin(topic="t", partition=0, offset=place))
        for place, value in enumerate(recording())
    ]
    uninterrupted = Controllers(identity=identity, settings=source, max_record_bytes=most)
    whole = [played_by(uninterrupted, [record]) for record in records]
    for cut in range(0, len(records), len(records) // 7):
        before, after = (
            [output for outputs in part for output in outputs] for part in (whole[:cut], whole[cut:])
        )
        actions = [each for each in before if each.kind == "action"]
        rebuilt = Controllers(
            identity=identity,
            settings=source,
            max_record_bytes=most,
            published={RECORDED_CLUSTER: Published(actions)},
        )
        played_by(rebuilt, records[:cut])
        rebuilt.of(RECORDED_CLUSTER).end_rebuild(0, ())
        found = played_by(rebuilt, records[cut:])
        assert [each.data for each in found if each.kind == "action"] == [
            each.data for each in after if each.kind == "action"
        ]
        assert len(found) == len(after)


@pytest.mark.parametrize("other", ["--fresh", "--adopt", "--skip-lost"])
def test_a_rebuild_goes_with_nothing_else_that_a_person_decides(other: str) -> None:
    done = CliRunner().invoke(main, ["run", "--rebuild", other])
    assert done.exit_code == WrongUse.exit_code
    assert "--rebuild excludes --fresh, --adopt and --skip-lost" in done.output
