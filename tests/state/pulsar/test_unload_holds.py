"""Why a wanted unload does not happen: of several holds the first one is the reason, and only what happens spends the budget."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.shedding import avg_shedder, fleet_planner
from policies.shedding.registry import AnyPolicy
from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY
from state.closing import Hold
from state.pulsar.holds import Calm, Holds, Move, hold_leaving, hold_unload
from tests.state.building import circumstances, required, ruled, seen, spent, told_to_leave
from tests.state.traces import load

A, B, C = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c"))
MOVE = Move(0, 0, 1)
"""Bundle A, half of the traffic of b1 and so 25 of its 50 points, goes from b1 to b2, which is at 100 points with bundle C."""
REPORTS = (
    load("b1", 470, cpu=50.0, bundles={A: 30.0, B: 30.0}),
    load("b2", 470, cpu=100.0, bundles={C: 10.0}),
)
FOUND = seen(*REPORTS)
PAUSED = Holds(unload=Hold("paused", "why"), split=None)
CALM = Calm(Hold("calm-after-change", "why"), overloaded_ratio=0.75)


def rules_of(**options: Any) -> Rules:
    """Rules with three unloads a round; options are those of ``ruled``."""
    return ruled(FOUND, **{"max_unloads_per_round_count": 3} | options)[1]


def hold(
    *,
    move: Move = MOVE,
    rules: Rules | None = None,
    split_rows: tuple[int, ...] = (),
    is_proposed: bool = False,
    **shared: Any,
) -> Hold | None:
    return hold_unload(
        move,
        FOUND.table,
        circumstances(**shared),
        rules or rules_of(),
        split_rows=split_rows,
        is_proposed=is_proposed,
    )


CAUSES: dict[str, Mapping[str, Any]] = {
    "paused": {"holds": PAUSED},
    "split-instead": {"split_rows": (0,)},
    "calm-after-change": {"calm": CALM},
    "too-little-benefit": {"min_benefit_points": 30.0},
    "anti-affinity": {"groups": {"spread": ["t/a", "t/c"]}},
    "proposed": {"asking": required(waiting={"b1": "p"}), "is_proposed": True},
    "budget": {"hour_count": 60},
}
"""Each hold's cause, in the order in which they are asked."""


def held_by(*causes: str) -> tuple[str | None, Rules]:
    """The reason of the hold, and the rules after that."""
    fields: dict[str, Any] = {}
    for each in causes:
        fields |= CAUSES[each]
    rules = rules_of(**{name: fields.pop(name) for name in ("groups", "hour_count") if name in fields})
    found = hold(rules=rules, **fields)
    return None if found is None else found.reason, rules


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=list(CAUSES))
def test_of_all_holds_that_apply_the_first_one_is_the_reason(place: int) -> None:
    names = list(CAUSES)
    assert held_by(*names[place:])[0] == names[place]


@pytest.mark.parametrize("cause", CAUSES)
def test_each_hold_is_enough_by_itself_and_what_is_held_spends_nothing(cause: str) -> None:
    reason, rules = held_by(cause)
    assert reason == cause
    assert (spent(rules)["unloads_per_round"], told_to_leave(rules)) == (0, [])


def test_an_unload_that_nothing_holds_spends_the_budget_of_its_owner_and_namespace() -> None:
    rules = rules_of(max_unloads_per_broker_count=5, max_unloads_per_namespace_count=5)
    assert hold(rules=rules) is None
    assert told_to_leave(rules) == [0]
    assert spent(rules) == {
        "unloads_per_round": 1,
        "unloads_per_hour": 1,
        "drain_unloads_per_hour": 0,
        "unloads_per_broker": 1,
        "unloads_per_namespace": 1,
    }


def test_the_owner_keeps_one_of_the_bundles_that_it_owns() -> None:
    rules = rules_of()
    assert hold(rules=rules) is None
    last = hold(move=Move(1, 0, 1), rules=rules)
    assert last == Hold("sole-bundle", "b1 owns no other bundle that stays: 1 were told to leave")


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (avg_shedder.POLICY, "it is too big for any other broker and is split in this round"),
        (fleet_planner.POLICY, "it is split in this round, and its parts may move in a later one"),
    ],
    ids=["a policy that moves", "a policy that splits first"],
)
def test_a_bundle_that_is_split_is_not_moved_and_is_told_why(policy: AnyPolicy, why: str) -> None:
    assert hold(split_rows=(2, 0), policy=policy) == Hold("split-instead", why)
    assert hold(split_rows=(1, 2), policy=policy) is None


@pytest.mark.parametrize(
    ("overloaded_ratio", "is_held"), [(0.51, True), (0.5, False), (0.25, False)], ids=["below", "at", "above"]
)
def test_while_brokers_come_and_go_only_an_overloaded_source_gives(
    overloaded_ratio: float, *, is_held: bool
) -> None:
    calm = Calm(CALM.hold, overloaded_ratio)
    assert hold(calm=calm) == (CALM.hold if is_held else None)
    assert hold(calm=calm, move=Move(2, 1, 0), rules=rules_of(keep_sole_bundle=False)) is None


@pytest.mark.parametrize(
    ("least_points", "held"),
    [(0.0, None), (25.0, None), (25.5, "25.5"), (1000.25, "1000.25")],
    ids=["off", "as much", "a little more", "far more"],
)
def test_an_unload_that_lowers_its_source_too_little_is_not_worth_it(
    least_points: float, held: str | None
) -> None:
    found = hold(min_benefit_points=least_points)
    assert (found and (found.reason, found.detail)) == (
        held
        and ("too-little-benefit", f"it would lower b1 by 25 points, min_unload_benefit_points is {held}")
    )


@pytest.mark.parametrize(
    ("waiting", "destination", "is_proposed", "detail"),
    [
        ({"b1": "p"}, 1, True, "proposal p of b1 waits for approval"),
        ({"b2": "q"}, 1, True, "proposal q of b2 waits for approval"),
        ({"b1": "p", "b2": "q"}, 1, True, "proposal p of b1 waits for approval"),
        ({"b2": "q"}, NOBODY, True, None),
        ({"b3": "r"}, 1, True, None),
        ({"b1": "p"}, 1, False, None),
    ],
    ids=[
        "source",
        "destination",
        "both",
        "Pulsar chooses the destination",
        "another",
        "it needs no approval",
    ],
)
def test_nothing_more_is_proposed_for_a_broker_that_waits_for_a_person(
    waiting: dict[str, str], destination: int, *, is_proposed: bool, detail: str | None
) -> None:
    found = hold(move=Move(0, 0, destination), asking=required(waiting=waiting), is_proposed=is_proposed)
    assert (found and found.detail) == detail
    assert found is None or found.reason == "proposed"


@pytest.mark.parametrize(
    ("shared", "fields", "reason"),
    [
        ({}, {}, None),
        ({"holds": PAUSED}, {"drained_count": 300}, "paused"),
        ({"holds": Holds(unload=None, split=Hold("paused", "why"))}, {}, None),
        ({}, {"drained_count": 300}, "budget"),
        ({}, {"hour_count": 60}, None),
        ({"calm": CALM, "min_benefit_points": 100.0}, {"leaving": {"b1": {B}}}, None),
    ],
    ids=[
        "nothing",
        "the round",
        "splits",
        "drains of the hour",
        "unloads of the hour",
        "what holds a policy",
    ],
)
def test_a_bundle_leaves_a_drained_broker_unless_the_round_or_the_budget_of_drains_holds_it(
    shared: dict[str, Any], fields: dict[str, Any], reason: str | None
) -> None:
    apart = seen(*REPORTS, apart=("b1",))
    _, rules = ruled(apart, drained=("b1",), **fields)
    found = hold_leaving(rules.first_row_of("b1"), circumstances(**shared), rules)
    assert (found and found.reason) == reason
    assert spent(rules)["drain_unloads_per_hour"] == fields.get("drained_count", 0)
