"""What trimtab 0.1.0 remembered of its decisions answers the same questions in the ledger."""

from pathlib import Path
from typing import Any

import msgspec

from state.engine.encoding import decode_header
from state.engine.ledger import Ledger
from state.engine.memory import Header
from state.settings import PulsarSettings

GOLDEN = Path(__file__).parents[1] / "golden_state/v0.1.0/header-pulsar.bin"
PULSAR = PulsarSettings()
"""Bundles rest 30 minutes after an unload, two hours after an action without effect."""
HOUR_MS = 3_600_000
A, B, C, D, E = (f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(5))
LEFT, RIGHT = "t/n/0x20000000_0x28000000", "t/n/0x28000000_0x30000000"


def header_of_0_1_0(**fields: Any) -> bytes:
    """The golden header with other decisions, as 0.1.0 would have stored it."""
    names = ("actions", "unloads", "splits", "inheritances", "trials", "verdicts", "ineffective")
    places = {name: 11 + at for at, name in enumerate(names)} | {"failing_since_ms": 18, "leaving": 23}
    stored = GOLDEN.read_bytes()
    body = msgspec.msgpack.decode(stored[1:])
    for name, place in places.items():
        body[place] = fields.get(name, [] if name in ("unloads", "verdicts") else {})
    return stored[:1] + msgspec.msgpack.encode(body)


def ledger_of(**fields: Any) -> Ledger:
    return decode_header(header_of_0_1_0(**fields)).ledger


def test_bundles_rest_and_are_in_flight_as_before() -> None:
    ledger = ledger_of(
        actions={
            A: ["a", 1000, 181_000, False, True, False],
            B: ["b", 1000, 181_000, False, False, False],
            C: ["c", 1000, 181_000, False, False, True],
        },
        splits={D: ["d", 1000, 181_000, False, True, False], LEFT: ["s", 1000, 181_000, True, False, False]},
    )
    unloads = ledger.resting("unload", PULSAR, end_ms=60_000)
    splits = ledger.resting("split", PULSAR, end_ms=60_000)
    assert (unloads.in_flight, unloads.cooling) == ({A}, {A, B}), "the failed one of C rests no more"
    assert (splits.in_flight, splits.cooling) == ({D}, {D, LEFT})


def test_a_watched_split_its_children_and_their_shares_are_one_decision() -> None:
    ledger = ledger_of(
        splits={name: ["s", 1000, 181_000, False, name == C, False] for name in (C, LEFT, RIGHT)},
        inheritances={C: [361_000, [[LEFT, 0.75, 0.5], [RIGHT, 0.25, 0.5]]]},
        trials={"s": ["split", C, "b1", None, [LEFT, RIGHT], 1000, 361_000, None, 0]},
    )
    (decision,) = ledger.decisions
    assert (decision.bundle, decision.source, decision.is_watched) == (C, "b1", True)
    assert [(name, len(children)) for name, children in ledger.expected_children(end_ms=2000)] == [(C, 2)]
    assert decision.children[0].messages_ratio == 0.75
    resting = ledger.resting("split", PULSAR, end_ms=60_000)
    assert (resting.in_flight, resting.cooling) == ({C}, {C, LEFT, RIGHT})


def test_an_unload_on_its_way_is_one_decision() -> None:
    ledger = ledger_of(
        actions={A: ["a", 1000, 181_000, False, False, False]},
        trials={"a": ["unload", A, "b1", "b2", [], 1000, 361_000, 5000, 1]},
        leaving={A: ["a", "b1", 361_000, False]},
        unloads=[[1000, 1, False]],
    )
    (decision,) = ledger.decisions
    assert (decision.succeeded_ms, decision.rounds_count, decision.result) == (5000, 1, "succeeded")
    assert ledger.unloads_on_their_way() == [decision]
    assert ledger.unsettled_brokers(end_ms=60_000) == {"b1", "b2"}


def test_an_action_that_ended_without_success_was_skipped() -> None:
    ledger = ledger_of(
        actions={A: ["a", 1000, 181_000, False, False, False], B: ["b", 1000, 181_000, False, False, True]},
        trials={"a": ["unload", A, "b1", "b2", [], 1000, 361_000, None, 0]},
    )
    assert {each.bundle: each.result for each in ledger.decisions} == {A: "skipped", B: "failed"}


def test_children_of_a_split_that_nothing_else_is_known_of_are_expected() -> None:
    ledger = ledger_of(inheritances={C: [361_000, [[LEFT, 0.75, 0.5]]]})
    (decision,) = ledger.decisions
    assert (decision.kind, decision.bundle, decision.until_ms) == ("split", C, 361_000)
    ((name, (child,)),) = ledger.expected_children(end_ms=2000)
    assert (name, child.bundle, child.messages_ratio, child.bytes_ratio) == (C, LEFT, 0.75, 0.5)


def test_the_unloads_of_the_last_hour_are_counted_though_nothing_else_is_known_of_them() -> None:
    ledger = ledger_of(
        actions={A: ["a", 120_000, 300_000, False, False, False]},
        unloads=[[60_000, 3, False], [120_000, 2, False]],
    )
    assert len(ledger.unloads_of_last_hour(is_drain=False, end_ms=180_000)) == 5
    assert len(ledger.unloads_of_last_hour(is_drain=False, end_ms=60_000 + HOUR_MS)) == 2


def test_verdicts_count_and_a_bundle_without_effect_is_left_alone() -> None:
    ledger = ledger_of(
        verdicts=[
            ["x", "unload", "good", 50],
            ["y", "unload", "ineffective", 60],
            ["z", "split", "failed", 70],
        ],
        ineffective={E: ["unload", "b3", 60, 3]},
        failing_since_ms={"unload": 70},
    )
    outcomes = [each.verdict.outcome for each in ledger.judged() if each.verdict]
    assert outcomes == ["good", "ineffective", "failed"]
    (found,) = ledger.ineffective(7200, end_ms=100).values()
    assert (found.bundle, found.verdict and found.verdict.broker) == (E, "b3")
    assert ledger.failing_since_ms == {"unload": 70}


def test_everything_else_in_the_header_stays_where_it_was() -> None:
    header = decode_header(GOLDEN.read_bytes())
    assert (header.system, header.forget_from_ms, header.error_rounds_count) == ("pulsar", [180_000], 2)
    assert header.members_change is not None
    assert header.members_change.joined == "b1"
    later = ("drains", "proposals", "approvals", "rejected", "rebuilt", "forbidden")
    assert Header.__struct_fields__[-7:] == ("error_place", *later)
    assert header.error_place.startswith("ValueError")
