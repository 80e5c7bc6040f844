"""From records to outputs: every record is counted once, under its cluster, type and result."""

from collections import Counter

from state.closing import Identity
from state.controller import Controller
from state.store import DictStore
from streaming.contract.encode import Origin, Refused
from streaming.settings import ClusterSettingsSource, Settings
from streaming.transport.intake import Intake, Record
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
    ) -> Refused | None:
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


def reason(found: Refused | None) -> str:
    assert found is not None
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
            (CLUSTER, "unknown", "rejected"): 1,
            ("", "unknown", "rejected"): 1,
        }
    )
    assert desk.intake.tally.of("rejected") == 3
    assert desk.intake.tally.reasons == {"not-json": 1, "no-subject": 1, "bad-settings": 1}


def test_an_event_on_the_other_topic_is_refused_and_decides_nothing():
    desk = Desk()
    assert reason(desk.take(control(time_s=5, data={"paused": True}))) == "wrong-topic"
    refused = desk.take(report(time_s=5), topic="control")
    assert reason(refused) == "wrong-topic"
    assert refused is not None
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
    assert refused is not None
    assert (refused.size_bytes, refused.sha256, refused.head) == (5000, "ab" * 32, b"its first bytes")
    assert "5000 bytes, at most 1000 are taken" in refused.rejection.detail
    assert refused.cluster == ""


def test_a_tombstone_and_a_missing_key_are_refused_without_a_cluster():
    desk = Desk()
    tombstone, keyless = desk.take(None), desk.take(report(time_s=5), key="")
    assert (reason(tombstone), reason(keyless)) == ("not-json", "cluster-mismatch")
    assert tombstone is not None
    assert tombstone.size_bytes == 0
    assert not desk.controllers


def test_results_of_actions_are_counted_by_outcome_and_repeats_are_not() -> None:
    desk = Desk()
    for id_ in ("r-1", "r-1", "r-2"):
        desk.take(result("x", "failed", time_s=20, id=id_))
    desk.take(result("y", "succeeded", time_s=20, id="r-3"))
    assert desk.intake.tally.action_results == {"failed": 2, "succeeded": 1}
