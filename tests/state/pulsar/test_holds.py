"""Why no action of a kind happens in a round of a Pulsar cluster, and which other balancer acts on it."""

from typing import Any

import pytest

from state.facts import Facts
from state.memory import Header
from state.pulsar.holds import balancer_at_work, holds_of, other_balancers
from state.settings import GuardSettings, Mode
from state.summary import join_names

NOON_MS = 12 * 3_600_000


def facts(**fields: Any) -> Facts:
    usual: dict[str, Any] = {"shedding_brokers": [], "splitting_brokers": [], "unknown_brokers": []}
    return Facts(**usual | {"isolation": [], "anti_affinity": {}} | fields)


def reasons(
    found: Facts | None = None, *, is_paused: bool = False, mode: Mode = "act", **guards: Any
) -> tuple[str | None, str | None]:
    """Why unloads and why splits are held; None: they are not."""
    header = Header(length_ms=60_000, facts=found)
    held = holds_of(header, GuardSettings(**guards), is_paused=is_paused, mode=mode, end_ms=NOON_MS)
    return (held.unload and held.unload.reason, held.split and held.split.reason)


BESIDE = facts(shedding_brokers=["b1"])


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, (None, None)),
        ({"is_paused": True}, ("paused", "paused")),
        ({"found": BESIDE}, ("two-balancers", "two-balancers")),
        ({"found": BESIDE, "mode": "dry-run"}, (None, None)),
        ({"found": BESIDE, "hold_beside_other_balancer": False}, (None, None)),
        ({"found": BESIDE, "is_paused": True}, ("paused", "paused")),
        ({"found": facts(unknown_brokers=["b1"])}, (None, None)),
        ({"found": facts(restricted_brokers=["b1"])}, (None, "restricted-split")),
        (
            {"found": facts(restricted_brokers=["b1"], splitting_brokers=["b1"])},
            ("two-balancers", "two-balancers"),
        ),
        ({"quiet_hours": ("11:00-13:00 unloads",)}, ("quiet-hours", None)),
        ({"quiet_hours": ("11:00-13:00 splits",)}, (None, "quiet-hours")),
        ({"quiet_hours": ("11:00-13:00",)}, ("quiet-hours", "quiet-hours")),
        ({"quiet_hours": ("13:00-14:00",)}, (None, None)),
    ],
    ids=str,
)
def test_a_round_is_held_by_the_first_reason_that_applies(
    case: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    assert reasons(**case) == expected


def test_shedding_is_named_before_splitting_with_the_key_that_switches_it_off() -> None:
    both = facts(shedding_brokers=["b1", "b2"], splitting_brokers=["b3"])
    assert balancer_at_work(both) == (
        "Pulsar's own shedding is on at b1, b2: set loadBalancerSheddingEnabled=false at every broker"
    )
    assert balancer_at_work(facts(splitting_brokers=["b3"])) == (
        "Pulsar's own splitting is on at b3: set loadBalancerAutoBundleSplitEnabled=false at every broker"
    )
    assert balancer_at_work(facts()) is None
    assert balancer_at_work(None) is None


def test_the_first_three_brokers_are_named_and_the_others_counted() -> None:
    assert join_names([]) == ""
    assert join_names(["a", "b", "c"]) == "a, b, c"
    assert join_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_the_summary_has_every_list_or_nothing_where_nobody_looked() -> None:
    assert other_balancers(None) is None
    found = other_balancers(facts(shedding_brokers=["a"], splitting_brokers=["b"], unknown_brokers=["c"]))
    assert found is not None
    assert (found.shedding_brokers, found.splitting_brokers, found.unknown_brokers) == (["a"], ["b"], ["c"])
