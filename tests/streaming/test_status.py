"""What `trimtab status`, `rounds` and `rejected` show of the records on the topics."""

import base64
from typing import Any, get_args

import msgspec
import pytest

from state.events import RejectReason
from state.outputs import (
    Configured,
    ExaminedRow,
    Finding,
    InFlightRow,
    JudgedRow,
    OtherBalancers,
    RoundSummary,
    Section,
    ShadowSummary,
    UsageSummary,
    canonical,
)
from streaming.cli.cluster_status import ClusterStatus
from streaming.cli.published import (
    Newest,
    Process,
    Rejected,
    Round,
    UnreadableEvent,
    is_round_of,
    newest_leaders,
    newest_processes,
    read_rejected,
    read_round,
)
from streaming.cli.rejected import REMEDIES, place_of, rejected_text, tail_rejected_text
from streaming.cli.status import status_text, status_tree
from streaming.cli.summaries import round_text, tail_round_text
from streaming.contract.encode import REJECTED_TYPE, RejectedData
from streaming.settings import Settings
from streaming.transport.side import TopicRecord
from tests.streaming.records import BEAT, beat_on_topic, on_topic
from tests.streaming.summaries import CONTROL, ROUND, THROTTLE, of_kafka, round_event, section

END_MS = 480_000
UNLOAD = InFlightRow(id="a1", kind="unload", target="t/n/0x0_0x1", expires_at="1970-01-01T00:11:00.000Z")
PAIR = ExaminedRow(
    high_broker="b1",
    low_broker="b2",
    group=None,
    outcome="hit-count",
    detail="hit-count 3/8",
    trigger="low",
    evidence={},
)
HOT = Finding(
    kind="hot-partition", subject="t/n/orders", broker="b1", bytes_per_s=1.0, advice="add partitions"
)


SHADOW = ShadowSummary(
    count=3, usage=UsageSummary(mean_points=50.0, max_points=60.0, stdev_points=1.0), heaviest=[]
)


def rows(*values: Any) -> Section[Any]:
    """A section that shows all it has."""
    return Section(count=len(values), outcomes={"shown": len(values)}, heaviest=list(values))


def running(*, beat_age_s: float = 2.0, **fields: Any) -> dict[str, Process]:
    return {"main": leading(beat_age_s=beat_age_s, **fields)}


def leading(*, beat_age_s: float, **fields: Any) -> Process:
    beat = msgspec.structs.replace(BEAT, **{"batch": 42} | fields)
    return Process(beat=beat, age_s=beat_age_s, ahead_s=0.0)


def status(
    data: RoundSummary = ROUND,
    *,
    after_s: float = 30,
    beats: dict[str, Process] | None = None,
    reports_come: bool | None = False,
    **fields: Any,
) -> ClusterStatus:
    return ClusterStatus(
        event=round_event(data, **fields),
        epoch=7,
        waiting=None,
        leaders=beats,
        reports_come=reports_come,
        now_ms=round(END_MS + 1000 * after_s),
    )


def record(event: Round, *, epoch: int = 1, offset: int = 0) -> TopicRecord:
    return on_topic(canonical(event), key=event.cluster.encode(), offset=offset, epoch=epoch)


def test_it_says_what_the_control_event_sets_beside_what_is_configured():
    """The event puts one setting back to its default, and names two that are configured otherwise."""
    guards = {"bundle_cooldown_s": 7.0, "keep_sole_bundle": False}
    theirs = {"guards": {"bundle_cooldown_s": 9.0, "keep_sole_bundle": False}, "shadow": False}
    over = {"pulsar": {"guards": {"bundle_cooldown_s": 7.0}, "shadow": True, "placement": "x"}}
    configured = Configured(mode="dry-run", approval="none", settings_digest="", settings=theirs)
    fields = {
        "settings": {"guards": guards, "placement": "x"},
        "control": msgspec.structs.replace(CONTROL, settings=over),
    }
    assert (
        "  mode        act by the control event; dry-run is configured\n"
        "  settings    pulsar.guards.bundle_cooldown_s = 7  # by the control event; configured: 9\n"
        "              pulsar.guards.keep_sole_bundle = false\n"
        '              pulsar.placement = "x"  # by the control event; configured: "broker" (the default)\n'
        "              pulsar.shadow = true  # by the control event; configured: false\n"
    ) in status_text(status(**fields, configured=configured))
    assert "configured" not in status_text(status(**fields))


def test_it_says_what_is_in_force_what_happened_and_why_nothing_did():
    settings = {"guards": {"max_unloads_per_round_count": 1000, "excluded_brokers": ["b9"]}}
    found = status(
        beats=running(),
        settings=settings,
        control=CONTROL,
        reason="0 unloads: 5 bundles rest after a move",
        examined=rows(PAIR),
        in_flight=[UNLOAD],
        findings=rows(HOT),
        brokers_missing=["b4"],
        failing_since="1970-01-01T00:03:00.000Z",
    )
    assert status_text(found) == (
        "east-1 (pulsar): acts, round 7 ended 30 s ago\n"
        "  controller  main, epoch 7, runs as a:1, batch 42\n"
        "  control     maria at 1970-01-01T00:05:00Z: the sale\n"
        "  policy      avg-shedder\n"
        '  settings    pulsar.guards.excluded_brokers = ["b9"]\n'
        "              pulsar.guards.max_unloads_per_round_count = 1000\n"
        "  brokers     3 reporting, missing b4, usage mean 60.0, max 80.0 points\n"
        "  round       0 unloads: 5 bundles rest after a move\n"
        "  nearest     b1 with b2: hit-count 3/8\n"
        "  in flight   unload t/n/0x0_0x1 until 1970-01-01T00:11:00Z (a1)\n"
        "  failing     unloads are held since 1970-01-01T00:03:00Z, because too many failed, or trimtab itself did: see `trimtab resume`\n"
        "  findings    hot-partition t/n/orders: add partitions\n"
    )


def others(
    *, shedding: list[str] | None = None, splitting: list[str] | None = None, unknown: list[str] | None = None
) -> OtherBalancers:
    return OtherBalancers(
        shedding_brokers=shedding or [], splitting_brokers=splitting or [], unknown_brokers=unknown or []
    )


def test_once_pulsar_balances_no_more_and_while_nobody_looked_nothing_stands_beside():
    assert "beside" not in status_text(status(other_balancers=others()))
    assert "beside" not in status_text(status(other_balancers=None))


def test_a_broker_paired_with_itself_is_near_nothing():
    middle = msgspec.structs.replace(PAIR, low_broker=PAIR.high_broker)
    assert status(examined=rows(middle, PAIR)).nearest == [PAIR]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"paused": True}, "acts, PAUSED, round 7"),
        (
            {"paused": True, "control": msgspec.structs.replace(CONTROL, until="then")},
            "acts, PAUSED until then, round 7",
        ),
        ({"mode": "dry-run"}, "(pulsar): dry-run, round 7"),
        ({}, "  control     as configured, no control event\n"),
        (
            {"shadow": SHADOW},
            "  shadow      counted where the dry-run moved them: 3 bundles; usage mean 50.0, max 60.0 points\n",
        ),
        ({"brokers_failed": {"b3": "timeout"}}, "3 reporting, b3 failed (timeout)"),
        (
            {"usage": None, "brokers_excluded": ["b1", "b2", "b3"]},
            "3 reporting, b1, b2, b3 excluded from balancing\n",
        ),
        (
            {"other_balancers": others(shedding=["b1", "b2"], unknown=["b3"])},
            (
                "  balancers   Pulsar's own shedding is on at b1, b2\n"
                "              whether Pulsar balances is not known at b3\n"
            ),
        ),
        ({"other_balancers": others(splitting=["b1"])}, "  balancers   Pulsar's own splitting is on at b1\n"),
        ({"brokers_missing": ["b4"], "brokers_missing_count": 3}, "3 reporting, missing b4 and 2 more"),
        (
            {"findings": Section(count=103, outcomes={"hot-partition": 103}, heaviest=[HOT])},
            f"{HOT.advice}\n                and 102 more\n",
        ),
        (
            {"system": "kafka", "failing_since": "then"},
            "  failing     throttle decisions are held since then",
        ),
        (
            {"in_flight": [InFlightRow(id="a1", kind="unload", target="t/n/b", expires_at="then")] * 100},
            "unload t/n/b until then (a1)\n              and perhaps more: a summary names 100\n",
        ),
        ({"splits_failing_since": "then"}, "  failing     splits are held since then"),
        ({"control": msgspec.structs.replace(CONTROL, problem="no such key")}, "not in force: no such key"),
    ],
)
def test_each_of_these_is_said(fields: dict[str, Any], expected: str):
    assert expected in status_text(status(**fields))


@pytest.mark.parametrize(
    ("after_s", "age", "is_late"),
    [
        (0, "0 s ago", False),
        (180, "3 min ago", False),
        (180.1, "3 min ago", True),
        (7_199, "120 min ago", True),
        (7_260, "2 h 01 min ago", True),
        (864_000, "10 d 00 h ago", True),
        (-5, "in the future", False),
    ],
)
def test_a_cluster_whose_rounds_have_stopped_is_shown_as_late(*, after_s: float, age: str, is_late: bool):
    found = status(after_s=after_s)
    assert found.is_late == is_late
    assert f"ended {age}\n" in status_text(found)
    assert ("no newer round" in status_text(found)) == is_late


@pytest.mark.parametrize(
    ("mode", "planned", "words", "throttle", "rates"),
    [
        ("act", False, "it", "copied: 1, 1.0 kB left, done in 1 min 30 s", "leader:101 30 B/s"),
        (
            "dry-run",
            False,
            "what would be set",
            "copied: 1, 1.0 kB left, done in 1 min 30 s",
            "leader:101 would be 30 B/s",
        ),
        ("act", True, "it", "planned: 1, 1.0 kB left, would take 1 min 30 s", "leader:101 30 B/s"),
        (
            "dry-run",
            True,
            "what would be set",
            "planned: 1, 1.0 kB left, would take 1 min 30 s",
            "leader:101 would be 30 B/s",
        ),
    ],
)
def test_of_a_kafka_cluster_it_says_what_moves_or_is_planned_and_at_which_rates(
    mode: Any, words: str, throttle: str, rates: str, *, planned: bool
):
    found = msgspec.structs.replace(
        THROTTLE, outcome="unchanged", eta_s=90.4, bytes_left=1000, planned=planned
    )
    text = status_text(status(of_kafka(found), mode=mode, after_s=-460))
    assert f"  throttle    {words} needs no change, partitions {throttle}\n  rates       {rates}\n" in text


def test_where_nothing_is_copied_any_more_it_says_that_only_an_executor_takes_the_throttle_off():
    over = msgspec.structs.replace(THROTTLE, outcome="nothing-moves", partitions_moving_count=0)
    asked = InFlightRow(id="a", kind="throttle", target="reassignments", expires_at="1970-01-01T00:09:00Z")
    left = "what was set stays on the cluster until an executor has carried out the action in flight"
    for in_flight, is_said in (([asked], True), ([], False)):
        found = msgspec.structs.replace(of_kafka(over), in_flight=in_flight)
        assert (left in status_text(status(found, after_s=-460))) is is_said


def test_of_a_kafka_cluster_in_which_nothing_is_copied_it_names_the_rates_that_others_left():
    left = {
        "partitions_moving_count": 0,
        "rates_bytes_per_s": {},
        "others_rates_bytes_per_s": {"leader:1": 2_394_039},
    }
    text = status_text(status(of_kafka(msgspec.structs.replace(THROTTLE, **left)), after_s=-460))
    assert "  left by others  leader:1 2.4 MB/s, where nothing is paced\n" in text
    assert "left by others" not in status_text(status(of_kafka(THROTTLE), after_s=-460))


def test_of_a_kafka_cluster_it_says_which_brokers_recover_and_what_makes_others_wait():
    found = msgspec.structs.replace(
        THROTTLE, recovering={"3": None, "4": "1970-01-01T00:00:05.000Z"}, under_min_isr=["orders-7"]
    )
    text = status_text(status(of_kafka(found)))
    assert "broker 3 is away, and recovers when it is back\n" in text
    assert "broker 4 recovers since 1970-01-01T00:00:05Z\n" in text
    assert "orders-7 is under min.insync.replicas: other copies make room\n" in text


def test_what_a_newer_control_event_asks_for_is_shown_as_waiting():
    found = ClusterStatus(
        event=round_event(ROUND), epoch=None, waiting="ann: calmer (c2)", leaders=None, now_ms=END_MS
    )
    assert "  waiting     ann: calmer (c2)\n" in status_text(found)
    assert "  controller  main, epoch unknown; whether it runs is not known\n" in status_text(found)


@pytest.mark.parametrize(
    ("beats", "runs", "controller", "why"),
    [
        (None, None, "main, epoch 7; whether it runs is not known", "or no controller runs"),
        ({}, False, "main, epoch 7, DOES NOT RUN: no beat in the last hour", "its controller does not run"),
        (
            running(beat_age_s=21),
            False,
            "main, epoch 7, DOES NOT RUN: its last beat was 21 s ago, from a:1",
            "its controller does not run",
        ),
        (
            running(beat_age_s=19, batch=None),
            True,
            "main, epoch 7, runs as a:1, batch none yet",
            "see the collector",
        ),
        (
            running(epoch=8, batch=None),
            True,
            "main, epoch 8 (no round of it yet), runs as a:1, batch none yet",
            "see the collector",
        ),
        (
            running(problem="its query fails: a disk is full"),
            True,
            "main, epoch 7, runs as a:1, batch 42, BUT DECIDES NOTHING NOW: its query fails: a disk is full",
            "its query fails",
        ),
    ],
)
def test_it_says_whether_the_controller_runs_and_so_why_no_round_comes(
    beats: dict[str, Process] | None, *, runs: bool | None, controller: str, why: str
):
    found = status(after_s=600, beats=beats)
    text = status_text(found)
    assert found.runs is runs
    assert f"  controller  {controller}\n" in text
    (late,) = [line for line in text.splitlines() if "no newer round" in line]
    assert why in late


@pytest.mark.parametrize(
    ("beats", "reports_come", "behind", "said"),
    [
        (running(batch=None), True, 10, "catching up (10 rounds behind)"),
        (running(), True, 10, "catching up (10 rounds behind)"),
        (running(), False, None, "no newer round: no reports come: see the collector"),
        (running(), None, None, "or its controller is catching up"),
        ({}, True, None, "no newer round: its controller does not run"),
    ],
)
def test_a_controller_that_has_reports_to_work_through_catches_up(
    beats: dict[str, Process], *, reports_come: bool | None, behind: int | None, said: str
):
    found = status(after_s=600, beats=beats, reports_come=reports_come)
    assert found.rounds_behind == behind
    assert status_tree(found)["rounds_behind"] == behind
    assert said in status_text(found).splitlines()[1]


def test_the_newest_beat_of_each_controller_counts_unless_another_process_has_replaced_it():
    def beat(name: str, instance: str, *, at_ms: int, batch: int | None = None, **fields: Any) -> TopicRecord:
        said = msgspec.structs.replace(BEAT, name=name, instance=instance, batch=batch, **fields)
        return beat_on_topic(said, at_ms=at_ms)

    found = newest_leaders(
        [
            beat("main", "a:1", epoch=1, at_ms=1_000),
            beat("main", "b:2", epoch=2, at_ms=2_000, batch=3),
            beat("main", "a:1", epoch=1, at_ms=9_000),
            beat("other", "c:3", epoch=1, at_ms=4_500),
            on_topic(None, key=b"x", at_ms=9_000),
        ],
        now_ms=10_000,
    )
    assert found == {
        "main": leading(instance="b:2", epoch=2, batch=3, beat_age_s=8.0),
        "other": leading(name="other", instance="c:3", epoch=1, batch=None, beat_age_s=5.5),
    }


def test_it_names_who_stands_by_and_why_one_could_not_lead():
    def standby(instance: str, **fields: Any) -> TopicRecord:
        usual = {"epoch": 0, "batch": None, "version": "2", "role": "standby", "instance": instance}
        return beat_on_topic(msgspec.structs.replace(BEAT, **usual | fields))

    records = [
        standby("c:3", problem="the checkpoint was written by a newer trimtab"),
        standby("b:2"),
        standby("d:4"),
        standby("d:4", is_leaving=True),
        beat_on_topic(BEAT),
    ]

    def shown_at(now_ms: int) -> ClusterStatus:
        processes = newest_processes(records, now_ms=now_ms)
        return ClusterStatus(
            event=round_event(ROUND),
            epoch=7,
            waiting=None,
            leaders=running(),
            processes=processes,
            now_ms=END_MS + 1000,
        )

    shown = shown_at(2_000)
    assert [each.beat.instance for each in shown.standbys] == ["b:2", "c:3"]
    assert shown_at(21_000).standbys == [], "they are silent"
    assert list(newest_leaders(records, now_ms=2_000)) == ["main"]
    assert (
        "  standby     b:2, version 2, could take over\n"
        "              c:3, version 2, COULD NOT LEAD: the checkpoint was written by a newer trimtab\n"
    ) in status_text(shown)


def test_a_leader_that_said_goodbye_does_not_run_however_young_its_last_beat_is():
    found = status(beats={"main": leading(beat_age_s=1.0, is_leaving=True)})
    assert found.runs is False
    assert "DOES NOT RUN: it ended 1 s ago, from a:1" in status_text(found)


def test_the_newest_summary_of_each_cluster_counts_unless_its_controller_was_replaced():
    newest = Newest(Settings())
    newest.take(
        [
            record(round_event(ROUND, round=7), epoch=2),
            record(round_event(ROUND, round=9), epoch=3, offset=1),
            record(round_event(ROUND, round=10), epoch=2, offset=2),
            record(round_event(ROUND, cluster="west", round=1)),
            on_topic(b"garbage", key=b"x", offset=3),
            on_topic(None, key=b"x", offset=4),
            on_topic(b'{"type": "other"}', key=b"x", offset=5),
        ]
    )
    assert newest.clusters == {"east-1", "west"}
    assert [read_round(each.value or b"").data.round for each in newest.records()] == [9, 1]


def test_a_round_is_told_with_what_it_looked_at_judged_and_found():
    judged = JudgedRow(
        id="a0",
        kind="unload",
        bundle="t/n/b",
        outcome="effective",
        brokers={},
        before={},
        expected={},
        seen={},
    )
    pair = msgspec.structs.replace(PAIR, evidence={"needed_hit_count": 8, "to_move_bytes_per_s": -3.5})
    text = round_text(
        round_event(
            ROUND,
            examined=rows(pair, msgspec.structs.replace(PAIR, high_broker="b3", low_broker="b3")),
            judged=rows(judged),
            findings=rows(HOT),
            actions=["a1"],
            actions_count=3,
        )
    )
    assert text.startswith("round 7 of east-1 (pulsar), 1970-01-01T00:07:00Z to 1970-01-01T00:08:00Z\n")
    for expected in (
        "  b1 with b2        hit-count 3/8  needed_hit_count 8, to_move_bytes_per_s 0\n",
        "  b3 in the middle  hit-count 3/8\n",
        "Bundles of the brokers that fired: 2 acted, 5 cooldown\n  and 7 more, counted above\n",
        "Earlier actions that were judged: 1 shown\n  unload t/n/b  effective  a0\n",
        "  hot-partition  t/n/orders  add partitions\n",
        "Actions of the round: a1 and 2 more\n",
    ):
        assert expected in text
    assert "Findings" not in round_text(round_event(ROUND, findings=section()))


def test_a_round_of_a_kafka_cluster_is_told_with_what_is_copied_and_not_with_bundles():
    text = round_text(round_event(of_kafka(THROTTLE)))
    assert "Copies:\n  throttle  waiting, partitions copied: 1, 72.0 kB left\n" in text
    assert "  rates     leader:101 30 B/s\n            follower:104 40 B/s\n" in text
    assert "undle" not in text
    assert tail_round_text(of_kafka(THROTTLE)).endswith("; partitions copied: 1, 72.0 kB left\n")
    nothing = msgspec.structs.replace(of_kafka(THROTTLE), throttle=None)
    assert "Copies: none was judged\n" in round_text(round_event(nothing))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"reason": "0 unloads: 1 bundle is too big"}, "0 unloads: 1 bundle is too big"),
        (
            {"outcome": "warm-up", "reason": "round 1 of the 3 that only look"},
            "warm-up: round 1 of the 3 that only look",
        ),
    ],
)
def test_a_round_is_told_in_the_same_words_everywhere(fields: dict[str, Any], said: str):
    found = msgspec.structs.replace(ROUND, paused=True, **fields)
    assert tail_round_text(found) == f"1970-01-01T00:08:00Z east-1 round 7 [act, paused] {said}\n"
    assert f"  round       {said}\n" in status_text(status(found))
    assert f"\n{said}\n" in round_text(round_event(found))


def test_a_round_is_found_by_its_cluster_and_number():
    value = canonical(round_event(ROUND))
    assert is_round_of(value, cluster="east-1", number=7)
    assert not is_round_of(value, cluster="east-1", number=8)
    assert not is_round_of(value, cluster="west", number=7)
    assert not is_round_of(b"garbage", cluster="east-1", number=7)


def rejected(head: bytes, **fields: Any) -> Rejected:
    data = RejectedData(
        reason="not-json",
        detail="it is no JSON",
        topic="in",
        partition=2,
        offset=17,
        size_bytes=len(head),
        sha256="ab",
        head_base64=base64.b64encode(head).decode(),
    )
    event = Rejected(id="r1", source="/trimtab/main", type=REJECTED_TYPE, cluster="east-1", data=data)
    return msgspec.structs.replace(event, **fields)


def test_a_rejected_record_is_told_with_its_place_reason_and_beginning():
    event = rejected(b"\xffno json")
    assert place_of(event) == "in/2@17"
    remedy = "→ perhaps somebody else writes to this topic: find the sender, and mend it or give it a topic of its own\n"
    assert tail_rejected_text(event) == f"at an unknown time east-1 in/2@17 not-json: it is no JSON {remedy}"
    assert rejected_text(event).startswith(f"in/2@17\nit is no JSON\n{remedy}\n  reason   not-json\n")
    assert rejected_text(event).endswith("It begins with\n\n\\xffno json\n")
    long = rejected_text(rejected(b"x" * 3000, time="t", cluster=""))
    assert long.endswith("x" * 2000 + "\n… 3000 bytes in all\n")
    assert "  cluster  not known\n" in long


def test_every_reason_has_a_remedy_unless_its_detail_names_it():
    assert set(REMEDIES) == set(get_args(RejectReason))


def test_what_is_of_another_type_is_not_read_as_this():
    with pytest.raises(UnreadableEvent, match=r"trimtab\.round\.v1 is not a trimtab\.rejected\.v1"):
        read_rejected(canonical(round_event(ROUND)))
    with pytest.raises(UnreadableEvent, match="not a trimtab"):
        read_rejected(b"garbage")
    assert read_rejected(canonical(rejected(b"x"))).data.offset == 17
