"""The rules of a round as the facts, the guards and the ledger give them, and who spends them first."""

from dataclasses import replace

import numpy as np

from policies.shedding.rules import Forbidden
from state.facts import Isolation
from state.pulsar.shedding import shed
from state.settings import ClusterSettings
from tests.state.building import ruled, seen, spent, told_to_leave
from tests.state.pulsar.test_upkeep import FIRING
from tests.state.traces import load, settings_of

A, B, C, D = (f"t/{name}/0x0_0x1" for name in "abcd")
REPORTS = (
    load("b1", 470, cpu=90.0, bundles={A: 30.0, B: 30.0}),
    load("b2", 470, cpu=10.0, bundles={C: 10.0}),
    load("b3", 470, cpu=10.0, bundles={D: 10.0}),
)


def test_the_rules_begin_with_what_the_ledger_counts_and_what_was_told_to_leave() -> None:
    _, rules = ruled(
        seen(*REPORTS),
        hour_count=3,
        drained_count=2,
        leaving={"b1": {B}, "b2": {"t/gone/0x0_0x1"}, "b9": {A}},
    )
    assert spent(rules) == {"unloads_per_round": 0, "unloads_per_hour": 3, "drain_unloads_per_hour": 2}
    assert (told_to_leave(rules), rules.staying_counts.tolist()) == ([1], [1, 1, 1])


def test_a_limit_of_0_is_off() -> None:
    off = {
        f"max_{name}_count": 0 for name in ("unloads_per_round", "unloads_per_hour", "drain_unloads_per_hour")
    }
    assert ruled(seen(*REPORTS), **off)[1].limits == ()


def test_where_no_group_is_known_nothing_is_worked_out() -> None:
    _, rules = ruled(seen(*REPORTS), domains={"east": ["b1"]})
    assert (rules.spread, rules.namespace) == (None, None)
    assert rules.bars(0, 1) is None


def test_a_drained_broker_and_its_bundles_come_after_those_of_the_view() -> None:
    """b2 takes no part; its bundle may leave for b1, which has the other namespace of its group, only if it has one as well."""
    found = seen(*REPORTS, apart=("b2",))
    _, rules = ruled(found, drained=("b2",), groups={"spread": ["t/a", "t/c"]})
    assert (list(rules.brokers), rules.first_row_of("b2")) == (["b1", "b3", "b2"], 3)
    assert rules.bars(3, 1) is None
    assert rules.bars(3, 0) == Forbidden(
        "anti-affinity", "b1 owns bundles of 1 other namespaces of anti-affinity group spread, b2 of 0"
    )


def test_a_drained_broker_without_bundles_or_without_a_report_is_no_matter() -> None:
    empty = replace(REPORTS[1], report=load("b2", 470, bundles={}).report)
    found = seen(REPORTS[0], empty, REPORTS[2], apart=("b2",))
    _, rules = ruled(found, drained=("b2", "silent"), groups={"spread": ["t/a", "t/d"]})
    assert rules.allowed(np.array([0, 1]), np.array([1])).tolist() == [[False], [True]]


def test_what_is_wanted_for_one_isolation_group_counts_in_the_rules_of_the_next_and_not_in_the_round() -> (
    None
):
    red = Isolation("red", ["t/d"], ["b3", "b4"])
    of_red, of_default = ({f"t/{name}/0x{at}_0x{at + 1}": 10.0 for at in range(4)} for name in "da")
    found = seen(
        load("b1", 470, cpu=90.0, bundles=of_default),
        REPORTS[1],
        load("b3", 470, cpu=90.0, bundles=of_red),
        load("b4", 470, cpu=10.0),
        isolation=[red],
        settings=ClusterSettings(pulsar=settings_of(**FIRING).base("c").pulsar),
    )
    table, rules = ruled(found)
    wanted = shed(found.context, table)
    assert len(wanted.parts) == 2
    (first, second) = (part.view.rules for part in wanted.parts)
    assert all(len(part.plan.unload_rows) for part in wanted.parts)
    count = len(wanted.plan.unload_rows)
    assert first is not None
    assert second is not None
    assert spent(first)["unloads_per_round"] == spent(second)["unloads_per_round"] == count
    assert spent(rules)["unloads_per_round"] == 0
