"""Bundles that the reports of a drained broker leave out: whoever stops it has to know that they may be there."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from policies.shedding.view import Traffic
from state.ledger import Decision, Ledger
from state.memory import DrainRecord
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar import drain_records, drains
from state.pulsar.memory import Fleet
from tests.state.building import AGE_MS, admission, decision, seen
from tests.state.traces import load, overlay, run, settings_of, sweep

A, B, OTHER, PARENT, LEFT, RIGHT = (
    *(f"t/{name}/0x00000000_0x80000000" for name in ("a", "b", "x")),
    *(f"t/d/0x{span}" for span in ("00000000_0x80000000", "00000000_0x40000000", "40000000_0x80000000")),
)
WINDOW = MaintenanceWindow(since=moment_at(0))
Listed = Mapping[str, Sequence[str]]
FULL: Listed = {"b1": (A, B), "b2": (OTHER,)}
ONLY_B: Listed = {"b1": (B,), "b2": (OTHER,)}
NOTHING: Listed = {"b1": (), "b2": (OTHER,)}
MOVED: Listed = {"b1": (B,), "b2": (A, OTHER)}
SILENT: Listed = {"b2": (OTHER,)}
WHOLE: Listed = {"b1": (PARENT,), "b2": (OTHER,)}
HALF: Listed = {"b1": (LEFT,), "b2": (OTHER,)}


def left_out(
    *rounds: Listed,
    since: int = 0,
    idle: Sequence[str] = (),
    actions: Mapping[int, Decision] | None = None,
    keeps_absent: bool = False,
) -> list[list[str]]:
    """What counts as left out at b1 in each round of 60 s, by its drain, which begins in round ``since``.

    ``actions`` are known from their round on. Where ``keeps_absent``, the policy has absent bundles in its fleet.
    """
    found: list[list[str]] = []
    fleet, known, ledger = Fleet(), dict[str, DrainRecord](), Ledger()
    for number, listed in enumerate(rounds):
        end_ms = 60_000 * (number + 1)
        if actions and number in actions:
            ledger.record([actions[number]])
        drained = ControlData(drained_brokers={"b1": WINDOW} if number >= since else {})
        reports = (
            load(broker, end_ms / 1000, bundles={each: float(each not in idle) for each in bundles})
            for broker, bundles in listed.items()
        )
        context = seen(
            *reports,
            before=fleet,
            header={"drains": known, "ledger": ledger},
            overlay=drained,
            end_ms=end_ms,
            left=() if keeps_absent else None,
        ).context
        drain_records.begin(context)
        fleet, known = context.fleet, context.header.drains
        found.append(list(known["b1"].left_out) if "b1" in known else [])
    return found


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        pytest.param([FULL, NOTHING, FULL], [[], [A, B], []], id="an empty report, once"),
        pytest.param([FULL, ONLY_B, ONLY_B, MOVED], [[], [A], [A], []], id="until another broker lists it"),
        pytest.param([FULL, *[ONLY_B] * 8], [[], *[[A]] * 8], id="for ever, where nobody lists it"),
        pytest.param([FULL, ONLY_B, SILENT, ONLY_B], [[], [A], [A], [A]], id="silent in between"),
        pytest.param([WHOLE, HALF, HALF], [[], [], []], id="it was split, and its other part has no topics"),
        pytest.param([WHOLE, NOTHING, HALF], [[], [PARENT], []], id="it was split meanwhile"),
    ],
)
def test_what_a_drained_broker_leaves_out_counts_as_there_until_something_shows_that_it_is_gone(
    rounds: list[Listed], found: list[list[str]]
) -> None:
    assert AGE_MS < 8 * 60_000
    assert left_out(*rounds) == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"result": "succeeded"}, [[], [], []]),
        ({"result": None}, [[], [A], [A]]),
        ({"result": "failed"}, [[], [A], [A]]),
        ({"result": "succeeded", "decided_ms": 59_000}, [[], [A], [A]]),
    ],
    ids=["confirmed", "not answered", "failed", "one of before the drain, after which it came back"],
)
def test_what_a_confirmed_unload_took_away_is_not_left_out(
    fields: dict[str, Any], found: list[list[str]]
) -> None:
    unload = decision(bundle=A, **{"decided_ms": 60_000} | fields)
    assert left_out(FULL, ONLY_B, ONLY_B, actions={1: unload}) == found


def test_an_idle_bundle_that_is_left_out_is_not_missed_its_topics_may_be_gone() -> None:
    assert left_out(FULL, ONLY_B, idle=[A]) == [[], []]


def test_what_a_broker_leaves_out_as_its_drain_begins_is_there_as_well() -> None:
    assert left_out(FULL, ONLY_B, ONLY_B, since=1) == [[], [A], [A]]


def test_what_a_policy_itself_keeps_is_left_out_once_it_forgets_it() -> None:
    """Until then it is among the broker's bundles as ``absent``. ``max_report_age_s`` is three rounds."""
    found = left_out(FULL, *[ONLY_B] * 5, keeps_absent=True)
    assert found == [[], [], [], [], [A], [A]]


def test_what_is_left_out_stays_with_its_last_traffic_and_counts_in_what_others_leave() -> None:
    drained = ControlData(drained_brokers={"b1": WINDOW})
    found = seen(load("b1", 470, bundles={B: 5.0}), load("b2", 470, bundles={OTHER: 1.0}), overlay=drained)
    record = DrainRecord(1, 2, (), {A: Traffic(40.0, 400.0)})
    made = admission(
        found, header={"drains": {"b1": record}}, fields={"overlay": drained}, drained=["b1"], hour_count=0
    )
    emptied = drains.decide(made)
    assert [(each.bundle, each.outcome, each.messages_per_s) for each in emptied.left] == [
        (B, "acted", 5.0),
        (A, "absent", 40.0),
    ]
    assert [each.evidence["bundles_left_count"] for each in emptied.unloads] == [1]


@pytest.mark.parametrize("policy", ["avg-shedder", "threshold-shedder", "fleet-planner"])
def test_a_drain_is_not_called_empty_because_one_report_lists_nothing_whatever_the_policy(
    policy: str,
) -> None:
    states = []
    for report in (load("b1", 15, bundles={}), load("b1", 15, bundles={A: 50.0})):
        events = [
            overlay(-30, drained_brokers={"b1": WINDOW}),
            load("b1", 5, bundles={A: 50.0}),
            load("b2", 5, bundles={OTHER: 10.0}),
            report,
            load("b2", 15, bundles={OTHER: 10.0}),
            sweep(26),
        ]
        last = run([events], settings_of(shedding_policy=policy)).summaries[-1]["maintenance"]
        states.append((last["drains"][0]["state"], last["drains"][0]["bundles_left_count"]))
    assert states == [("draining", 1)] * 2


@pytest.mark.parametrize(
    ("unlisted", "own", "state"),
    [
        (50.0, [], "busy"),
        (50.0, ["pulsar/system/0x00000000_0x80000000"], "busy"),
        (0.4, [], "empty"),
    ],
    ids=["traffic of no bundle that it lists", "the same beside Pulsar's own", "as much as a health check"],
)
def test_a_broker_whose_totals_show_traffic_of_no_bundle_that_it_lists_is_not_called_empty(
    unlisted: float, own: list[str], state: str
) -> None:
    events = [
        overlay(-30, drained_brokers={"b1": WINDOW}),
        load("b1", 5, rate=unlisted, unlisted=unlisted, system_bundles=own),
        load("b2", 5, bundles={OTHER: 10.0}),
        sweep(16),
    ]
    [row] = run([events], settings_of()).summaries[-1]["maintenance"]["drains"]
    assert (row["state"], row["bundles_left_count"]) == (state, 0)
