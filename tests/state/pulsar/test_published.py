"""TransferShedder in a cluster's rounds: it decides on what the brokers publish, from the first to the last of its steps."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from state.closing import Identity
from state.events import BrokerLoad, Event, Published, Tick
from state.outputs import Output
from tests.state.traces import assert_arrival_changes_nothing, load, run, settings_of

DRY_RUN = Identity(mode="dry-run")
SETTINGS = settings_of(shedding_policy="transfer-shedder", transfer_shedder={"hit_count": 1})
FLEET = {
    "b1": (0.9, {"t/a/0x0_0x1": 10.0, "t/a/0x1_0x2": 20.0, "t/a/0x2_0x3": 30.0}),
    "b2": (0.1, {}),
}


def published(
    broker: str, time_s: float, usage_ratio: float, bundles: Mapping[str, float], *, age_s: float = 1.0
) -> BrokerLoad:
    """A broker's load of that moment, updated ``age_s`` before; it publishes all of its bundles."""
    plain = load(broker, time_s, cpu=100 * usage_ratio, bundles=bundles)
    volumes = sorted((10 * rate, name) for name, rate in bundles.items())
    return BrokerLoad(
        id=plain.id,
        time_ms=plain.time_ms,
        broker=broker,
        report=replace(
            plain.report,
            published=Published(
                usage_ratio=usage_ratio,
                bytes_per_s=plain.report.bytes_per_s,
                updated_ms=round((time_s - age_s) * 1000),
                top_bundles=[name for _, name in volumes],
                top_bytes_per_s=np.array([volume for volume, _ in volumes]),
            ),
        ),
    )


def rounds_of(count: int, fleet: Mapping[str, tuple[float, Mapping[str, float]]] = FLEET) -> Iterator[Event]:
    for number in range(count):
        time_s = 10.0 * number + 5
        for broker, (usage, bundles) in fleet.items():
            yield published(broker, time_s, usage, bundles)
        yield Tick(id=f"tick/{number}", time_ms=round(time_s * 1000) + 1, asked=tuple(fleet), failed=())


def decided(events: Iterator[Event]) -> list[Output]:
    return run([[each] for each in events], SETTINGS).outputs


def test_what_a_dry_run_has_moved_counts_in_what_brokers_publish() -> None:
    found = run([[each] for each in rounds_of(8)], SETTINGS, identity=DRY_RUN)
    moved = [each["bundle"] for each in found.actions]
    assert moved[0] == "t/a/0x0_0x1"
    assert len(moved) == len({*moved}), "the same bundle does not move twice"
    (row,) = found.summaries[-1]["examined"]["heaviest"]
    sent = sum(10 * FLEET["b1"][1][name] for name in moved)
    assert row["evidence"]["high_smoothed_bytes_per_s"] == pytest.approx(600 - sent)
    assert row["evidence"]["low_smoothed_bytes_per_s"] == pytest.approx(sent)
    assert row["evidence"]["high_usage_points"] < 90


def outcomes(outputs: list[Output]) -> list[dict[str, int]]:
    return [json.loads(each.data)["examined"]["outcomes"] for each in outputs if each.kind == "round"]


def test_bundles_go_from_the_brokers_heaviest_list_to_the_idlest_broker() -> None:
    outputs = decided(rounds_of(5))
    unloads = [json.loads(each.data) for each in outputs if each.kind == "action"]
    # (0.9 - 0.1) / 2 of 0.9 is 267 of 600 bytes/s: the lightest bundle fits, the next does not
    assert [(each["bundle"], each["source_broker"], each["destination_broker"]) for each in unloads] == [
        ("t/a/0x0_0x1", "b1", "b2")
    ]
    assert unloads[0]["policy"] == "transfer-shedder"
    assert unloads[0]["evidence"]["to_move_bytes_per_s"] == 600 * 0.4 / 0.9


def test_after_a_move_nothing_is_decided_until_its_broker_has_published_anew_for_long_enough() -> None:
    found = outcomes(decided(rounds_of(6)))
    assert found[:3] == [{}, {"hit-count": 1}, {"fired": 1}]
    assert found[3:] == [{"cooldown": 1}] * 3


SWAPPING = {
    "b1": (0.9, {"t/a/0x0_0x1": 4.0, "t/a/0x1_0x2": 6.0}),
    "b2": (0.3, {"t/a/0x2_0x3": 1.0, "t/a/0x3_0x4": 2.0}),
}
"""A third of 100 bytes/s may go. 40 alone are too many; swapped for 10 they leave 70 and 60."""
SWAP = {"t/a/0x0_0x1", "t/a/0x2_0x3"}


@pytest.mark.parametrize(
    ("guards", "reason"),
    [
        ({}, None),
        ({"max_unloads_per_round_count": 1}, "budget"),
        ({"max_unloads_per_hour_count": 1}, "budget"),
        ({"max_unloads_per_namespace_count": 1}, "budget"),
        ({"min_unload_benefit_points": 20.0}, "too-little-benefit"),
    ],
    ids=["no guard", "one a round", "one an hour", "one a namespace", "what returns is light"],
)
def test_a_swap_happens_in_both_directions_or_not_at_all(
    guards: Mapping[str, float], reason: str | None
) -> None:
    settings = settings_of(
        shedding_policy="transfer-shedder", transfer_shedder={"hit_count": 1}, guards=dict(guards)
    )
    found = run([list(rounds_of(3, SWAPPING))], settings)
    unloads = {each["bundle"] for each in found.actions}
    assert unloads == (set() if reason else SWAP)
    rows = {each["bundle"]: each for each in found.summaries[-1]["candidates"]["heaviest"]}
    held = {name: rows[name] for name in SWAP}
    assert {each["outcome"] for each in held.values()} == {reason or "acted"}
    if reason:
        assert sum("swapped" in each["detail"] for each in held.values()) == 1, held


def test_a_broker_that_was_asked_and_has_published_nothing_holds_the_whole_fleet() -> None:
    asked = [
        msgspec.structs.replace(each, asked=("b1", "b2", "b3")) if isinstance(each, Tick) else each
        for each in rounds_of(4)
    ]
    assert outcomes(decided(iter(asked)))[1:] == [{"no-load-data": 1}] * 3


def test_a_broker_that_is_excluded_is_not_waited_for() -> None:
    asked = [
        msgspec.structs.replace(each, asked=("b1", "b2", "b3")) if isinstance(each, Tick) else each
        for each in rounds_of(3)
    ]
    settings = settings_of(
        shedding_policy="transfer-shedder",
        transfer_shedder={"hit_count": 1},
        guards={"excluded_brokers": ["b3"]},
    )
    assert outcomes(run([asked], settings).outputs)[1:] == [{"hit-count": 1}, {"fired": 1}]


def test_brokers_with_the_modular_load_manager_have_no_data_for_it() -> None:
    events = [
        load(each.broker, each.time_ms / 1000, cpu=50.0) if isinstance(each, BrokerLoad) else each
        for each in rounds_of(4)
    ]
    assert outcomes(decided(iter(events)))[1:] == [{"no-load-data": 1}] * 3


def test_while_managers_are_switched_broker_by_broker_it_waits_and_the_others_go_on() -> None:
    events = [
        msgspec.structs.replace(each, report=replace(each.report, published=None))
        if isinstance(each, BrokerLoad) and each.broker == "b2"
        else each
        for each in rounds_of(4)
    ]
    assert outcomes(decided(iter(events)))[1:] == [{"no-load-data": 1}] * 3
    shedding = settings_of(shedding_policy="overload-shedder")
    assert [each.kind for each in run([events], shedding).outputs].count("action") >= 1


@pytest.mark.parametrize("seed", range(5))
def test_how_its_events_arrive_changes_nothing(seed: int) -> None:
    assert_arrival_changes_nothing(list(rounds_of(6)), SETTINGS, seed)
