"""A round of a Kafka cluster, and what is left of a throttle that was attempted."""

import json
from typing import Any

import pytest

from state.closing import Identity
from state.controller import Controller
from state.events import Event
from state.kafka.memory import KafkaMemory, decode_kafka
from state.settings import Mode
from state.store import DictStore
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.traces import CLUSTER, ROUNDS, kafka_round, overlay

FLOOR = 1_000_000
"""Bytes a second: the rate of a throttle that needs little."""


def settings_of(*, throttle: dict[str, Any] | None = None, **kafka: Any) -> ClusterSettingsSource:
    """Settings of a cluster with one round of warm-up."""
    tree = {
        "rounds": ROUNDS | {"warmup_rounds": 1},
        "throttle": {"floor_bytes_per_s": FLOOR} | (throttle or {}),
    }
    return ClusterSettingsSource(compose({"kafka": tree | kafka, "pulsar": {"rounds": ROUNDS}}))


def played(
    rounds_count: int,
    *others: Event,
    mode: Mode = "act",
    max_action_bytes: int | None = None,
    **kafka: Any,
) -> list[dict[str, Any]]:
    """Outputs of rounds in which one partition moves from brokers 1 and 2 to 3, with the type of each."""
    limits = {} if max_action_bytes is None else {"max_action_bytes": max_action_bytes}
    controller = Controller(
        CLUSTER, DictStore(), identity=Identity(mode=mode, **limits), settings=settings_of(**kafka)
    )
    events = [*others, *(event for number in range(rounds_count) for event in kafka_round(number, "t"))]
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


def test_a_dry_run_decides_once_and_goes_on_as_if_it_were_done() -> None:
    outputs = played(5, mode="dry-run")
    assert sum(each["kind"] == "action" for each in outputs) == 1
    assert next(each for each in outputs if each["kind"] == "action")["dry_run"]
    assert reasons(outputs)[-1] == "no throttle decided: kept"


def test_progress_is_watched_also_while_a_change_is_held() -> None:
    """From the fifth round on a second topic moves, and a pause keeps it from being throttled."""
    store, found = DictStore(), []
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=settings_of())
    moves = [("t",)] * 4 + [("t", "u")] * 4
    for event in [
        overlay(19, paused=True),
        *(each for at, names in enumerate(moves) for each in kafka_round(at, *names)),
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


MOVES_COUNT = 5
ROUNDS_COUNT_MAX = 1000


def test_without_an_executor_what_was_attempted_does_not_grow_with_the_moves() -> None:
    """Each topic moves until a decision about it has expired, and then the next topic moves."""
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=settings_of())
    moves_count = 0
    for number in range(ROUNDS_COUNT_MAX):
        for event in kafka_round(number, f"t{moves_count}"):
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
