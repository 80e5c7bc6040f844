"""What operators take out of balancing is not touched, and a drained broker is emptied whatever the guards say."""

from typing import Any

import pytest
from hypothesis import given

from state.events import namespace_of
from state.overlay import MaintenanceWindow, moment_at
from tests.state.traces import BUNDLES, FIRING, load, overlay, run, settings_of, sweep, traces

WINDOW = MaintenanceWindow(since=moment_at(0), who="ann", why="a test")
ALL_ON = FIRING | {
    "guards": {"bundle_cooldown_s": 0, "keep_sole_bundle": False},
    "rounds": {"warmup_rounds": 0},
}


@given(traces)
def test_nothing_goes_to_what_is_apart_and_only_drains_take_from_it(trace: list[Any]) -> None:
    found = run([trace], settings_of(**ALL_ON))
    by_round = {each["round"]: each.get("maintenance") for each in found.summaries}
    for action in found.actions:
        maintenance = by_round[action["round"]] or {"brokers": [], "namespaces": [], "drains": []}
        kept, drained = ({each["name"] for each in maintenance[name]} for name in ("brokers", "drains"))
        source = action.get("source_broker") or action["broker"]
        assert action.get("destination_broker") not in kept | drained
        assert source not in kept
        assert (source in drained) == (action["policy"] == "drain")
        assert namespace_of(action["bundle"]) not in {each["name"] for each in maintenance["namespaces"]}


@given(traces)
def test_every_bundle_of_a_drained_broker_has_one_outcome(trace: list[Any]) -> None:
    for summary in run([trace], settings_of(**ALL_ON)).summaries:
        if "maintenance" not in summary:
            continue
        left = summary["maintenance"]["bundles_left"]
        assert sum(left["outcomes"].values()) == left["count"] == len(left["heaviest"])
        assert left["count"] == sum(
            each.get("bundles_left_count", 0) for each in summary["maintenance"]["drains"]
        )


def test_a_round_that_decides_nothing_shows_what_is_left_at_drained_brokers_and_why() -> None:
    """The first round only looks; in the second one of three brokers reports, and 0.7 of them are needed."""
    listed = {BUNDLES[0]: 0.0, BUNDLES[1]: 100.0}
    events = [
        overlay(-30, drained_brokers={"b1": WINDOW}),
        *(load(broker, 5, bundles=listed if broker == "b1" else {}) for broker in ("b1", "b2", "b3")),
        load("b1", 15, bundles=listed),
        sweep(26),
    ]
    found = run([events], settings_of(rounds={"warmup_rounds": 1, "quorum_ratio": 0.7}))
    left = [each["maintenance"]["bundles_left"] for each in found.summaries]
    assert [(each["count"], each["outcomes"]) for each in left] == [
        (2, {"warm-up": 2}),
        (2, {"no-quorum": 2}),
    ]
    assert [(row["bundle"], row["detail"]) for row in left[0]["heaviest"]] == [
        (BUNDLES[1], "the first round only looks"),
        (BUNDLES[0], "the first round only looks"),
    ]
    assert not found.actions


def rounds_of(apart: dict[str, MaintenanceWindow], **settings: Any) -> list[dict[str, Any]]:
    """A round in which b1 has two bundles, an idle and a busy one, and b2 and b3 are there."""
    events = [
        overlay(-30, maintenance_brokers=apart),
        load("b1", 5, cpu=50, bundles={BUNDLES[0]: 0.0, BUNDLES[1]: 100.0}),
        load("b2", 5, cpu=10, bundles={BUNDLES[2]: 10.0}),
        load("b3", 5, cpu=20, bundles={BUNDLES[3]: 10.0}),
        sweep(16),
    ]
    return run([events], settings_of(rounds={"warmup_rounds": 0}, **settings)).actions


def test_where_pulsar_would_choose_the_destination_it_is_not_left_to_it() -> None:
    """The threshold shedder names none; b2 would be the least used and is under maintenance."""
    shedder = {
        "shedding_policy": "threshold-shedder",
        "threshold_shedder": {"threshold_points": 1, "min_unload_bytes_per_s": 1},
    }
    left_alone = rounds_of({}, **shedder)
    assert {each["destination_broker"] for each in left_alone} == {None}
    chosen = rounds_of({"b2": WINDOW}, **shedder)
    assert {each["destination_broker"] for each in chosen} == {"b3"}


def test_a_broker_under_maintenance_that_is_silent_is_asked_for_no_quorum() -> None:
    events = [
        overlay(-30, maintenance_brokers={"b2": WINDOW, "b3": WINDOW}),
        *(load(broker, 5, cpu=50) for broker in ("b1", "b2", "b3")),
        load("b1", 15, cpu=50),
        sweep(26),
    ]
    last = run([events], settings_of(rounds={"warmup_rounds": 0})).summaries[-1]
    assert (last["outcome"], last["brokers_missing"], last["brokers_live_count"]) == ("decided", [], 1)


def test_a_namespace_under_maintenance_shows_how_many_bundles_are_known_of_it() -> None:
    known = namespace_of(BUNDLES[0])
    events = [
        overlay(-30, maintenance_namespaces={known: WINDOW, f"{known}-mistyped": WINDOW}),
        load("b1", 5, bundles={BUNDLES[0]: 5.0, BUNDLES[1]: 0.0}),
        load("b2", 5),
        sweep(16),
    ]
    found = run([events], settings_of(rounds={"warmup_rounds": 0})).summaries[-1]["maintenance"]
    counts = {row["name"]: row["bundles_count"] for row in found["namespaces"]}
    same = [name for name in BUNDLES[:2] if namespace_of(name) == known]
    assert counts == {known: len(same), f"{known}-mistyped": 0}


COORDINATORS = [f"pulsar/system/0x{at:x}0000000_0x{at + 1:x}0000000" for at in range(15)]
HEARTBEAT = "pulsar/b1:8080/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("bundles", "own", "expected"),
    [
        ({}, [*COORDINATORS, HEARTBEAT], ("only-system-bundles", 0, 15)),
        ({}, [HEARTBEAT], ("empty", 0, 0)),
        ({}, [], ("empty", 0, 0)),
        ({BUNDLES[0]: 5.0}, COORDINATORS, ("draining", 1, 15)),
    ],
    ids=["coordinators", "its heartbeat, which ends with it", "nothing", "a bundle that may move is left"],
)
def test_a_drain_is_never_called_empty_while_bundles_of_system_bundles_are_there(
    bundles: dict[str, float], own: list[str], expected: tuple[str, int, int]
) -> None:
    events = [
        overlay(-30, drained_brokers={"b1": WINDOW}),
        load("b1", 5, bundles=bundles, system_bundles=own),
        load("b2", 5, bundles={BUNDLES[2]: 10.0}),
        sweep(16),
    ]
    found = run([events], settings_of(rounds={"warmup_rounds": 0}))
    [row] = found.summaries[-1]["maintenance"]["drains"]
    assert (row["state"], row["bundles_left_count"], row["system_bundles_count"]) == expected
    assert row.get("system_bundles", []) == [each for each in own if each != HEARTBEAT]
