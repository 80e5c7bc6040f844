"""One value of every kind of stored memory, with every field away from its default.

A field added to the memory belongs here too: a test fails while a sample leaves it at its default.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from policies.shedding.view import Traffic
from policies.splitting.plan import BlindCut
from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingMemory
from policies.throttle.progress import Inflow, Sample, Watch
from policies.throttle.roles import BrokerRole, by_role
from policies.usage import RESOURCES
from state.control import record_of
from state.events import (
    ActionResult,
    Approval,
    BrokerLogs,
    ClusterFacts,
    Control,
    KafkaLoadReport,
    LoadReport,
    Published,
    Reassignment,
    Tick,
    TopicStats,
)
from state.facts import Facts, Isolation
from state.kafka.memory import (
    Absence,
    Asked,
    KafkaMemory,
    PartitionTable,
    ThrottleConfigs,
)
from state.layouts import seal
from state.ledger import Child, Decision, Ledger, Unanswered, Verdict
from state.memory import (
    DrainRecord,
    ForbiddenRecord,
    Header,
    MembersChange,
    OpenRound,
    ProposalRecord,
    Sender,
    Waiters,
    WaitingKey,
    decode_header,
    encode_header,
)
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.memory import Fleet, Gathered
from state.report_buffer import Entry, decode_batch, encode_batch
from state.systems import decode_memory, decode_waiting
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table
from tests.state.traces import load, statistics

BUNDLES = {"t/ü/0x0_0x1": 1.5, "t/n/0x1_0x2": None, "t/n/0x2_0x3": 0.0}


FACTS = Facts(
    ["b1"],
    [],
    ["b2"],
    [Isolation("p", ["t/.*"], ["b1"])],
    {"g": ["t/n", "t/ü"]},
    ["b2"],
    {"t/n/0x0_0x1": (1.5, 2.0)},
    {"rack-ü": ["b1", "b2"]},
)


def pulsar_header() -> Header:
    window = MaintenanceWindow(since=moment_at(3), until=moment_at(9), who="ann", why="disk")
    overlay = ControlData(
        paused=True,
        mode="act",
        settings={"pulsar": {}},
        who="ann",
        why="why",
        resumed_at=moment_at(4),
        until=moment_at(6),
        forget=True,
        maintenance_brokers={"b1": window},
        maintenance_namespaces={"t/n": window},
        drained_brokers={"b2": window},
        approval="required",
    )
    tick = Tick(7, "t", ("b1", "b2"), (("b2", "timeout"),))
    results = [ActionResult(8, "r", "a1", "failed"), ActionResult(9, "r", "a2", "succeeded")]
    return Header(
        length_ms=60_000,
        newest_ms=-5,
        next_round=-1,
        partition=3,
        is_known=True,
        rounds={
            -1: OpenRound(),
            4: OpenRound(
                [(1, 2), (9, 9)],
                tick,
                results,
                {"report": Waiters(30, {"b1": Sender(1, "x", 10), "b2": Sender(9, "y", 20)})},
                ClusterFacts(3, "f", FACTS),
                3,
            ),
        },
        last_summary=2,
        last_report_ms=11,
        rounds_since_start=8,
        last_mode="dry-run",
        control={3: Control(5, "c", overlay, arrived_late=True)},
        ledger=Ledger(
            [
                Decision(
                    id="a2",
                    kind="split",
                    bundle="t/n/0x1_0x2",
                    source="b1",
                    destination=None,
                    children=(Child("t/n/0x00000001_0x00000002", 0.5, None),),
                    decided_ms=1,
                    expires_ms=2,
                    until_ms=9,
                    dry_run=True,
                    is_watched=True,
                    is_leaving=False,
                    is_resting=False,
                    result="succeeded",
                    succeeded_ms=3,
                    rounds_count=2,
                    verdict=Verdict("ineffective", 5, "b2", 3),
                )
            ],
            {"split": 1},
            Unanswered(had_effect=True, count=4, since_ms=1),
        ),
        facts=FACTS,
        system="pulsar",
        forget_from_ms=[180_000],
        members_change=MembersChange(3, "b1", "b2"),
        error_rounds_count=2,
        error_held_since_ms=60_000,
        error_place="ValueError at state.pulsar.decide:1 close",
        drains={
            "b2": DrainRecord(
                4, 7, ("t/n/0x00000000_0x80000000",), {"t/n/0x80000000_0xffffffff": Traffic(4.0, 5.0)}
            )
        },
        proposals=[ProposalRecord("p1", "unload", "t/n/0x0_0x1", "b1", "b2", 3, 360_000, b"{}")],
        approvals=[Approval(6, "w1", "p1", "approved", "ann", "right")],
        rejected={"t/n/0x0_0x1": 360_000},
        forbidden={
            "b1": ForbiddenRecord("avg-shedder", "anti-affinity", "t/n/0x00000000_0x80000000", "why", 3, 9)
        },
    )


def early_header() -> Header:
    """The header of a cluster that had a tick, a result, facts and a pause before its system was known."""
    events = (
        Control(id="c", time_ms=5, data=ControlData(paused=True, who="ann", forget=True)),
        Tick(id="t", time_ms=7, asked=("1",), failed=()),
        ActionResult(id="r", time_ms=8, action_id="a1", outcome="skipped"),
        ClusterFacts(id="f", time_ms=9, facts=FACTS),
    )
    clocks_ms = (None, None, 7, 8)
    return Header(length_ms=60_000, newest_ms=9, early=list(map(record_of, events, clocks_ms)))


def kafka_header() -> Header:
    return Header(
        length_ms=10_000,
        newest_ms=70_000,
        next_round=6,
        partition=0,
        is_known=True,
        rounds={
            6: OpenRound(
                spans=[(60_001, 69_999)],
                waiters={
                    "logs": Waiters(4, {"1": Sender(60_001, "l", 4)}),
                    "moves": Waiters(1, {"": Sender(69_999, "m", 1)}),
                },
                stored_count=2,
            )
        },
        last_summary=5,
        last_report_ms=59_000,
        rounds_since_start=6,
        last_mode="act",
        system="kafka",
    )


def fleet() -> Fleet:
    fleet = Fleet()
    fleet.brokers = ["b1\n", "ü"]
    fleet.broker_last_ms = np.array([5, -6])
    fleet.above_limit_rounds = np.arange(2 * len(RESOURCES)).reshape(2, -1) % 4
    fleet.unmeasured_rounds = fleet.above_limit_rounds[::-1]
    fleet.hot_rounds = np.array([3, 0])
    fleet.idle_since_ms = np.array([-1, 2**50])
    fleet.starts = np.array([0, 2, 3])
    fleet.listed_rows = np.array([0, 1, 1])
    fleet.run_start_ms = np.array([1, 2, 2**50])
    fleet.bundles = list(BUNDLES)
    fleet.owner = np.array([1, -1, 0])
    fleet.empty_rounds = np.array([0, 3, 1])
    fleet.former = np.array([-1, 0, 1])
    fleet.averages = np.arange(12.0).reshape(3, 4) / 3
    fleet.samples = np.array([0, 3, 1000])
    fleet.last_ms = np.array([4, 5, 6])
    fleet.owed_skip = np.array([True, False, True])
    fleet.policies = {
        "avg-shedder": {"low_hits": {"b1\n": 3}, "high_hits": {"ü": 1}},
        "threshold-shedder": {"history_ratio": {"ü": 0.1 + 0.2}},
        "fleet-planner": {"learned": {"b1\n": bytes(range(8))}, "fleet": {"": [0.1 + 0.2, -1.0]}},
    }
    fleet.namespaces = ["t/ü", "t/n"]
    fleet.namespace = np.array([0, 1, 1])
    fleet.split_averages = np.arange(6.0).reshape(3, 2) / 3
    fleet.split_samples = np.array([1, 0, 1000])
    fleet.split_hits = np.array([0, 7, 1])
    fleet.listed_count, fleet.has_absent, fleet.overlapping = 2, True, {"t/n/0x0_0x8": 2**50}
    fleet.gathered = Gathered("b1\n", 7)
    fleet.counts = np.array([[4, 9], [0, 0], [1, 2**31]])
    fleet.blind_cuts = {"t/ü/0x0_0x1": BlindCut("sessions", 0.1 + 0.2)}
    return fleet


def kafka_memory() -> KafkaMemory:
    pacing = PacingMemory(
        begun_ms=1_000,
        changed_ms=2_000,
        added=ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"}),
        rates=by_role({1: 1000}, {3: 2000}),
        safe_mins=by_role({1: 10}, {3: 20}),
        stale_rounds=1,
        is_fallback=True,
        watch=Watch(
            begun_ms=1_500,
            samples=(Sample(1_600, {BrokerRole("leader", 1): 99}),),
            bottleneck=BrokerRole("leader", 1),
        ),
        inflow=Inflow(at_ms=1_600, present_bytes={BrokerRole("follower", 3): 7}, largest_bytes_per_s=6),
        recovers=True,
        first_rate_bytes_per_s=1500,
    )
    return KafkaMemory(
        last_ms={"1": 70_000, "3": 69_000},
        readings=PartitionTable(("t",), np.array([[0, 0, 70_000, 1, 2**40, -1]])),
        rates=PartitionTable(("t", "u"), np.array([[0, 0, 5000, 70_000], [1, 12, 0, 60_000]])),
        pacing=pacing,
        is_shadow=True,
        asked=Asked("a1", 99_000, ThrottleConfigs(pacing.added, by_role({1: 7}, {3: 8}))),
        confirmed=ThrottleConfigs(ThrottledLists(leader={"u": "1:1"}), by_role({1: 9}, {4: 10})),
        attempted=ThrottleConfigs(ThrottledLists(follower={"u": "1:4"}), by_role({1: 7}, {3: 8})),
        running_count=3,
        failures_count=2,
        retry_ms=80_000,
        drift_rounds=3,
        tells_rates=True,
        tells_lists=True,
        silent_rounds={4: 2},
        is_late=True,
        progress=PartitionTable.of_rows(["t"], [0], [3], [10], [5_000], [20]),
        arrived_bytes={3: 20},
        absences={3: Absence(10_000, 60_000, True, 60_000, 5_000)},
        live_ms=70_000,
    )


def waiting_report() -> LoadReport:
    event = load("b1", 5, cpu=33.3, bundles=BUNDLES, topics_count=4)
    published = Published(
        usage_ratio=0.1 + 0.2,
        bytes_per_s=1.5,
        updated_ms=4_999,
        top_bundles=["t/n/0x2_0x3", "t/ü/0x0_0x1"],
        top_bytes_per_s=np.array([0.0, 15.0]),
    )
    return msgspec.structs.replace(event, report=replace(event.report, published=published))


def waiting_topics() -> TopicStats:
    event = statistics("b1", 5, {"t/n/0x0_0x1": {"persistent://t/n/a\n": 1.5, "ü": 0.0}, "t/n/0x1_0x2": {}})
    return msgspec.structs.replace(event, traffic=replace(event.traffic, sessions=np.array([0, 40_002])))


def waiting_logs() -> KafkaLoadReport:
    replicas = replica_table(Replica("t", 0, 2**40, 17), Replica("t", 1, 0))
    return KafkaLoadReport(
        5,
        "l",
        "1",
        BrokerLogs(1, replicas, {"leader": 1000, "follower": 2000}, {"leader": 5, "follower": 6}, 3, 4),
    )


def waiting_moves() -> Reassignment:
    row = MoveRow("t", 0, (1, 2, 3), (3,), (2,), 1, (1, 2))
    return Reassignment(
        5,
        "m",
        copies_report(
            row, lists=ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"}), live_brokers=(1, 2)
        ),
    )


def waiting_batch() -> list[Entry]:
    return [
        Entry("report", "b1\n", seal(waiting_report())),
        Entry("topics", "ü", seal(waiting_topics())),
    ]


class StateSample(NamedTuple):
    """A value, and how it becomes bytes and comes back."""

    build: Callable[[], Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


SAMPLES: dict[str, StateSample] = {
    "header-pulsar": StateSample(pulsar_header, encode_header, decode_header),
    "header-early": StateSample(early_header, encode_header, decode_header),
    "header-kafka": StateSample(kafka_header, encode_header, decode_header),
    "fleet": StateSample(fleet, seal, partial(decode_memory, "pulsar")),
    "kafka-memory": StateSample(kafka_memory, seal, partial(decode_memory, "kafka")),
    "waiting-batch": StateSample(waiting_batch, encode_batch, decode_batch),
    "waiting-report": StateSample(
        waiting_report, seal, partial(decode_waiting, WaitingKey(0, "report", "b1"))
    ),
    "waiting-topics": StateSample(
        waiting_topics, seal, partial(decode_waiting, WaitingKey(0, "topics", "b1"))
    ),
    "waiting-logs": StateSample(waiting_logs, seal, partial(decode_waiting, WaitingKey(0, "logs", "1"))),
    "waiting-moves": StateSample(waiting_moves, seal, partial(decode_waiting, WaitingKey(0, "moves", ""))),
}
"""By the name of the file that keeps it."""
