"""A round of a Kafka cluster: what it decides, why a decision does not become an action, and what is left of it."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from policies.throttle.progress import Sample, Watch
from policies.throttle.rates import BrokerRole, ThrottleSettings
from state.closing import Hold, Identity
from state.controller import Controller
from state.events import Event, Reassignment
from state.kafka.decide import hold_decision, hold_too_large, restart_progress
from state.kafka.summary import RoundContext
from state.memory import Header
from state.outputs import canonical
from state.settings import ClusterSettings, KafkaSettings, Mode
from state.store import DictStore
from state.systems import decode_memory
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.policies.throttle.moving import Partition, copies_of
from tests.state.building import END_MS, closing, control, published, unload
from tests.state.kafka.reporting import F3, FINISHED, FIRST, IN_FORCE, L1, OURS, memory_of, seen_of
from tests.state.traces import CLUSTER, ROUNDS, kafka_round, overlay

F4, D3 = BrokerRole("follower", 4), BrokerRole("disk", 3)
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
    assert all(each.startswith(f"throttle held, {held}") for each in reasons(outputs)[1:])
    assert {each["throttle"]["outcome"] for each in outputs[1:]} == {"held"}


def test_a_pause_holds_a_throttle_until_it_ends() -> None:
    pause, go_on = overlay(-15, paused=True), overlay(21, paused=False)
    found = reasons(played(6, pause, go_on))
    assert found[1:4] == ["throttle held, paused: the cluster is paused (wanted: the first throttle)"] * 3
    assert found[4] == "throttle decided: the first throttle"


def test_a_dry_run_decides_once_and_goes_on_as_if_it_were_done() -> None:
    outputs = played(5, mode="dry-run")
    assert sum(each["kind"] == "action" for each in outputs) == 1
    assert next(each for each in outputs if each["kind"] == "action")["dry_run"]
    assert reasons(outputs)[-1] == "no throttle decided: what would be set needs no change"


def test_a_round_says_that_what_it_paces_is_only_planned() -> None:
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=settings_of())
    found = []
    for number in range(4):
        for event in kafka_round(number, "t"):
            if isinstance(event, Reassignment):
                planned = msgspec.structs.replace(event.report, is_running=False)
                event = msgspec.structs.replace(event, report=planned)  # noqa: PLW2901
            found += [json.loads(each.data) for each in controller.step(event).outputs]
    assert [each["reason"] for each in found if each.get("throttle")] == [
        "throttle decided: the first throttle; all of it is planned, nothing of it is copied yet",
        "no throttle decided: what would be set needs no change; all of it is planned, nothing of it is copied yet",
    ]


@pytest.mark.parametrize(
    ("before", "left", "count", "is_kept"),
    [
        ({F3: 1000}, 520, 1, True),
        ({F3: 1000}, 519, 1, False),
        ({F3: 1000}, 519, 2, True),
        ({F3: 1000}, None, 1, True),
        ({F3: 100, F4: 480}, 100, 1, True),
        ({F3: 100, F4: 481}, 100, 1, False),
        ({F3: 100, D3: 481}, 100, 1, False),
        ({F3: 100, L1: 5000}, 100, 1, True),
    ],
    ids=[
        "caught up: no more is gone than 24 bytes/s let through in 10 s and a quota window",
        "cancelled: a byte more is gone",
        "no copy is gone",
        "what is left is not known",
        "all of a broker has caught up",
        "all of a broker is cancelled",
        "a move between disks is cancelled",
        "a leader changed",
    ],
)
def test_progress_is_watched_anew_when_a_copy_goes_before_it_has_caught_up(
    before: dict[BrokerRole, int], left: int | None, count: int, *, is_kept: bool
) -> None:
    watch = Watch(samples=(Sample(0, before),))
    rates = dict.fromkeys((L1, F3, F4, D3), 24)
    memory = memory_of(pacing=replace(IN_FORCE, rates=rates, watch=watch), running_count=2)
    present = {} if left is None else {3: 1000 - left}
    copies = copies_of(Partition("t-0", [1, 2], [2, 3], 10, 1000, present=present))
    restart_progress(memory, replace(seen_of(), copies=copies, begun=np.ones(count, dtype=np.bool_)))
    assert memory.pacing.watch == (watch if is_kept else Watch())
    assert memory.running_count == count


def test_progress_is_watched_also_while_a_change_is_held() -> None:
    """From the fifth round on a second topic moves, and a pause keeps it from being throttled."""
    store, found = DictStore(), []
    controller = Controller(CLUSTER, store, identity=Identity(mode="act"), settings=settings_of())
    copies = [("t",)] * 4 + [("t", "u")] * 4
    for event in [
        overlay(19, paused=True),
        *(each for at, names in enumerate(copies) for each in kafka_round(at, *names)),
    ]:
        outputs = controller.step(event).outputs
        if outputs:
            controller.commit()
            watch = decode_memory("kafka", store.fleet()).pacing.watch
            found.append(
                (json.loads(outputs[-1].data)["reason"], watch.samples[-1].at_ms if watch.samples else None)
            )
    held = [at_ms for reason, at_ms in found if "held, paused" in reason and "more is copied" in reason]
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
        memory = decode_memory("kafka", stored)
        if memory.failures_count > moves_count:
            assert memory.asked is None, "a decision has expired"
            assert memory.attempted.is_empty
            moves_count += 1
        if moves_count == MOVES_COUNT:
            break
    assert moves_count == MOVES_COUNT, "decisions expired"


SWITCHED_OFF = ClusterSettings(kafka=KafkaSettings(throttle=ThrottleSettings(enabled=False)))
CAUSES: dict[str, dict[str, Any]] = {
    "paused": {"control": control()},
    "failing": {"error_held_since_ms": 1},
    "off": {"settings": SWITCHED_OFF},
    "retrying": {"retry_ms": END_MS + 1},
}
"""Each hold's cause, in the order in which they are asked."""


def hold(*causes: str, decision: ThrottleDecision = FIRST, **more: Any) -> Hold | None:
    fields: dict[str, Any] = dict(more)
    for each in causes:
        fields |= CAUSES[each]
    header = Header(
        length_ms=60_000, system="kafka", error_held_since_ms=fields.pop("error_held_since_ms", None)
    )
    memory = memory_of(failures_count=2, retry_ms=fields.pop("retry_ms", 0))
    context = RoundContext(
        closing=closing(**fields), header=header, memory=memory, reports={}, observation=seen_of()
    )
    return hold_decision(decision, context)


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=list(CAUSES))
def test_of_all_holds_that_apply_the_first_one_is_the_reason(place: int) -> None:
    names = list(CAUSES)
    found = hold(*names[place:])
    assert found is not None
    assert found.reason == names[place]


@pytest.mark.parametrize("decision", [FIRST, FINISHED], ids=["begins", "ends"])
def test_a_decision_that_nothing_holds_becomes_an_action(decision: ThrottleDecision) -> None:
    assert hold(decision=decision) is None


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("paused", "paused"), ("failing", "failing"), ("off", None), ("retrying", "retrying")],
)
def test_a_throttle_comes_off_even_where_throttling_is_switched_off_but_other_holds_keep_it(
    cause: str, reason: str | None
) -> None:
    found = hold(cause, decision=FINISHED)
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("retry_ms", "waits"), [(END_MS, None), (END_MS + 1, "0.001"), (END_MS + 90_000, "90")]
)
def test_after_failures_the_next_decision_is_made_at_its_time_and_not_before(
    retry_ms: int, waits: str | None
) -> None:
    found = hold(retry_ms=retry_ms)
    assert (found and found.detail) == (
        waits and f"2 decisions in a row were not carried out, the next is made in {waits} s"
    )


ACTION = published(unload())
LISTS_BYTES = len(canonical(OURS))
NOT_IN_FORCE = replace(IN_FORCE, begun_ms=None)


@pytest.mark.parametrize(
    ("data_bytes", "after", "needed"),
    [
        pytest.param(1000, NOT_IN_FORCE, 1000, id="nothing is throttled after it: its own size counts"),
        pytest.param(1000, IN_FORCE, LISTS_BYTES + 100_000, id="the action that ends the throttle is larger"),
        pytest.param(200_000, IN_FORCE, 200_000, id="it is larger than the one that ends the throttle"),
    ],
)
def test_an_action_is_held_if_it_or_the_one_that_ends_the_throttle_would_not_be_published(
    data_bytes: int, after: PacingMemory, needed: int
) -> None:
    action = msgspec.structs.replace(ACTION, data=b"x" * data_bytes)
    assert hold_too_large(action, after, needed) is None
    assert hold_too_large(action, after, needed - 1) == Hold(
        "too-large",
        f"the action takes {needed} bytes and at most {needed - 1} are published: move fewer partitions at a time "
        "(`trimtab throttle plan --batches`), or throttle whole topics with `*` by hand",
    )
