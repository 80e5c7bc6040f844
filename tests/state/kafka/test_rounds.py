"""A round of a Kafka cluster, and what is left of a throttle that was attempted."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from state.closing import Identity
from state.controller import Controller
from state.events import ActionResult, BrokerLogs, Event, KafkaLoadReport, MoveRow, Reassignment
from state.kafka.memory import KafkaMemory, decode_kafka
from state.settings import Mode
from state.store import DictStore
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.kafka.reporting import Replica, moves_report, replica_table
from tests.state.traces import CLUSTER, ROUNDS, overlay

FLOOR = 1_000_000
"""Bytes a second: the rate of a throttle that needs little."""


def played(
    rounds_count: int,
    *others: Event,
    mode: Mode = "act",
    max_action_bytes: int | None = None,
    **kafka: Any,
) -> list[dict[str, Any]]:
    """Outputs of rounds in which one partition moves from brokers 1 and 2 to 3, with the type of each."""
    throttle = {"floor_bytes_per_s": FLOOR} | kafka.pop("throttle", {})
    tree = {"rounds": ROUNDS | {"warmup_rounds": 1}, "throttle": throttle} | kafka
    settings = ClusterSettingsSource(compose({"kafka": tree, "pulsar": {"rounds": ROUNDS}}))
    limits = {} if max_action_bytes is None else {"max_action_bytes": max_action_bytes}
    controller = Controller(CLUSTER, DictStore(), identity=Identity(mode=mode, **limits), settings=settings)
    events = [*others, *(event for number in range(rounds_count) for event in moving("t", number))]
    outputs = [
        each
        for event in sorted(events, key=lambda event: event.time_ms)
        for each in controller.step(event).outputs
    ]
    return [json.loads(each.data) | {"id": each.id, "kind": each.kind} for each in outputs]


def rates(outputs: list[dict[str, Any]]) -> dict[str, int]:
    """The rates of the only action, by role."""
    (action,) = [each for each in outputs if each["kind"] == "action"]
    leaders, followers = action["leader_rate_bytes_per_s"], action["follower_rate_bytes_per_s"]
    return {f"leader:{name}": rate for name, rate in leaders.items()} | {
        f"follower:{name}": rate for name, rate in followers.items()
    }


def reasons(outputs: list[dict[str, Any]]) -> list[str]:
    return [each["reason"] for each in outputs if each["kind"] == "round"]


@pytest.mark.parametrize(
    ("choice", "broker", "expected"),
    [
        ("per-broker", "3", {"leader:1": FLOOR, "leader:2": FLOOR, "follower:3": 540_000}),
        ("per-broker", "1", {"leader:1": 540_000, "leader:2": FLOOR, "follower:3": FLOOR}),
        ("uniform", "3", {"leader:1": 540_000, "leader:2": 540_000, "follower:3": 540_000}),
        ("uniform", "9", {"leader:1": FLOOR, "leader:2": FLOOR, "follower:3": FLOOR}),
    ],
)
def test_a_rate_stays_below_the_share_of_the_network_of_its_broker(
    choice: str, broker: str, expected: dict[str, int]
) -> None:
    """Nine tenths of 600,000 bytes/s."""
    capacity = {"brokers": {broker: {"network_bytes_per_s": 600_000}}}
    assert rates(played(4, throttle={"rates": choice}, capacity=capacity)) == expected


def test_the_round_that_decides_says_so_and_the_next_says_that_it_stays() -> None:
    outputs = played(5)
    assert [each["kind"] for each in outputs] == ["round", "action", "round", "round", "round"]
    assert reasons(outputs)[1:] == ["throttle decided: first-throttle", *["no throttle decided: kept"] * 2]
    decided = outputs[2]
    assert (decided["actions"], decided["actions_count"]) == ([outputs[1]["id"]], 1)
    assert (outputs[0]["outcome"], outputs[0]["throttle"]) == ("warm-up", None)


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"throttle": {"enabled": False}}, "off: kafka.throttle.enabled is false"),
        ({"max_action_bytes": 1000}, "too-large: the action takes "),
    ],
    ids=["off", "too large"],
)
def test_what_holds_a_throttle_is_said_and_nothing_is_decided(options: dict[str, Any], held: str) -> None:
    outputs = played(4, **options)
    assert {each["kind"] for each in outputs} == {"round"}
    assert all(each.startswith(f"first-throttle is held, {held}") for each in reasons(outputs)[1:])
    assert {each["throttle"]["outcome"] for each in outputs[1:]} == {"held"}


def test_a_pause_holds_a_throttle_until_it_ends() -> None:
    pause, go_on = overlay(-15, paused=True), overlay(21, paused=False)
    found = reasons(played(6, pause, go_on))
    assert found[1:4] == ["first-throttle is held, paused: the cluster is paused"] * 3
    assert found[4] == "throttle decided: first-throttle"


def test_after_a_failure_the_next_attempt_waits_and_says_for_how_long() -> None:
    first = next(each for each in played(4) if each["kind"] == "action")
    failed = ActionResult(id="r", time_ms=20_001, action_id=first["id"], outcome="failed")
    outputs = played(7, failed)
    assert sum(each["kind"] == "action" for each in outputs) == 2
    assert [each for each in reasons(outputs) if "retrying" in each] == [
        "first-throttle is held, retrying: 1 decisions in a row were not carried out, the next is made in 0.001 s"
    ]
    summaries = [each["throttle"] for each in outputs if each["kind"] == "round" and each["throttle"]]
    assert summaries[1]["failures_count"] == 1
    assert summaries[1]["retry_at"] == "1970-01-01T00:00:30.001Z"


def test_a_dry_run_decides_once_and_goes_on_as_if_it_were_done() -> None:
    outputs = played(5, mode="dry-run")
    assert sum(each["kind"] == "action" for each in outputs) == 1
    assert next(each for each in outputs if each["kind"] == "action")["dry_run"]
    assert reasons(outputs)[-1] == "no throttle decided: kept"


def test_progress_is_watched_also_while_a_change_is_held() -> None:
    """From the fifth round on a second topic moves, and a pause keeps it from being throttled."""
    settings = ClusterSettingsSource(
        compose(
            {
                "kafka": {
                    "rounds": ROUNDS | {"warmup_rounds": 1},
                    "throttle": {"floor_bytes_per_s": FLOOR},
                },
                "pulsar": {"rounds": ROUNDS},
            }
        )
    )
    store, found = DictStore(), []
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=settings)
    for event in [
        overlay(19, paused=True),
        *both_moving(["t"], range(4)),
        *both_moving(["t", "u"], range(4, 8)),
    ]:
        outputs = controller.step(event).outputs
        if outputs:
            controller.commit()
            watch = decode_kafka(store.fleet() or b"").pacing.watch
            found.append(
                (json.loads(outputs[-1].data)["reason"], watch.samples[-1].at_ms if watch.samples else None)
            )
    held = [at_ms for reason, at_ms in found if reason.startswith("moves-joined is held, paused")]
    assert len(held) == 3
    assert held == sorted(set(held)), "a sample a round"


def both_moving(topics: list[str], numbers: Iterable[int]) -> Iterator[Event]:
    """Rounds in which a partition of each topic moves from brokers 1 and 2 to 3."""
    for number in numbers:
        time_ms = 10_000 * number + 5000
        rows = [MoveRow(topic, 0, (1, 2, 3), (3,), (1,), 1, (1, 2)) for topic in topics]
        yield Reassignment(id=f"m{number}", time_ms=time_ms, report=moves_report(*rows))
        for broker in (1, 2, 3):
            size = 1000 * (number + 1000) if broker < 3 else 10 * number
            table = replica_table(*(Replica(topic, 0, size, size) for topic in topics))
            yield KafkaLoadReport(
                id=f"l{number}", time_ms=time_ms, broker=str(broker), logs=BrokerLogs(broker, table)
            )


SETTINGS = ClusterSettingsSource(
    compose(
        {
            "kafka": {"rounds": ROUNDS | {"warmup_rounds": 1}, "throttle": {"floor_bytes_per_s": 1}},
            "pulsar": {"rounds": ROUNDS},
        }
    )
)
MOVES_COUNT = 5
ROUNDS_COUNT_MAX = 1000


def moving(topic: str, number: int) -> list[Event]:
    """A round in which a partition moves from brokers 1 and 2 to 3."""
    time_ms = 10_000 * number + 5000
    row = MoveRow(topic, 0, (1, 2, 3), (3,), (1,), 1, (1, 2))
    events: list[Event] = [Reassignment(id=f"m{number}", time_ms=time_ms, report=moves_report(row))]
    for broker in (1, 2, 3):
        size = 1000 * (number + 1000) if broker < 3 else 10
        logs = BrokerLogs(broker, replica_table(Replica(topic, 0, size, size)))
        events.append(KafkaLoadReport(id=f"l{number}", time_ms=time_ms, broker=str(broker), logs=logs))
    return events


def test_without_an_executor_what_was_attempted_does_not_grow_with_the_moves() -> None:
    """Each topic moves until a decision about it has expired, and then the next topic moves."""
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=SETTINGS)
    moves_count = 0
    for number in range(ROUNDS_COUNT_MAX):
        for event in moving(f"t{moves_count}", number):
            controller.step(event)
        controller.commit()
        stored = store.fleet()
        memory = KafkaMemory() if stored is None else decode_kafka(stored)
        if memory.failures_count > moves_count:
            assert memory.asked is None, "a decision has expired"
            assert memory.attempted.is_empty
            moves_count += 1
        if moves_count == MOVES_COUNT:
            break
    assert moves_count == MOVES_COUNT, "decisions expired"
