"""What holds for every trace of a Kafka cluster: Hypothesis looks for one that breaks it."""

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.throttle.lists import ThrottledLists, entries_of
from policies.throttle.roles import ROLES, Role
from state.controller import LATE, REJECTED, SUPERSEDED, USED
from state.events import BrokerLogs, Event, KafkaLoadReport, Reassignment, Tick
from state.settings import SettingsSource
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.kafka.reporting import MoveRow, Replica, copies_report, replica_table
from tests.state.traces import (
    ROUNDS,
    Run,
    arrivals,
    assert_arrival_changes_nothing,
    overlay,
    run,
    seeds,
    with_results,
)

CHECKED = settings(max_examples=30, deadline=None, derandomize=True)
BROKERS = (1, 2, 3, 4)


def settings_of(*, is_pulsar_alike: bool = True, **throttle: Any) -> SettingsSource:
    """``is_pulsar_alike``: Pulsar's rounds are as long as Kafka's; otherwise they last a minute, the default."""
    kafka = {"rounds": ROUNDS, "throttle": {"floor_bytes_per_s": 1} | throttle}
    pulsar = {"rounds": ROUNDS} if is_pulsar_alike else {}
    return ClusterSettingsSource(compose({"kafka": kafka, "pulsar": pulsar}))


SETTINGS = [
    settings_of(),
    settings_of(rates="per-broker", min_change_interval_s=0.0, stale_after_rounds=1),
    settings_of(deadline_s=60.0, change_threshold_ratio=0.0),
    settings_of(is_pulsar_alike=False),
]
some_settings = st.sampled_from(SETTINGS)


def _move(random: Random, partition: int) -> MoveRow:
    sources = random.sample(BROKERS[:3], 2)
    added = random.choice([broker for broker in BROKERS if broker not in sources])
    is_running = random.random() < 0.8
    replicas = (*sources, added) if is_running else tuple(sources)
    leader = random.choice([*sources, *sources, -1])
    return MoveRow("t", partition, replicas, (added,), (sources[0],), leader, tuple(sources))


def _logs(random: Random, time_s: float) -> BrokerLogs:
    rows = [
        Replica(
            "t",
            partition,
            random.choice([0, int(1000 * time_s), int(1000 * time_s)]),
            random.choice([None, 5]),
        )
        for partition in random.sample(range(3), random.choice([1, 3, 3, 3]))
    ]
    rate = random.choice([None, 1, 1000])
    rates: dict[Role, int] = {} if rate is None else dict.fromkeys(ROLES, rate)
    return BrokerLogs(random.choice(BROKERS), replica_table(*rows), rates)


def _event(random: Random, usual: list[MoveRow]) -> Event:
    time_s = random.randrange(180) / 2
    about: dict[str, Any] = {"id": random.choice(["x", "y"]), "time_ms": round(1000 * time_s)}
    kind = random.random()
    if kind < 0.6:
        logs = _logs(random, time_s)
        return KafkaLoadReport(**about, broker=str(logs.broker), logs=logs)
    if kind < 0.85:
        odd = [_move(random, partition) for partition in range(random.randrange(4))]
        copies = random.choice([usual, usual, usual, odd, []])
        lists = random.choice([{}, {"t": "0:1,1:2,9:9"}, {"t": "*"}])
        return Reassignment(
            **about, report=copies_report(*copies, lists=ThrottledLists(leader=lists, follower={}))
        )
    if kind < 0.95:
        return Tick(**about, asked=("1", "2"), failed=())
    return overlay(
        time_s, paused=random.random() < 0.3, mode=random.choice([None, "dry-run", "act"]), settings={}
    )


def trace_of(seed: int) -> list[Event]:
    random = Random(seed)  # noqa: S311  tests, not secrets
    usual = [_move(random, partition) for partition in range(random.randint(1, 2))]
    drawn = [_event(random, usual) for _ in range(random.randint(5, 200))]
    unique = {(type(event), event.age_key, getattr(event, "broker", "")): event for event in drawn}
    return sorted(unique.values(), key=lambda event: event.age_key)


traces = seeds.map(trace_of)
some_outcomes = st.lists(st.sampled_from(["succeeded", "failed", "skipped"]), max_size=4)


def actions(found: Run) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in found.outputs if each.kind == "action"]


@CHECKED
@given(traces, some_settings, some_outcomes, seeds)
def test_order_within_the_lateness_repeats_batches_and_stores_change_nothing(
    trace: list[Event], source: SettingsSource, outcomes: list[str], seed: int
):
    assert_arrival_changes_nothing(with_results(trace, source, outcomes), source, seed)


@CHECKED
@given(traces, some_settings, some_outcomes)
def test_no_rate_is_ever_below_one_and_nothing_of_others_is_removed(
    trace: list[Event], source: SettingsSource, outcomes: list[str]
):
    added: set[tuple[str, int, int]] = set()
    for action in actions(run([with_results(trace, source, outcomes)], source)):
        for role in ("leader", "follower"):
            assert all(rate >= 1 for rate in action[f"{role}_rate_bytes_per_s"].values())
            added |= {
                (role, *entry)
                for text in action[f"add_{role}_throttled_replicas"].values()
                for entry in entries_of(text)
            }
            removed = {
                (role, *entry)
                for text in action[f"remove_{role}_throttled_replicas"].values()
                for entry in entries_of(text)
            }
            assert removed <= added


@CHECKED
@given(traces, some_settings, seeds)
def test_every_event_ends_once(trace: list[Event], source: SettingsSource, seed: int):
    arrived = arrivals(trace, seed)
    results = run(arrived, source).results
    assert {result for _, result in results} <= {USED, SUPERSEDED, LATE, REJECTED}
    assert sum(results.values()) == sum(map(len, arrived))


KINDS = {
    "first-throttle",
    "moves-joined",
    "finished",
    "unchanged",
    "stale",
    "unknown",
    "held",
    "nothing-moves",
}


def test_the_traces_of_these_tests_have_decisions_and_rounds_of_every_kind():
    """A property over traces in which nothing happens would prove nothing."""
    covered: set[str] = set()
    for seed in range(300):
        if covered >= KINDS:
            break
        source = SETTINGS[seed % len(SETTINGS)]
        found = run([with_results(trace_of(seed), source, ["failed", "succeeded"])], source)
        covered |= {action["trigger"] for action in actions(found)}
        covered |= {message["throttle"]["outcome"] for message in found.summaries if message["throttle"]}
    assert covered >= KINDS


FROM_THE_START = settings_of(is_pulsar_alike=False)


@CHECKED
@given(seeds, seeds)
def test_order_within_the_lateness_changes_nothing_from_the_first_record_on(seed: int, order: int):
    """Only the first seconds, with many events from before the cluster's system is known."""
    random = Random(seed)  # noqa: S311  tests, not secrets
    usual = [_move(random, 0)]
    first_s = random.randrange(4, 40)
    early: list[Event] = [
        overlay(at_s, paused=random.random() < 0.5, mode=random.choice([None, "act"]), settings={})
        for at_s in sorted(random.sample(range(first_s + 3), random.randrange(5)))
    ]
    ticks = random.sample(range(first_s + 4), 3)
    early += [Tick(id="t", time_ms=1000 * at_s, asked=("1",), failed=()) for at_s in ticks]
    later = [each for each in (_event(random, usual) for _ in range(60)) if each.time_ms >= 1000 * first_s]
    unique = {(type(event), event.age_key, getattr(event, "broker", "")): event for event in [*early, *later]}
    trace = sorted(unique.values(), key=lambda event: event.age_key)
    assert_arrival_changes_nothing(trace, FROM_THE_START, order)
