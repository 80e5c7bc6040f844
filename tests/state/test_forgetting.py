"""A cluster that is gone is forgotten: by events alone, the same however they arrive."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from state.closing import Identity
from state.control import controls_of
from state.controller import Controller
from state.events import Control, Coordinates, Event, LoadReport
from state.memory import Header, decode_header
from state.overlay import MaintenanceWindow, moment_at
from state.pulsar import decide
from state.store import DictStore
from state.systems import decode_memory
from streaming.settings import ClusterSettingsSource
from streaming.settings.load import compose
from tests.state.traces import (
    CLUSTER,
    ISOLATED,
    ROUNDS,
    Run,
    assert_arrival_changes_nothing,
    facts,
    failing_in,
    kafka_trace,
    load,
    overlay,
    random_trace,
    result,
    run,
    seeds,
    settings_of,
    sweep,
    with_results,
)

_SHEDDER = {"high_hit_count": 1, "low_hit_count": 1, "min_unload_messages_per_s": 1.0}
FORGET = {"rounds": {"forget_cluster_s": 100.0, "warmup_rounds": 0}, "avg_shedder": _SHEDDER}
SETTINGS = settings_of(**FORGET)
NEVER = settings_of(**FORGET | {"rounds": {"forget_cluster_s": 0.0, "warmup_rounds": 0}})
KAFKA = ClusterSettingsSource(
    compose(
        {
            "kafka": {"rounds": ROUNDS | {"forget_cluster_s": 100.0}, "throttle": {"floor_bytes_per_s": 1}},
            "pulsar": {"rounds": ROUNDS},
        }
    )
)
ACT = Identity(mode="act")
WINDOW = MaintenanceWindow(since=moment_at(0), who="ann", why="a test")


def hot(time_s: float) -> list[Event]:
    """Two brokers, the first of them hot, with one bundle worth moving."""
    bundles = {"t/a/0x00000000_0x10000000": 100.0, "t/a/0x10000000_0x20000000": 300.0}
    return [load("b1", time_s, cpu=90.0, bundles=bundles), load("b2", time_s, cpu=10.0)]


def acted(found: Run) -> list[int]:
    return [action["round"] for action in found.actions]


def header_of(store: DictStore) -> Header | None:
    value = store.header()
    return None if value is None else decode_header(value)


@pytest.mark.parametrize(("silence_s", "rounds_acted"), [(100.0, [0]), (101.0, [0, 10])])
def test_a_cluster_that_comes_back_after_forget_cluster_s_starts_from_an_empty_memory(
    silence_s: float, rounds_acted: list[int]
):
    """Until then its bundle rests: the default cooldown is half an hour."""
    trace = [*hot(5.0), *hot(5.0 + silence_s)]
    assert acted(run([trace], SETTINGS)) == rounds_acted
    assert acted(run([trace], NEVER)) == [0]


def test_a_cluster_whose_first_round_after_the_silence_fails_is_forgotten_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
):
    failing_in(monkeypatch, decide, "remember", lambda number: number == 1)
    assert acted(run([[*hot(5.0), *hot(155.0), *hot(165.0)]], SETTINGS)) == [0, 16]


def test_a_forget_cluster_s_below_max_report_age_s_forgets_no_cluster_that_is_live():
    brief = settings_of(**FORGET | {"rounds": {"forget_cluster_s": 1.0, "warmup_rounds": 0}})
    assert acted(run([[*hot(5.0), *hot(15.0), *hot(25.0)]], brief)) == [0]
    assert acted(run([[*hot(5.0), *hot(35.0)]], brief)) == [0, 3]


@pytest.mark.parametrize(
    "message",
    [[sweep(5.0), sweep(15.0), sweep(25.0)], [overlay(5.0, paused=True)], [sweep(5.0), overlay(6.0)]],
    ids=["ticks", "control", "both"],
)
def test_of_a_name_that_never_reported_nothing_is_left_when_it_is_forgotten(message: list[Event]):
    store = DictStore()
    run([message], SETTINGS, store=store, is_closed=False)
    assert store.header() is not None
    run([[forgotten(60.0)]], SETTINGS, store=store, is_closed=False)
    assert store.header() is None


def test_ticks_results_and_control_events_do_not_keep_the_memory_of_a_cluster():
    between = [sweep(5.0 + at) for at in range(10, 150, 10)]
    control = [overlay(50.0)]
    found = run([[*hot(5.0), *between, *control, *hot(155.0)]], SETTINGS)
    assert acted(found) == [0, 15]


def test_a_pause_outlasts_the_memory_of_its_cluster():
    found = run([[*hot(5.0), overlay(6.0, paused=True), sweep(40.0), *hot(155.0)]], SETTINGS)
    assert [summary["paused"] for summary in found.summaries] == [False, True]
    assert acted(found) == [0]


def test_the_round_after_the_silence_tells_of_the_gap():
    (_, last) = run([[*hot(5.0), *hot(155.0)]], SETTINGS).summaries
    assert (last["restarted"], last["gap_rounds"]) == (True, 14)


def forgotten(time_s: float, **message: Any) -> Control:
    return changed(overlay(time_s, **message), forget=True)


def changed(event: Control, **data: Any) -> Control:
    return msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, **data))


def test_a_control_event_empties_the_memory_with_the_first_round_it_holds_for():
    """Time 10 s + 2 x 5 s is round 2, and the same event again changes nothing."""
    asked = forgotten(10.0)
    trace = [*hot(5.0), *hot(12.0), asked, *hot(22.0), asked, *hot(32.0)]
    assert acted(run([trace], SETTINGS)) == [0, 2]
    assert acted(run([[event] for event in trace], SETTINGS)) == [0, 2]


def test_a_live_cluster_that_is_forgotten_keeps_its_isolation():
    """b3 is idle, but no primary of t/a: from the round of the forgetting on, too, nothing of b1 may go there."""
    isolated = facts(5.0, isolation=ISOLATED)
    fleet = [[*hot(5.0 + at), load("b3", 5.0 + at, cpu=0.0)] for at in (0, 10, 20, 30)]
    found = run([[isolated, *fleet[0], *fleet[1], forgotten(10.0), *fleet[2], *fleet[3]]], SETTINGS)
    moves = [(action["round"], action["destination_broker"]) for action in found.actions]
    assert moves == [(0, "b2"), (2, "b2")]


@pytest.mark.parametrize("first", [sweep(25.0), result(25.0)], ids=["a tick", "a result"])
def test_a_cluster_is_forgotten_also_where_the_first_round_to_do_so_has_no_report(first: Event):
    """Three rounds in a row fire: rounds 0 and 1 are two, round 2 has no report, and of rounds 3 to 5 the last acts."""
    patient = settings_of(**FORGET | {"avg_shedder": _SHEDDER | {"high_hit_count": 3, "low_hit_count": 3}})
    trace = [*hot(5.0), *hot(15.0), forgotten(10.0), first, *hot(35.0), *hot(45.0), *hot(55.0)]
    assert acted(run([trace], patient)) == [5]
    assert acted(run([[event] for event in trace], patient)) == [5]


def test_a_newer_control_event_does_not_take_the_forgetting_back():
    trace = [*hot(5.0), forgotten(10.0), overlay(10.5), *hot(22.0)]
    assert acted(run([trace], SETTINGS)) == [0, 2]


def test_a_silent_cluster_that_is_forgotten_by_a_control_event_leaves_no_byte():
    store = DictStore()
    run(
        [[*hot(5.0), *hot(15.0), load("b3", 21.0)], [forgotten(60.0)]], SETTINGS, store=store, is_closed=False
    )
    assert store.header() is None
    assert store.fleet() is None
    assert list(store.all_waiting()) == []


@pytest.mark.parametrize(
    "wanted",
    [
        {"paused": True},
        {"mode": "dry-run"},
        {"approval": "required"},
        {"settings": {"pulsar": {"guards": {"bundle_cooldown_s": 60}}}},
        {"maintenance_brokers": {"b1": WINDOW}},
        {"drained_brokers": {"b1": WINDOW}},
    ],
    ids=["pause", "mode", "approval", "settings", "maintenance", "drain"],
)
def test_a_silent_cluster_is_forgotten_but_what_an_operator_set_is_not(wanted: dict[str, Any]):
    store = DictStore()
    run(
        [[*hot(5.0)], [changed(forgotten(60.0), **wanted)]],
        SETTINGS,
        store=store,
        is_closed=False,
    )
    header = header_of(store)
    assert header is not None
    assert header == Header(length_ms=10_000, early=header.early)
    (event,) = controls_of(header)
    assert {name: getattr(event.data, name) for name in wanted} == wanted
    assert not event.data.forget
    assert store.fleet() is None


def test_a_cluster_without_a_report_is_forgotten_but_a_later_pause_is_not():
    store = DictStore()
    run([[sweep(5.0), overlay(61.0, paused=True), forgotten(60.0)]], SETTINGS, store=store, is_closed=False)
    header = header_of(store)
    assert header is not None
    assert header == Header(length_ms=10_000, early=header.early)
    assert [event.data.paused for event in controls_of(header)] == [True]


def test_a_pause_that_came_with_the_wish_to_forget_does_not_forget_what_comes_next():
    store = DictStore()
    run(
        [[changed(forgotten(60.0), paused=True)], hot(60.0)],
        SETTINGS,
        store=store,
        is_closed=False,
    )
    header = header_of(store)
    assert header is not None
    assert header.forget_from_ms == []
    assert [event.data.paused for event in header.control.values()] == [True]


def test_what_comes_of_a_forgotten_cluster_in_the_same_batch_begins_a_memory_of_its_own():
    store = DictStore()
    found = run([[*hot(5.0), sweep(15.0)], [forgotten(60.0), *hot(65.0)], hot(75.0)], SETTINGS, store=store)
    assert acted(found) == [0, 6]
    assert found.written[-3:] == run([[*hot(65.0), *hot(75.0)]], SETTINGS).written


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_waited_for_a_round_of_a_cluster_that_is_forgotten_is_counted(*, is_stored: bool):
    store = DictStore()
    first = Controller(CLUSTER, store, identity=ACT, settings=SETTINGS)
    for event in hot(5.0):
        first.step(event)
    counted = first.take_results()
    if is_stored:
        first.commit()
    controller = Controller(CLUSTER, store, identity=ACT, settings=SETTINGS) if is_stored else first
    controller.step(forgotten(60.0))
    counted += controller.take_results()
    assert counted == {(LoadReport, "superseded"): 2, (Control, "used"): 1}


def test_a_cluster_that_only_sends_what_is_refused_leaves_no_byte():
    store = DictStore()
    controller = Controller(CLUSTER, store, identity=ACT, settings=SETTINGS)
    assert controller.step(load("b1", 100.0), Coordinates(appended_ms=1000)).rejection is not None
    controller.commit()
    assert store.header() is None


def test_a_kafka_cluster_comes_back_to_an_empty_memory_but_knows_its_throttle():
    """Otherwise what it put on the brokers would stay there for ever."""
    store = DictStore()
    run([with_results(kafka_trace(6), KAFKA, ["succeeded"] * 9)], KAFKA, store=store)
    before = decode_memory("kafka", store.fleet())
    assert before.pacing.is_active
    later = [msgspec.structs.replace(event, time_ms=event.time_ms + 1_000_000) for event in kafka_trace(1)]
    run([later], KAFKA, store=store)
    after = decode_memory("kafka", store.fleet())
    assert after.pacing.added == before.pacing.added
    header = header_of(store)
    assert header is not None
    assert header.rounds_since_start == 1
    assert header.system == "kafka"


@pytest.mark.parametrize(("asked_s", "is_known"), [(40.0, True), (80.0, True), (81.0, False)])
def test_only_of_a_silent_kafka_cluster_does_a_control_event_forget_the_throttle(
    asked_s: float, *, is_known: bool
):
    """The last report comes at 55 s, and one is too old after 25 s."""
    store = DictStore()
    trace = with_results(kafka_trace(6), KAFKA, ["succeeded"] * 9)
    until_asked = [event for event in trace if event.time_ms <= 55_000]
    run([[*until_asked, forgotten(asked_s)], kafka_trace(12)[-4:]], KAFKA, store=store)
    assert decode_memory("kafka", store.fleet()).pacing.is_active is is_known


@given(seed=seeds)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_what_is_forgotten_does_not_depend_on_how_events_arrive(seed: int):
    trace = random_trace(Random(seed))  # noqa: S311
    assert_arrival_changes_nothing(trace, settings_of(rounds={"forget_cluster_s": 30.0}), seed)
