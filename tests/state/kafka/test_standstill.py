"""Which partitions stand still although others of their broker go on."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from state.closing import Identity
from state.controller import Controller
from state.events import BrokerLogs, Event, KafkaLoadReport, Reassignment
from state.kafka.memory import KafkaMemory
from state.kafka.standstill import FETCH_BYTES, LEAST_MS, TURNS, observe_standstill
from state.store import DictStore
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.policies.throttle.moving import GB, MB, Partition, copies_of
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table
from tests.state.traces import CLUSTER, ROUNDS

NAMES = ("t-0", "t-1")


def stand_still(
    *present: Mapping[str, int | None], step_ms: int = 10_000, waiting: Collection[str] = (), leader: int = 1
) -> Mapping[int, list[str]]:
    """What stands still after rounds in which broker 3 has so much of each partition, of 10 GB each."""
    memory, found = KafkaMemory(), {}
    for number, sizes in enumerate(present):
        rows = [
            Partition(name, [1, 2], [2, 3], MB, 10 * GB, leader, present={} if size is None else {3: size})
            for name, size in sizes.items()
        ]
        found = observe_standstill(memory, copies_of(*rows), at_ms=number * step_ms, waiting=waiting)
    return found


def rounds(
    *, of_each: int = 40 * MB, count: int = 8, stuck: int | None = 5 * MB
) -> list[dict[str, int | None]]:
    """Partition 0 grows by so much a round, partition 1 does not."""
    return [{"t-0": number * of_each, "t-1": stuck} for number in range(count)]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param(rounds(), {3: ["t-1"]}, id="the other one had ten turns and more"),
        pytest.param(rounds(count=LEAST_MS // 10_000), {}, id="for less than a minute"),
        pytest.param(rounds(of_each=2 * MB), {}, id="the other one had few turns, either"),
        pytest.param(rounds(of_each=0), {}, id="nothing moves: that is no matter of one partition"),
        pytest.param([*rounds(), {"t-0": 9 * 40 * MB, "t-1": 6 * MB}], {}, id="it goes on"),
        pytest.param([*rounds(), {"t-0": 9 * 40 * MB, "t-1": None}], {}, id="not told now"),
        pytest.param(
            [*rounds(count=4), {"t-0": 160 * MB, "t-1": None}, *rounds(count=9)[5:]],
            {3: ["t-1"]},
            id="a gap is no progress",
        ),
        pytest.param([{"t-1": 5 * MB}] * 9, {}, id="alone"),
    ],
)
def test_a_partition_stands_still_while_others_of_its_broker_have_many_turns(
    present: list[dict[str, int | None]], expected: Mapping[int, list[str]]
) -> None:
    assert stand_still(*present) == expected


def test_what_waits_for_a_broker_or_a_leader_does_not_stand_still_yet() -> None:
    assert stand_still(*rounds(), waiting=["t-1"]) == {}
    assert stand_still(*rounds(), leader=-1) == {}


def test_the_more_a_broker_fetches_the_longer_one_may_stand() -> None:
    many = [f"u-{at}" for at in range(98)]
    grown = [
        {**dict.fromkeys(many, number * 4 * MB), "t-0": number * 4 * MB, "t-1": 5 * MB} for number in range(9)
    ]
    needed = TURNS * 100 * FETCH_BYTES
    assert stand_still(*grown[:3], step_ms=LEAST_MS) == {}, f"{2 * 99 * 4 * MB} of {needed} bytes"
    assert stand_still(*grown[:4], step_ms=LEAST_MS) == {3: ["t-1"]}


def outputs_of(*, rounds_count: int, deadline_s: float) -> list[dict[str, Any]]:
    """Of two partitions that move from brokers 1 and 2 to 3, one grows by 40 MB a round there, and the other has 5 MB."""
    events: list[Event] = []
    for number in range(rounds_count):
        time_ms = 10_000 * number + 5000
        rows = [MoveRow("t", at, (1, 2, 3), (3,), (1,), 1, (1, 2)) for at in (0, 1)]
        events.append(Reassignment(id=f"m{number}", time_ms=time_ms, report=copies_report(*rows)))
        for broker in (1, 2, 3):
            sizes = (40 * MB * number, 5 * MB) if broker == 3 else (10 * GB + 10 * MB * number,) * 2
            logs = BrokerLogs(
                broker, replica_table(*(Replica("t", at, size, size) for at, size in enumerate(sizes)))
            )
            events.append(KafkaLoadReport(id=f"l{number}", time_ms=time_ms, broker=str(broker), logs=logs))
    kafka = {"rounds": ROUNDS, "throttle": {"deadline_s": deadline_s}}
    controller = Controller(
        CLUSTER, DictStore(), identity=Identity(), settings=ClusterSettingsSource(compose({"kafka": kafka}))
    )
    steps = (controller.step(event).outputs for event in events)
    return [json.loads(each.data) | {"kind": each.kind} for outputs in steps for each in outputs]


def test_one_that_stands_still_is_named_alone_and_raises_no_rate_for_the_deadline() -> None:
    outputs = outputs_of(rounds_count=40, deadline_s=7200)
    last = [each for each in outputs if each["kind"] == "round"][-1]
    assert [(each["kind"], each["subject"]) for each in last["findings"]["heaviest"]] == [
        ("copy-stalled", "t-1")
    ]
    assert "t-1 stands still at broker 3" in last["reason"]
    assert last["throttle"]["eta_basis"] == "broken"
    triggers = [each["trigger"] for each in outputs if each["kind"] == "action"]
    assert triggers == ["first-throttle"], "what goes on keeps the deadline"
