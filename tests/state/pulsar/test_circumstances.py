"""What every action of a round shares, from the round's settings and the memory of the cluster."""

from typing import Any

import pytest

from policies.shedding import avg_shedder, fleet_planner
from state.facts import Facts
from state.guard_settings import ApprovalSettings, StandingApproval
from state.memory import Header, MembersChange, ProposalRecord
from state.pulsar.holds import Calm, Circumstances, Holds, circumstances_of
from state.settings import ClusterSettings, GuardSettings, PulsarSettings
from tests.state.building import END_MS, EXPIRES_MS, PROPOSALS_EXPIRE_MS
from tests.state.engine.test_summary import closing, control


def found(header: dict[str, Any] | None = None, **fields: Any) -> Circumstances:
    return circumstances_of(closing(**fields), Header(length_ms=60_000, **header or {}))


def guarded(**guards: Any) -> ClusterSettings:
    return ClusterSettings(pulsar=PulsarSettings(guards=GuardSettings(**guards)))


def test_a_round_in_which_nothing_is_held_or_asked_for() -> None:
    assert found() == Circumstances(
        cluster="east-1",
        number=7,
        end_ms=END_MS,
        expires_ms=EXPIRES_MS,
        policy=avg_shedder.POLICY,
        dry_run=False,
        holds=Holds(unload=None, split=None),
        calm=Calm(),
        asking=None,
    )


def test_the_policy_is_the_one_of_the_settings() -> None:
    settings = ClusterSettings(pulsar=PulsarSettings(shedding_policy=fleet_planner.NAME))
    assert found(settings=settings).policy is fleet_planner.POLICY


def test_no_bound_for_single_moves_holds_a_plan_that_is_judged_as_a_whole() -> None:
    guards = GuardSettings(min_unload_benefit_points=0.5)
    for policy, points in ((avg_shedder.NAME, 0.5), (fleet_planner.NAME, 0.0)):
        settings = ClusterSettings(pulsar=PulsarSettings(shedding_policy=policy, guards=guards))
        assert found(settings=settings).min_benefit_points == points


BESIDE = {"facts": Facts(["b1"], [], [], [], {})}


@pytest.mark.parametrize(
    ("header", "fields", "reason"),
    [
        ({}, {"record": control()}, "paused"),
        ({"error_held_since_ms": 1}, {}, "failing"),
        (BESIDE, {}, "two-balancers"),
        (BESIDE, {"mode": "dry-run"}, None),
        (BESIDE, {"settings": guarded(hold_beside_other_balancer=False)}, None),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09",))}, "quiet-hours"),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:08",))}, None),
    ],
    ids=["paused", "errors", "beside Pulsar", "a dry-run", "allowed", "quiet at its end", "quiet until then"],
)
def test_the_whole_round_is_held_by_what_its_mode_settings_and_memory_say(
    header: dict[str, Any], fields: dict[str, Any], reason: str | None
) -> None:
    """The round ends at 00:08."""
    held = found(header, **fields).holds
    assert [each and each.reason for each in (held.unload, held.split)] == [reason] * 2


OFFSETS = {"Asia/Tokyo": ((0, 540),), "Asia/Kolkata": ((0, 330),)}


@pytest.mark.parametrize(("zone", "is_quiet"), [("Asia/Tokyo", True), ("Asia/Kolkata", False)])
def test_quiet_hours_are_read_in_the_zones_of_the_settings(zone: str, *, is_quiet: bool) -> None:
    """At 00:08 UTC it is 09:08 in Tokyo and 05:38 in Kolkata."""
    guards = GuardSettings(quiet_hours=(f"09:00-10:00 {zone}",))
    settings = ClusterSettings(pulsar=PulsarSettings(guards=guards), zones=OFFSETS)
    assert (found(settings=settings).holds.unload is not None) == is_quiet


@pytest.mark.parametrize(("mode", "dry_run"), [("act", False), ("dry-run", True)])
def test_what_a_dry_run_decides_is_marked_as_such(mode: str, *, dry_run: bool) -> None:
    assert found(mode=mode).dry_run is dry_run


@pytest.mark.parametrize(("changed_in", "is_calm"), [(6, True), (5, False)])
def test_a_change_of_brokers_makes_the_rounds_after_it_calm(changed_in: int, *, is_calm: bool) -> None:
    """Two rounds are calm, the one that shows the change included; this is round 7."""
    change = MembersChange(changed_in, "b3", "")
    calm = found({"members_change": change}, settings=guarded(calm_after_change_rounds=2)).calm
    assert (calm.hold_of(0.0) is not None) == is_calm


def proposal(id_: str, source: str, destination: str | None) -> ProposalRecord:
    return ProposalRecord(id_, "unload", "t/a/0x0_0x1", source, destination, 6, PROPOSALS_EXPIRE_MS, b"{}")


def test_where_actions_have_to_be_approved_open_proposals_and_standing_approvals_are_known() -> None:
    rules = {"light": StandingApproval(max_messages_per_s=30.0)}
    settings = ClusterSettings(
        pulsar=PulsarSettings(approval=ApprovalSettings(standing=rules)), zones=OFFSETS
    )
    header = {"proposals": [proposal("p", "b1", "b2"), proposal("q", "b3", None)]}
    asking = found(header, settings=settings, proposals_expire_ms=PROPOSALS_EXPIRE_MS).asking
    assert asking is not None
    assert (asking.rules, asking.zones) == (rules, OFFSETS)
    assert (asking.end_ms, asking.expires_ms) == (END_MS, PROPOSALS_EXPIRE_MS)
    assert (asking.waiting, asking.acting) == ({"b1": "p", "b2": "p", "b3": "q"}, set())
    assert found(header, settings=settings).asking is None, "where none is required, nobody is asked"
