"""What a summary says of each broker: what it carries, what rests, and why it may not give or receive now."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from state.facts import Isolation
from state.ledger import Decision, Verdict, end_watch
from state.memory import MembersChange, ProposalRecord
from state.outputs import BrokerLoad
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.brokers import broker_rows
from state.pulsar.masks import Mask
from state.pulsar.view import policy_view
from tests.state.building import PROPOSALS_EXPIRE_MS, decision, guarded, ledger_of, seen, uneven
from tests.state.traces import load

A, B, C = "t/a/0x0_0x4", "t/b/0x4_0x8", "t/c/0x8_0xc"
B1 = load("b1", 470, cpu=90, bundles={A: 3.0, B: 1.0})
B2 = load("b2", 470, cpu=10, bundles={C: 1.0})
ONLY_C = "its only bundle stays (keep_sole_bundle)"
UNDER_WAY = "the reports do not show its last move yet"
UNREACHED = "the last unloads to it landed at other brokers, see the finding landed-elsewhere; it is chosen again within the hour"
ALONE = "no other broker of its isolation group takes part in balancing"
WINDOW = {"b1": MaintenanceWindow(since=moment_at(0))}
PROPOSAL = ProposalRecord("p1", "unload", A, "b1", None, 7, PROPOSALS_EXPIRE_MS, b"")


def landed_elsewhere(decided_s: int) -> Decision:
    """An unload to b1 that landed at b3."""
    found = decision(decided_ms=1000 * decided_s, source="b2", destination="b1", is_leaving=False)
    end_watch(found, Verdict("effective", 1000 * decided_s + 30_000, "b3", 0))
    return found


def rows(
    *codes: int, reports: Any = (B1, B2), unsettled: Collection[str] = (), **fields: Any
) -> dict[str, BrokerLoad]:
    """The rows by broker; ``codes`` are the masks of the bundles, which may all move without them."""
    context = seen(*reports, **fields).context
    masks = np.array(codes or [Mask.OPEN] * context.advanced.owned_count, dtype=np.int8)
    return {row.broker: row for row in broker_rows(context, policy_view(context, masks, unsettled), masks)}


def test_it_says_how_much_comes_in_as_its_bundles_show_it_and_adds_up_to_what_the_broker_reports() -> None:
    """Of the bundles' 40 messages/s a quarter goes out; the broker reports twice as much."""
    found = rows(reports=[uneven("b1", cpu=50, bundles={A: (40, 400)}, total=(80, 400))])["b1"]
    assert (found.messages_per_s, found.in_messages_per_s) == (80, 60)
    assert (found.bytes_per_s, found.in_bytes_per_s) == (400, 300)


def test_what_comes_in_is_not_known_where_no_bundle_shows_the_traffic_and_none_where_there_is_none() -> None:
    unseen, idle = (load(name, 470, bundles={name: None}, rate=rate) for name, rate in (("b1", 5), ("b2", 0)))
    found = rows(reports=[unseen, idle])
    assert (found["b1"].in_messages_per_s, found["b1"].in_bytes_per_s) == (None, None)
    assert (found["b2"].in_messages_per_s, found["b2"].in_bytes_per_s) == (0, 0)


def test_it_counts_the_bundles_that_rest_after_a_move() -> None:
    found = rows(Mask.COOLDOWN, Mask.OPEN, Mask.OPEN)
    assert [(row.bundles_count, row.resting_count) for row in found.values()] == [(2, 1), (1, 0)]
    assert (found["b1"].gives_none_reason, found["b2"].gives_none_reason) == (None, ONLY_C)


@pytest.mark.parametrize(
    ("fields", "gives", "receives"),
    [
        ({}, None, None),
        ({"apart": ["b1"]}, "it is under maintenance", "it is under maintenance"),
        ({"overlay": ControlData(drained_brokers=WINDOW)}, None, "it is drained"),
        ({"settings": guarded(excluded_brokers=("b1",))}, *["it is in excluded_brokers"] * 2),
        ({"unsettled": ["b1"]}, UNDER_WAY, UNDER_WAY),
        (
            {"unsettled": ["b1"], "header": {"ledger": ledger_of(*map(landed_elsewhere, (300, 360, 420)))}},
            None,
            UNREACHED,
        ),
        ({"isolation": [Isolation("east", ["t/.*"], ["b1"])]}, ALONE, ALONE),
        (
            {"header": {"proposals": [PROPOSAL]}, "proposals_expire_ms": PROPOSALS_EXPIRE_MS},
            *["proposal p1 waits for approval"] * 2,
        ),
        (
            {"reports": [load("b1", 470, bundles={}), B2]},
            "it has no bundle",
            None,
        ),
        (
            {"reports": [load("b1", 470, bundles={A: 1.0}), B2]},
            ONLY_C,
            None,
        ),
        (
            {"reports": [load("b1", 470, bundles={A: 1.0}), B2], "settings": guarded(keep_sole_bundle=False)},
            None,
            None,
        ),
        (
            {
                "header": {"members_change": MembersChange(6, "b2", "")},
                "settings": guarded(calm_after_change_rounds=3),
                "reports": [load("b1", 470, cpu=50, bundles={A: 3.0, B: 1.0}), B2],
            },
            "b2 joined in round 6: nothing moves before round 9",
            None,
        ),
        (
            {
                "header": {"members_change": MembersChange(6, "b2", "")},
                "settings": guarded(calm_after_change_rounds=3),
            },
            None,
            None,
        ),
    ],
    ids=[
        "nothing",
        "maintenance",
        "drained",
        "excluded",
        "unsettled",
        "unreached",
        "alone in its group",
        "proposed",
        "empty",
        "one bundle",
        "one bundle that may move",
        "calm",
        "calm, but overloaded",
    ],
)
def test_it_says_why_a_broker_may_not_give_or_receive(
    fields: dict[str, Any], gives: str | None, receives: str | None
) -> None:
    found = rows(**fields)["b1"]
    assert (found.gives_none_reason, found.receives_none_reason) == (gives, receives)


def test_bundles_of_a_drained_broker_may_come_whatever_holds_balancing() -> None:
    found = rows(unsettled=["b1"], overlay=ControlData(drained_brokers={"b2": WINDOW["b1"]}))
    assert found["b1"].receives_none_reason == f"{UNDER_WAY}; only bundles of drained brokers may come"
    assert (found["b1"].gives_none_reason, found["b2"].receives_none_reason) == (UNDER_WAY, "it is drained")


def test_where_no_bundle_may_move_it_counts_why() -> None:
    found = rows(Mask.COOLDOWN, Mask.ABSENT, Mask.OPEN)["b1"]
    assert found.gives_none_reason == "1 bundle is absent from the report of its owner, 1 rests after a move"
    assert found.receives_none_reason is None


@pytest.mark.parametrize(
    ("policy", "why"),
    [("fleet-planner", "it measures nothing that counts as usage"), ("avg-shedder", None)],
)
def test_the_fleet_planner_leaves_a_broker_alone_that_measures_nothing(policy: str, why: str | None) -> None:
    blind = load("b1", 470, bundles={A: 3.0, B: 1.0})
    blind.report.resources[:] = -1.0
    found = rows(reports=[blind, B2], settings=guarded(policy))["b1"]
    assert (found.gives_none_reason, found.receives_none_reason) == (why, why)


def test_the_hundred_heaviest_are_shown_first_those_of_equal_usage_by_name() -> None:
    reports = [load(f"b{number:03}", 470, cpu=number // 2, bundles={}) for number in range(102)]
    shown = list(rows(reports=reports))
    assert shown[:4] == ["b100", "b101", "b098", "b099"]
    assert len(shown) == 100
