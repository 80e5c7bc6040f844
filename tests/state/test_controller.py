"""Named cases of one cluster's controller that no scenario tells: partitions, limits, sizes."""

import json

import pytest

from state.closing import Identity
from state.controller import Controller
from state.events import ActionResult, Event, Place
from state.store import DictStore
from tests.state.traces import CLUSTER, load, overlay, run, settings_of, sweep

EAGER = {"high_hit_count": 1, "min_unload_messages_per_s": 1.0}
AT_ONCE = {"warmup_rounds": 0}


def fleet(time_s: float, count: int, *, name: str = "broker-{:04}") -> list[Event]:
    """Brokers that report at once, every other one hot, with two bundles each."""
    return [
        load(
            name.format(i),
            time_s,
            cpu=90.0 if i % 2 else 10.0,
            bundles={
                f"t/n{i}/0x0_0x1": 100.0 if i % 2 else 10.0,
                f"t/n{i}/0x1_0x2": 900.0 if i % 2 else 10.0,
            },
        )
        for i in range(count)
    ]


def test_a_cluster_is_known_from_its_first_report_on():
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=settings_of())
    controller.step(sweep(5))
    controller.step(overlay(5))
    assert not controller.is_known
    controller.step(load("b1", 6))
    assert controller.is_known


def test_a_late_report_makes_no_cluster_known():
    controller = Controller(CLUSTER, DictStore(), identity=Identity(), settings=settings_of())
    controller.step(sweep(100))
    controller.step(load("b1", 6))
    assert not controller.is_known


def test_a_second_partition_is_refused_until_the_first_has_been_silent_for_long():
    batch = [
        (load("b1", 5), Place(0)),
        (load("b2", 5), Place(1)),
        overlay(6),
        (load("b2", 30), Place(1)),
        (load("b2", 30.001), Place(1)),
        (load("b1", 31), Place(0)),
    ]
    found = run([batch[:2], batch[2:]], settings_of())
    assert [each.reason for each in found.rejections] == ["wrong-partition"] * 3
    assert "partition 1, but this cluster's records come in partition 0" in found.rejections[0].detail
    assert "partition 0, but this cluster's records come in partition 1" in found.rejections[2].detail


@pytest.mark.parametrize(("reporting", "outcome"), [(11, "decided"), (10, "no-quorum")])
def test_a_quorum_is_reached_exactly(reporting: int, outcome: str):
    """0.55 x 20 is 11.000000000000002 in floating point."""
    settings = settings_of(rounds=AT_ONCE | {"quorum_ratio": 0.55})
    batch = [*fleet(5, 20), *fleet(15, reporting)]
    assert [summary["outcome"] for summary in run([batch], settings).summaries] == ["decided", outcome]


def test_a_jump_of_years_is_one_step():
    settings = settings_of(rounds=AT_ONCE)
    far_s = 7_000_000_000.0
    summaries = run([[load("b1", 5), load("b1", far_s)]], settings).summaries
    assert [summary["gap_rounds"] for summary in summaries] == [0, 700_000_000 - 1]
    assert [summary["restarted"] for summary in summaries] == [False, True]


def test_a_silence_within_one_long_round_starts_the_cluster_again():
    settings = settings_of(rounds={"length_s": 100.0, "warmup_rounds": 1})
    batch = [load("b1", 5), load("b1", 105), load("b1", 131), load("b1", 205)]
    assert [
        (summary["restarted"], summary["outcome"], summary["brokers_live_count"])
        for summary in run([batch], settings).summaries
    ] == [(False, "warm-up", 0), (True, "warm-up", 0), (True, "warm-up", 0)]


def test_a_thousand_brokers_that_appear_at_once_are_decided_in_their_round():
    settings = settings_of(
        avg_shedder=EAGER,
        rounds=AT_ONCE,
        guards={"max_unloads_per_round_count": 0, "max_unloads_per_hour_count": 0},
    )
    found = run([[*fleet(5, 1000), sweep(15)]], settings)
    (summary,) = found.summaries
    assert summary["brokers_reporting_count"] == summary["brokers_live_count"] == 1000
    assert summary["examined"]["outcomes"] == {"fired": 500}
    assert summary["actions_count"] == len(found.actions) == 500
    assert len(summary["actions"]) == len(summary["examined"]["heaviest"]) == len(summary["brokers"]) == 100
    assert sum(summary["candidates"]["outcomes"].values()) == summary["candidates"]["count"] == 1000


LONG = "-very-long-name" * 60


@pytest.mark.parametrize("name", ["b{:04}" + LONG, "b{:04}" + LONG * 20, "b{:04}" + "\x01" * 2000])
def test_a_summary_stays_small_whatever_the_names_are(name: str):
    settings = settings_of(avg_shedder=EAGER, rounds=AT_ONCE)
    absent = [load(f"gone{i}{LONG}", 4) for i in range(200)]
    remarks = overlay(0.001, settings={"pulsar": {"guards": {"excluded_brokers": [f"x{LONG * 1000}"]}}})
    batch = [remarks, *absent, *fleet(5, 3000, name=name), sweep(10), *fleet(15, 3000, name=name), sweep(30)]
    outputs = [each for each in run([batch], settings).outputs if each.kind == "round"]
    assert len(outputs) == 2
    for each in outputs:
        assert len(each.data) <= 256 * 1024
        summary = json.loads(each.data)
        assert summary["brokers_reporting_count"] >= 3000
        assert sum(summary["candidates"]["outcomes"].values()) == summary["candidates"]["count"] > 0
    assert json.loads(outputs[1].data)["brokers_missing_count"] == 200


def test_an_overlay_that_no_longer_fits_is_named_and_left_out():
    store = DictStore()
    stricter = {"pulsar": {"avg_shedder": {"low_threshold_points": 30}}}
    run([[load("b1", 5), overlay(6, settings=stricter)]], settings_of(rounds=AT_ONCE), store=store)
    lowered = settings_of(
        rounds=AT_ONCE, avg_shedder={"low_threshold_points": 10.0, "high_threshold_points": 20.0}
    )
    (summary,) = run([[load("b1", 25)]], lowered, store=store).summaries
    assert "does not fit the settings of this start" in summary["control"]["problem"]
    assert summary["settings_digest"] == lowered.base(CLUSTER).in_force["pulsar"].digest


def hot(time_s: float, **bundles: float) -> list[Event]:
    """A hot broker with such bundles beside a cold one."""
    named = {f"t/n/0x{name[1:]}0_0x{name[1:]}f": rate for name, rate in bundles.items()}
    return [
        load("b1", time_s, cpu=90, bundles=named, rate=1000.0),
        load("b2", time_s, cpu=10, bundles={"t/n/0xf0_0xff": 10.0}),
    ]


def test_a_flight_without_a_result_lasts_to_the_end_of_its_action():
    settings = settings_of(
        avg_shedder=EAGER, rounds=AT_ONCE, guards={"bundle_cooldown_s": 1.0, "keep_sole_bundle": False}
    )
    batch = [event for time_s in (5, 15, 25, 35, 45) for event in hot(time_s, b0=40.0)]
    found = run([batch], settings, identity=Identity(mode="act", action_ttl_s=15.0))
    assert [action["round"] for action in found.actions] == [0, 2, 4]


@pytest.mark.parametrize("order", [1, -1])
def test_every_result_of_a_round_counts_in_any_order(order: int):
    settings = settings_of(avg_shedder=EAGER, rounds=AT_ONCE, guards={"keep_sole_bundle": False})
    decided = [each for each in run([hot(5, b0=40.0, b1=30.0)], settings).outputs if each.kind == "action"]
    assert len(decided) == 2
    results = [
        ActionResult(id=f"r{i}", time_ms=16_000, action_id=action.id, outcome="failed")
        for i, action in enumerate(decided)
    ]
    batch = [*hot(5, b0=40.0, b1=30.0), sweep(15), *results[::order], *hot(17, b0=40.0, b1=30.0)]
    assert [action["round"] for action in run([batch], settings).actions] == [0, 0, 1, 1]
