"""Which bundles may be touched, and which one of several reasons against it is reported."""

from typing import Any

import numpy as np
import pytest

from state.engine.ledger import Verdict, end_watch
from state.engine.memory import Header
from state.facts import Facts
from state.pulsar.fleet import Advanced
from state.pulsar.masks import MASK_REASONS, split_mask, unload_mask, unsettled_brokers
from state.pulsar.memory import Fleet
from state.settings import GuardSettings, PulsarSettings
from tests.state.engine.test_ledger import decision, split

A, B, C = "t/a/0x0_0x4", "t/b/0x4_0x8", "t/c/0x8_0xc"
END_MS = 60_000


def advanced(**columns: Any) -> Advanced:
    """Three bundles: two of broker b1, one of b2."""
    fleet = Fleet()
    fleet.brokers, fleet.bundles = ["b1", "b2"], [A, B, C]
    fleet.owner, fleet.averages = np.array([0, 0, 1]), np.full((3, 4), 10.0)
    fleet.samples = fleet.split_samples = np.array([3, 3, 3])
    fleet.namespaces, fleet.namespace = ["t/a", "t/b", "t/c"], np.array([0, 1, 2])
    for name, column in columns.items():
        setattr(fleet, name, np.array(column))
    return Advanced(
        fleet=fleet,
        counts=np.zeros((3, 2), dtype=np.int64),
        reported=fleet.averages,
        is_sampled=np.ones(3, dtype=np.bool_),
    )


def header_of(*decisions: Any, **fields: Any) -> Header:
    header = Header(length_ms=60_000, **fields)
    for each in decisions:
        header.ledger.record([each])
    return header


def unload_reasons(header: Header, *, unsettled: frozenset[str] = frozenset(), **columns: Any) -> list[str]:
    guards = GuardSettings(excluded_namespaces=("t/c",))
    codes = unload_mask(
        advanced(**columns), header, PulsarSettings(guards=guards), unsettled, end_ms=END_MS, resting=()
    )
    return [MASK_REASONS[code] for code in codes.tolist()]


def test_a_bundle_without_a_reason_may_go() -> None:
    assert unload_reasons(header_of()) == ["", "", "excluded-namespace"]


@pytest.mark.parametrize(
    ("header", "columns", "reason"),
    [
        (header_of(), {"samples": [0, 3, 3]}, "no-samples"),
        (header_of(decision(bundle=A)), {"samples": [0, 3, 3]}, "in-flight"),
        (header_of(decision(bundle=A, result="succeeded")), {}, "cooldown"),
        (header_of(split(bundle=A)), {}, "in-flight"),
        (header_of(split(bundle=A, result="succeeded")), {}, ""),
    ],
    ids=["no sample", "in flight before no sample", "resting", "being cut", "cut already"],
)
def test_the_first_bundle_is_masked_for_its_own_decisions(
    header: Header, columns: dict[str, Any], reason: str
) -> None:
    assert unload_reasons(header, **columns)[0] == reason


def test_a_bundle_whose_action_had_no_effect_is_told_so_before_its_cooldown() -> None:
    done = decision(bundle=A, result="succeeded")
    end_watch(done, Verdict("ineffective", END_MS - 1, "b1", 3))
    assert unload_reasons(header_of(done))[0] == "ineffective"


def test_what_concerns_the_broker_comes_after_what_concerns_the_bundle() -> None:
    resting = header_of(decision(bundle=A, result="succeeded"))
    assert unload_reasons(resting, unsettled=frozenset({"b1"})) == [
        "cooldown",
        "unsettled-broker",
        "excluded-namespace",
    ]


def test_a_bundle_that_carries_little_but_our_own_topics_stays() -> None:
    facts = Facts([], [], [], [], {}, [], {A: (10.0, 10.0), B: (9.0, 9.0)})
    assert unload_reasons(header_of(facts=facts))[:2] == ["own-topics", ""]


def test_a_split_rests_after_a_split_and_while_an_unload_is_in_flight() -> None:
    header = header_of(split("s", A, result="succeeded"), decision("u", B))
    codes = split_mask(advanced(), header, PulsarSettings(), end_ms=END_MS, resting=())
    assert [MASK_REASONS[code] for code in codes.tolist()] == ["cooldown", "in-flight", ""]


@pytest.mark.parametrize(("is_on", "found"), [(True, {"b1", "b2"}), (False, set())])
def test_brokers_wait_for_their_unloads_only_where_that_is_asked_for(*, is_on: bool, found: set[str]) -> None:
    pulsar = PulsarSettings(guards=GuardSettings(hold_unsettled_brokers=is_on))
    assert unsettled_brokers(header_of(decision(bundle=A)), pulsar, end_ms=END_MS) == found
