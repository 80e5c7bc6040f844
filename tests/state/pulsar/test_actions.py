"""From a plan to actions: which unloads happen, together with which, and what each of them says.

Swaps and proposals are in ``test_actions_together``.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from policies.shedding import avg_shedder
from policies.shedding.contract import Examined, SheddingPlan
from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY
from state.facts import Isolation
from state.outputs import Unload
from state.pulsar.groups import Groups
from state.pulsar.holds import Circumstances
from state.pulsar.shedding import Admitted, After, admit
from tests.policies.fleets import evidence_names
from tests.state.building import EXPIRES_AT, Seen, circumstances, ruled, seen, spent
from tests.state.traces import load

A, B, C, D, E = (f"t/{name}/0x0_0x1" for name in "abcde")
"""Bundle rows 0 to 4, of namespaces of their own."""


def cluster(groups: Groups | None = None) -> Seen:
    """b1 is at 75 points with A of 60, B of 30 and C of 10 messages/s, b2 at 25 with D of 20 and E of 5, b3 idles at 50."""
    return seen(
        load("b1", 470, cpu=75.0, bundles={A: 60.0, B: 30.0, C: 10.0}),
        load("b2", 470, cpu=25.0, bundles={D: 20.0, E: 5.0}),
        load("b3", 470, cpu=50.0),
        groups=groups,
    )


Wanted = tuple[int, int] | tuple[int, int, int]
"""Bundle row and broker row of its destination; in a swap, also the bundle row that it is unloaded for."""


def plan(*wanted: Wanted, **fields: Any) -> SheddingPlan:
    """Unloads that come, in turn, from the pair b1 and b2, found by the high threshold, and b1 and b3, by the low one."""
    rows = np.array([each[0] for each in wanted])
    count = np.arange(len(wanted))
    evidence = {name: np.array([1.0, 2.0]) for name in evidence_names(avg_shedder.POLICY)}
    usual: dict[str, Any] = {
        "examined": Examined(
            high=np.array([0, 0]),
            low=np.array([1, 2]),
            outcome=np.zeros(2, dtype=np.int8),
            outcomes=avg_shedder.POLICY.outcomes,
            trigger=np.array([2, 1], dtype=np.int8),
            triggers=avg_shedder.POLICY.triggers,
            evidence=evidence,
        ),
        "unload_rows": rows,
        "unload_destinations": np.array([each[1] for each in wanted]),
        "unload_examined": count % 2,
        "unload_for": np.array([each[2] if len(each) > 2 else each[0] for each in wanted]),
        "tried_rows": rows,
        "tried_outcomes": np.zeros(len(wanted), dtype=np.int8),
        "tried_examined": count % 2,
    }
    return SheddingPlan(**usual | fields)


@dataclass(kw_only=True)
class Round:
    """What a round admits, and what it leaves of the rules and the loads."""

    rules: Rules
    after: After
    admitted: Admitted

    @property
    def moves(self) -> list[tuple[str, str | None]]:
        return [(each.bundle, each.destination_broker) for each in self.admitted.unloads]

    @property
    def proposed(self) -> list[str]:
        return [each.bundle for each in self.admitted.proposals]

    @property
    def holds(self) -> dict[int, tuple[str, str]]:
        return {row: (each.reason, each.detail) for row, each in self.admitted.holds.items()}


def admitted(
    wanted: SheddingPlan,
    *,
    shared: Circumstances | None = None,
    together: tuple[str, ...] = (),
    split_rows: Collection[int] = (),
    done_rows: Collection[int] = (),
    groups: Groups | None = None,
    hour_count: int = 0,
    **guards: Any,
) -> Round:
    """A round that decides on a plan; ``together`` are namespaces of one anti-affinity group."""
    found = cluster(groups)
    limits = {"keep_sole_bundle": False} | guards
    table, rules = ruled(found, groups={"spread": list(together)}, hour_count=hour_count, **limits)
    after = After(table.view)
    decided = admit(
        table,
        wanted,
        rules,
        shared or circumstances(),
        after,
        split_rows=split_rows,
        done_rows=done_rows,
    )
    return Round(rules=rules, after=after, admitted=decided)


def test_the_budget_is_spent_in_the_order_of_the_policy() -> None:
    found = admitted(plan((1, 1), (0, 2), (2, 1), (3, 0)), max_unloads_per_round_count=2)
    assert found.moves == [(B, "b2"), (A, "b3")]
    held = ("budget", "max_unloads_per_round_count 2 is spent")
    assert found.holds == {2: held, 3: held}
    assert spent(found.rules)["unloads_per_round"] == 2


def test_what_a_hold_keeps_leaves_the_budget_to_the_next() -> None:
    found = admitted(plan((0, 1), (1, 1)), split_rows=(0,), max_unloads_per_round_count=1)
    assert found.moves == [(B, "b2")]
    assert found.holds.keys() == {0}


def test_a_bundle_whose_approved_unload_goes_out_is_neither_unloaded_again_nor_held() -> None:
    found = admitted(plan((0, 1), (1, 1)), done_rows={0}, max_unloads_per_round_count=1)
    assert (found.moves, found.holds) == ([(B, "b2")], {})


def test_a_plan_without_unloads_admits_nothing() -> None:
    assert admitted(plan()).admitted == Admitted()


NUMBERS: dict[str, Any] = dict.fromkeys(evidence_names(avg_shedder.POLICY), 1.0)


def test_an_unload_says_what_it_was_decided_on_and_what_must_still_hold() -> None:
    """The brokers are at 75, 25 and 50 points, so 50 on the mean."""
    (found,) = admitted(
        plan((0, 1), unload_evidence={"destination_usage_points": np.array([25.0])})
    ).admitted.unloads
    assert found == Unload(
        cluster="east-1",
        round=7,
        policy="avg-shedder",
        trigger="high-threshold",
        reason="b1 is at 1.0 % and b2 at 1.0 %, 1.0 points apart with 1 allowed, found in 1 round, 1 needed: moving "
        f"{A} (60 messages/s, 600 bytes/s) to b2, the least used at 25.0 %",
        evidence=NUMBERS
        | {
            "destination_usage_points": 25.0,
            "bundle_messages_per_s": 60.0,
            "bundle_bytes_per_s": 600.0,
            "brokers_count": 3,
            "mean_usage_points": 50.0,
        },
        expected={
            "source": {"messages_per_s": 40.0, "bytes_per_s": 400.0},
            "destination": {"messages_per_s": 85.0, "bytes_per_s": 850.0},
        },
        precondition={"owner": "b1", "range": "0x0_0x1"},
        expires_at=EXPIRES_AT,
        dry_run=False,
        bundle=A,
        source_broker="b1",
        destination_broker="b2",
    )


def test_each_unload_has_the_trigger_and_the_numbers_of_its_own_finding() -> None:
    """The second one comes from the pair b1 and b3, and its column of evidence has its own number."""
    points = {"destination_usage_points": np.array([25.0, 50.0])}
    _, found = admitted(plan((0, 1), (1, 2), unload_evidence=points)).admitted.unloads
    assert found.trigger == "low-threshold"
    assert found.reason.startswith("b1 is at 2.0 % and b3 at 2.0 %")
    assert found.evidence["difference_points"] == 2.0
    assert found.evidence["destination_usage_points"] == 50.0


def test_where_pulsar_chooses_the_destination_none_is_named_and_only_the_source_changes() -> None:
    (found,) = admitted(plan((0, NOBODY))).admitted.unloads
    assert found.destination_broker is None
    assert found.expected == {"source": {"messages_per_s": 40.0, "bytes_per_s": 400.0}}


def test_a_finding_about_one_broker_alone_is_about_the_owner_of_what_moves() -> None:
    """The finding names neither broker, as that of a policy that looks at the whole fleet."""
    wanted = plan((3, 0))
    nobody = np.array([NOBODY, NOBODY])
    (found,) = admitted(
        replace(wanted, examined=replace(wanted.examined, high=nobody, low=nobody))
    ).admitted.unloads
    assert found.reason.startswith("b2 is at 1.0 % and None at 1.0 %")
    assert " in return " not in found.reason


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_unload_of_a_dry_run_is_marked_as_one(*, dry_run: bool) -> None:
    (found,) = admitted(plan((0, 1)), shared=circumstances(dry_run=dry_run)).admitted.unloads
    assert (found.dry_run, found.proposal is True) == (dry_run, False)


def test_each_unload_expects_the_loads_that_those_before_it_leave() -> None:
    """b1 has 100 messages/s, b2 25: A leaves 40 and 85, then B 10 and 115, and D brings b1 to 30 and b2 to 95."""
    found = admitted(plan((0, 1), (1, 1), (3, 0)))
    rates = [
        [each.expected[side]["messages_per_s"] for side in ("source", "destination")]
        for each in found.admitted.unloads
    ]
    assert rates == [[40.0, 85.0], [10.0, 115.0], [95.0, 30.0]]
    assert found.after.receive(0, 0.0, 0.0) == {"messages_per_s": 30.0, "bytes_per_s": 300.0}


ISOLATED = Groups((Isolation("blue", ["t/a", "t/d"], ["b[12]"]),))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [((0, 1), (2, 50.0, "blue")), ((3, 0), (2, 50.0, "blue"))],
    ids=["from b1", "from b2"],
)
def test_a_broker_is_compared_with_those_of_its_isolation_group(
    wanted: Wanted, expected: tuple[int, float, str]
) -> None:
    """b1 and b2 are at 75 and 25 points."""
    (found,) = admitted(plan(wanted), groups=ISOLATED).admitted.unloads
    names = ("brokers_count", "mean_usage_points", "group")
    assert tuple(found.evidence[name] for name in names) == expected


def test_each_group_has_its_own_mean_and_the_default_group_no_name() -> None:
    """b1 is alone in its group; b2 and b3 are at 25 and 50 points."""
    alone = Groups((Isolation("blue", ["t/a"], ["b1"]),))
    found = admitted(plan((0, NOBODY), (3, 2), (1, NOBODY)), groups=alone).admitted.unloads
    assert [
        (each.evidence["brokers_count"], each.evidence["mean_usage_points"], each.evidence.get("group"))
        for each in found
    ] == [(1, 75.0, "blue"), (2, 37.5, None), (1, 75.0, "blue")]


@pytest.mark.parametrize(
    ("first", "moves"),
    [((0, 2), [(A, "b3")]), ((0, NOBODY), [(A, None), (D, "b3")])],
    ids=["to the same broker", "to one that Pulsar chooses"],
)
def test_an_unload_counts_in_its_anti_affinity_group_for_those_after_it(
    first: Wanted, moves: list[tuple[str, str | None]]
) -> None:
    """D goes to b3 only if nothing of its group went there before it."""
    found = admitted(plan(first, (3, 2)), together=("t/a", "t/d"))
    assert found.moves == moves
