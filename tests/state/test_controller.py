"""Named cases of one cluster's controller that no scenario tells: partitions, limits, sizes."""

import json

import pytest

from state.events import Event, Place
from tests.state.traces import load, overlay, run, settings_of, sweep

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
