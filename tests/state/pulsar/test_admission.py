"""Why a wanted unload does not happen: of several holds the first one is the reason, and only what happens spends the budget."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.shedding.view import NOBODY
from state.closing import Hold
from state.memory import ProposalRecord
from state.pulsar.admission import Admission, Move, share_of
from state.pulsar.holds import Calm, Holds
from tests.state.building import (
    PROPOSALS_EXPIRE_MS,
    admission,
    guarded,
    seen,
    spent,
    told_to_leave,
    uneven,
)
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
ASKED = {"proposals_expire_ms": PROPOSALS_EXPIRE_MS}


def opened(*sides: tuple[str, str | None]) -> dict[str, Any]:
    """A header with open proposals, by source and destination: p, q and so on."""
    return {
        "proposals": [
            ProposalRecord(id_, "unload", C, source, destination, 6, PROPOSALS_EXPIRE_MS, b"{}")
            for id_, (source, destination) in zip("pqr", sides, strict=False)
        ]
    }


def admitting(**options: Any) -> Admission:
    """An admission with three unloads a round; options are those of ``admission``."""
    return admission(FOUND, **{"max_unloads_per_round_count": 3} | options)


CAUSES: dict[str, Mapping[str, Any]] = {
    "paused": {"holds": PAUSED},
    "split-instead": {"split_rows": (0,)},
    "calm-after-change": {"calm": CALM},
    "too-little-benefit": {"settings": guarded(min_unload_benefit_points=30.0)},
    "anti-affinity": {"groups": {"spread": ["t/a", "t/c"]}},
    "proposed": {"header": opened(("b1", None)), "is_proposed": True},
    "budget": {"hour_count": 60},
}
"""Each hold's cause, in the order in which they are asked."""


def held_by(*causes: str) -> tuple[str | None, Admission]:
    """The reason of the hold, and the admission after that."""
    options: dict[str, Any] = {}
    for each in causes:
        options |= CAUSES[each]
    asked = {name: options.pop(name) for name in ("split_rows", "is_proposed") if name in options}
    fields = ASKED | {name: options.pop(name) for name in ("settings",) if name in options}
    made = admitting(fields=fields, **options)
    found = made.hold(MOVE, **asked)
    return None if found is None else found.reason, made


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=list(CAUSES))
def test_each_hold_is_enough_by_itself_spends_nothing_and_comes_before_those_after_it(place: int) -> None:
    names = list(CAUSES)
    assert held_by(*names[place:])[0] == names[place]
    reason, made = held_by(names[place])
    assert reason == names[place]
    assert (spent(made.rules)["unloads_per_round"], told_to_leave(made.rules)) == (0, [])


def test_an_unload_that_nothing_holds_spends_the_budget_of_its_owner_and_namespace() -> None:
    made = admitting(max_unloads_per_broker_count=5, max_unloads_per_namespace_count=5)
    assert made.hold(MOVE) is None
    assert told_to_leave(made.rules) == [0]
    assert spent(made.rules) == {
        "unloads_per_round": 1,
        "unloads_per_hour": 1,
        "drain_unloads_per_hour": 0,
        "unloads_per_broker": 1,
        "unloads_per_namespace": 1,
    }


def test_the_owner_keeps_one_of_the_bundles_that_it_owns() -> None:
    made = admitting()
    assert made.hold(MOVE) is None
    last = made.hold(Move(1, 0, 1))
    assert last == Hold("sole-bundle", "b1 owns no other bundle that stays: 1 was told to leave")


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("avg-shedder", "it is too big for any other broker, and is split"),
        ("fleet-planner", "it is split, and its parts may move in a later round"),
    ],
    ids=["a policy that moves", "a policy that splits first"],
)
def test_a_bundle_that_is_split_is_not_moved_and_is_told_why(policy: str, why: str) -> None:
    made = admitting(fields={"settings": guarded(policy)})
    assert made.hold(MOVE, split_rows=(2, 0)) == Hold("split-instead", why)
    assert made.hold(MOVE, split_rows=(1, 2)) is None


@pytest.mark.parametrize(
    ("overloaded_ratio", "is_held"), [(0.51, True), (0.5, False), (0.25, False)], ids=["below", "at", "above"]
)
def test_while_brokers_come_and_go_only_an_overloaded_source_gives(
    overloaded_ratio: float, *, is_held: bool
) -> None:
    made = admitting(calm=Calm(CALM.hold, overloaded_ratio), keep_sole_bundle=False)
    assert made.hold(MOVE) == (CALM.hold if is_held else None)
    assert made.hold(Move(2, 1, 0)) is None


@pytest.mark.parametrize(
    ("policy", "least_points", "held"),
    [
        ("avg-shedder", 0.0, None),
        ("avg-shedder", 25.0, None),
        ("avg-shedder", 25.5, "25.5"),
        ("avg-shedder", 1000.25, "1000.25"),
        ("fleet-planner", 1000.25, None),
    ],
    ids=["off", "as much", "a little more", "far more", "a plan that is judged as a whole"],
)
def test_an_unload_that_lowers_its_source_too_little_is_not_worth_it(
    policy: str, least_points: float, held: str | None
) -> None:
    settings = guarded(policy, min_unload_benefit_points=least_points)
    found = admitting(fields={"settings": settings}).hold(MOVE)
    assert (found and (found.reason, found.detail)) == (
        held
        and ("too-little-benefit", f"it would lower b1 by 25 points, min_unload_benefit_points is {held}")
    )


@pytest.mark.parametrize(
    ("sides", "destination", "is_proposed", "detail"),
    [
        ([("b1", None)], 1, True, "proposal p of b1 waits for approval"),
        ([("b9", None), ("b2", None)], 1, True, "proposal q of b2 waits for approval"),
        ([("b9", "b1")], 1, True, "proposal p of b1 waits for approval"),
        ([("b1", None), ("b2", None)], 1, True, "proposal p of b1 waits for approval"),
        ([("b2", None)], NOBODY, True, None),
        ([("b3", None)], 1, True, None),
        ([("b1", None)], 1, False, None),
    ],
    ids=[
        "source",
        "destination",
        "as a destination",
        "both",
        "Pulsar chooses the destination",
        "another",
        "it needs no approval",
    ],
)
def test_nothing_more_is_proposed_for_a_broker_that_waits_for_a_person(
    sides: list[tuple[str, str | None]], destination: int, *, is_proposed: bool, detail: str | None
) -> None:
    made = admitting(header=opened(*sides), fields=ASKED)
    found = made.hold(Move(0, 0, destination), is_proposed=is_proposed)
    assert (found and (found.reason, found.detail)) == (detail and ("proposed", detail))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"holds": PAUSED, "drained_count": 300}, "paused"),
        ({"holds": Holds(unload=None, split=Hold("paused", "why"))}, None),
        ({"drained_count": 300}, "budget"),
        ({"hour_count": 60}, None),
        (
            {"calm": CALM, "fields": {"settings": guarded(min_unload_benefit_points=100.0)}}
            | {"leaving": {"b1": {B}}},
            None,
        ),
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
    options: dict[str, Any], reason: str | None
) -> None:
    made = admission(seen(*REPORTS, apart=("b1",)), drained=("b1",), **options)
    found = made.hold_leaving(made.rules.first_row_of("b1"))
    assert (found and found.reason) == reason
    assert spent(made.rules)["drain_unloads_per_hour"] == options.get("drained_count", 0)


@pytest.mark.parametrize(
    ("row", "source", "share"), [(0, 0, 0.5), (1, 0, 0.75), (2, 0, 1.0), (3, 1, 0.0), (4, 1, 1.0)]
)
def test_a_bundle_takes_its_share_of_messages_or_bytes_whichever_is_more(
    row: int, source: int, share: float
) -> None:
    """b1 has 80 messages/s and 400 bytes/s, the third of its bundles more by its average; b2 reports no traffic at all."""
    names = [f"t/a/0x{at}_0x{at + 1}" for at in range(3)]
    bundles = dict(zip(names, [(40.0, 100.0), (10.0, 300.0), (4.0, 800.0)], strict=True))
    view = seen(
        uneven("b1", cpu=50.0, bundles=bundles, total=(80.0, 400.0)),
        load("b2", 470, bundles={"t/b/0x0_0x1": 0.0, "t/b/0x1_0x2": 1.0}, rate=0.0),
    ).table.view
    assert share_of(view, Move(row, source, NOBODY)) == share
