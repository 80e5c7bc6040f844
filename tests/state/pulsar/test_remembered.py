"""What a person is told about one bundle or broker: what the controller remembers after a round."""

from dataclasses import replace
from typing import Any

import pytest

from state.engine.ledger import Ledger
from state.engine.memory import Header
from state.facts import Facts, Isolation
from state.pulsar.memory import Fleet
from state.pulsar.remembered import RememberedBroker, RememberedBundle, remembered_broker, remembered_bundle
from state.settings import GuardSettings, PulsarSettings
from state.upkeep import Spell, Upkeep
from tests.state.building import END_MS, seen
from tests.state.engine.test_ledger import decision, ledger_of, split
from tests.state.engine.test_summary import control
from tests.state.traces import load

A, B, C, D = "t/a/0x0_0x1", "t/b/0x1_0x2", "t/b/0x2_0x3", "t/c/0x3_0x4"
ISOLATED = Facts([], [], [], [Isolation("iso", ["t/a"], ["b1"])], {})
PULSAR = PulsarSettings()
SPELL = Spell(0)


def fleet_of(**columns: Any) -> Fleet:
    """b1 has A of 10, B of 30 and C of 20 messages/s, b2 has D of 5; bytes/s are ten times that."""
    fleet = seen(
        load("b1", 470, bundles={A: 10.0, B: 30.0, C: 20.0}), load("b2", 475, bundles={D: 5.0})
    ).advanced.fleet
    for name, column in columns.items():
        setattr(fleet, name, column)
    return fleet


def header_of(
    *, upkeep: Upkeep | None = None, ledger: Ledger | None = None, facts: Facts | None = None
) -> Header:
    """After round 7; ``upkeep`` is that of a control event that applies since round 3."""
    return Header(
        length_ms=60_000,
        next_round=8,
        control=[] if upkeep is None else [control(applies_from=3, upkeep=upkeep)],
        ledger=ledger or Ledger(),
        facts=facts,
    )


def bundle(
    name: str = A, *, fleet: Fleet | None = None, pulsar: PulsarSettings = PULSAR, **header: Any
) -> RememberedBundle:
    found = remembered_bundle(header_of(**header), fleet or fleet_of(), pulsar, name, end_ms=END_MS)
    assert found is not None
    return found


def broker(
    name: str = "b1", *, fleet: Fleet | None = None, pulsar: PulsarSettings = PULSAR, **header: Any
) -> RememberedBroker:
    found = remembered_broker(header_of(**header), fleet or fleet_of(), pulsar, name, end_ms=END_MS)
    assert found is not None
    return found


def test_nothing_is_remembered_about_a_stranger() -> None:
    header, fleet = header_of(), fleet_of()
    assert remembered_bundle(header, fleet, PULSAR, "t/a/0x9_0xa", end_ms=END_MS) is None
    assert remembered_broker(header, fleet, PULSAR, "b3", end_ms=END_MS) is None


def test_a_bundle_has_its_owner_its_averages_and_the_time_it_was_listed() -> None:
    assert bundle(D) == RememberedBundle(
        owner="b2",
        owner_group=None,
        namespace_group=None,
        traffic=(5.0, 0.0, 50.0, 0.0),
        samples_count=1,
        last_ms=475_000,
        owner_upkeep="",
        unload_mask="",
        shadow_broker=None,
        decisions=(),
    )


def test_a_bundle_has_the_isolation_policies_of_its_broker_and_of_its_namespace() -> None:
    """Namespace t/a and broker b1 are of the policy; a bundle of another namespace at b1 is left to Pulsar."""
    own, foreign, free = (bundle(name, facts=ISOLATED) for name in (A, B, D))
    assert (own.owner_group, own.namespace_group, own.unload_mask) == ("iso", "iso", "")
    assert (foreign.owner_group, foreign.namespace_group) == ("iso", None)
    assert foreign.unload_mask == "other-group"
    assert (free.owner_group, free.namespace_group, free.unload_mask) == (None, None, "")


def test_a_bundle_whose_broker_is_forgotten_has_no_owner() -> None:
    fleet = fleet_of()
    fleet.owner[3] = -1
    found = bundle(D, fleet=fleet, upkeep=Upkeep({"b2": SPELL}))
    assert (found.owner, found.owner_group, found.owner_upkeep) == (None, None, "")


def test_a_bundle_that_a_dry_run_moved_has_the_broker_at_which_it_counts() -> None:
    fleet = fleet_of(shadow={A: ("b1", "b2")})
    assert bundle(A, fleet=fleet).shadow_broker == "b2"
    assert bundle(B, fleet=fleet).shadow_broker is None


def test_a_bundle_has_the_decisions_about_it_the_oldest_first() -> None:
    ledger = ledger_of(decision("1", A), decision("2", B), split("3", A))
    assert [each.id for each in bundle(A, ledger=ledger).decisions] == ["1", "3"]
    assert bundle(D, ledger=ledger).decisions == ()


GUARDED = PulsarSettings(guards=GuardSettings(excluded_namespaces=("t/a",), excluded_brokers=("b2",)))
IN_FLIGHT = decision(bundle=A, decided_ms=END_MS, expires_ms=END_MS + 1)


@pytest.mark.parametrize(
    ("about", "mask"),
    [
        ({}, ""),
        ({"pulsar": GUARDED}, "excluded-namespace"),
        ({"ledger": ledger_of(IN_FLIGHT)}, "in-flight"),
        ({"ledger": ledger_of(decision(bundle=A, decided_ms=END_MS, expires_ms=END_MS))}, "cooldown"),
        ({"upkeep": Upkeep(namespaces={"t/a": SPELL})}, "maintenance"),
        ({"upkeep": Upkeep({"b1": SPELL})}, ""),
    ],
    ids=["nothing", "excluded", "in flight", "expired just now", "its namespace rests", "its broker rests"],
)
def test_a_bundle_has_the_reason_why_it_may_not_be_unloaded(about: dict[str, Any], mask: str) -> None:
    assert bundle(A, **about).unload_mask == mask


def test_the_last_bundle_has_its_own_reason_and_not_that_of_another() -> None:
    resting = ledger_of(decision(bundle=D, decided_ms=END_MS))
    assert [bundle(name, ledger=resting).unload_mask for name in (A, B, C)] == ["", "", ""]
    assert bundle(D, ledger=resting).unload_mask == "cooldown"


def test_a_broker_has_its_bundles_the_heaviest_first_with_their_messages() -> None:
    found = broker("b1")
    assert found.bundles == (B, C, A)
    assert found.messages_per_s == (30.0, 20.0, 10.0)
    assert found.masks == ("", "", "")
    assert (found.last_ms, found.group, found.upkeep) == (470_000, None, "")
    assert (found.is_excluded, found.is_unsettled) == (False, False)
    assert (broker("b2").bundles, broker("b2").last_ms) == ((D,), 475_000)


def test_messages_in_and_out_count_and_of_equal_bundles_the_first_by_row_comes_first() -> None:
    fleet = fleet_of()
    fleet.averages[:3] = [[10.0, 20.0, 0.0, 0.0], [30.0, 0.0, 9.0, 9.0], [0.0, 31.0, 0.0, 0.0]]
    found = broker("b1", fleet=fleet)
    assert (found.bundles, found.messages_per_s) == ((C, A, B), (31.0, 30.0, 30.0))


def test_a_broker_without_bundles_has_none() -> None:
    fleet = seen(load("b1", 470), load("b2", 470, bundles={D: 5.0})).advanced.fleet
    found = broker("b1", fleet=fleet)
    assert (found.bundles, found.messages_per_s, found.masks) == ((), (), ())


@pytest.mark.parametrize(
    ("upkeep", "kind", "masks"),
    [
        (Upkeep({"b1": SPELL}), "maintenance", ("maintenance", "maintenance", "in-flight")),
        (Upkeep(drains={"b1": SPELL}), "drained", ("", "", "in-flight")),
        (Upkeep({"b2": SPELL}), "", ("", "", "in-flight")),
        (Upkeep({"b1": Spell(0, until_ms=420_000)}), "", ("", "", "in-flight")),
        (Upkeep({"b1": Spell(0, until_ms=420_001)}), "maintenance", ("maintenance", "maintenance", "in-flight")),
    ],
    ids=["maintenance", "drained", "another broker", "over when the round began", "over after it began"],
)  # fmt: skip
def test_bundles_of_a_broker_under_maintenance_stay_and_a_reason_of_their_own_comes_first(
    upkeep: Upkeep, kind: str, masks: tuple[str, ...]
) -> None:
    """Round 7 began at 420 s."""
    found = broker("b1", upkeep=upkeep, ledger=ledger_of(IN_FLIGHT))
    assert (found.upkeep, found.masks) == (kind, masks)
    assert bundle(B, upkeep=upkeep).owner_upkeep == kind


def test_a_broker_has_what_the_policy_in_force_remembers_about_it() -> None:
    policies = {
        "avg-shedder": {"hits": {"b1": 3, "b2": 1}, "pairs": {"b2": "b1"}},
        "threshold-shedder": {"usage": {"b1": 0.5}},
    }
    fleet = fleet_of(policies=policies)
    assert broker("b1", fleet=fleet).policy_memory == {"hits": 3}
    assert broker("b2", fleet=fleet).policy_memory == {"hits": 1, "pairs": "b1"}
    threshold = PulsarSettings(shedding_policy="threshold-shedder")
    assert broker("b1", fleet=fleet, pulsar=threshold).policy_memory == {"usage": 0.5}
    assert broker("b1").policy_memory == {}


def test_a_broker_has_the_decisions_that_it_takes_part_in() -> None:
    ledger = ledger_of(
        decision("1", A, source="b1", destination="b3"),
        decision("2", B, source="b3", destination="b2"),
        decision("3", C, source="b2", destination="b1"),
        split("4", D, source="b2"),
    )
    assert [each.id for each in broker("b1", ledger=ledger).decisions] == ["1", "3"]
    assert [each.id for each in broker("b2", ledger=ledger).decisions] == ["2", "3", "4"]


def test_a_broker_has_its_group_and_whether_it_is_excluded() -> None:
    assert [broker(name, facts=ISOLATED).group for name in ("b1", "b2")] == ["iso", None]
    assert [broker(name, pulsar=GUARDED).is_excluded for name in ("b1", "b2")] == [False, True]


@pytest.mark.parametrize(("is_on", "mask"), [(True, "unsettled-broker"), (False, "")])
def test_a_broker_waits_for_its_unload_where_that_is_asked_for(*, is_on: bool, mask: str) -> None:
    pulsar = replace(PULSAR, guards=GuardSettings(hold_unsettled_brokers=is_on))
    ledger = ledger_of(IN_FLIGHT)
    found = broker("b1", pulsar=pulsar, ledger=ledger)
    assert (found.is_unsettled, found.masks) == (is_on, (mask, mask, "in-flight"))
    assert bundle(B, pulsar=pulsar, ledger=ledger).unload_mask == mask
