"""Which bundles may be touched, and which one of several reasons against it is reported."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from state.facts import Facts, Isolation
from state.ledger import Verdict, end_watch
from state.memory import Header
from state.pulsar.fleet import Advanced
from state.pulsar.masks import (
    COOLDOWN,
    IN_FLIGHT,
    MASK_REASONS,
    OPEN,
    SPLIT_MASK_REASONS,
    TO_BE_UNLOADED,
    carries_own_topics,
    drain_mask,
    leave_alone,
    split_mask,
    unload_mask,
    unsettled_brokers,
)
from state.pulsar.memory import Fleet
from state.settings import ClusterSettings
from state.upkeep import Spell, Upkeep
from tests.state.building import closing, decision, guarded, seen
from tests.state.building import decided_split as split
from tests.state.traces import load

A, B, C = "t/a/0x0_0x4", "t/b/0x4_0x8", "t/c/0x8_0xc"
END_MS = 60_000


def fleet_of(
    header: Header, settings: ClusterSettings | None = None, *, resting: Collection[str] = (), **columns: Any
) -> Any:
    """A round with three bundles: two of broker b1, one of b2."""
    fleet = Fleet()
    fleet.brokers, fleet.bundles = ["b1", "b2"], [A, B, C]
    fleet.owner, fleet.averages = np.array([0, 0, 1]), np.full((3, 4), 10.0)
    fleet.samples = fleet.split_samples = np.array([3, 3, 3])
    fleet.namespaces, fleet.namespace = ["t/a", "t/b", "t/c"], np.array([0, 1, 2])
    is_absent = np.array(columns.pop("is_absent", [False] * 3))
    overlaps = columns.pop("overlaps", {})
    for name, column in columns.items():
        setattr(fleet, name, np.array(column))
    advanced = Advanced(
        fleet=fleet,
        counts=np.zeros((3, 2), dtype=np.int64),
        reported=fleet.averages,
        is_sampled=np.ones(3, dtype=np.bool_),
        is_absent=is_absent,
        overlaps=overlaps,
    )
    closed = closing(
        end_ms=END_MS,
        settings=settings or ClusterSettings(),
        upkeep=Upkeep(namespaces=dict.fromkeys(resting, Spell(0))),
    )
    return replace(seen(load("b1", 1)).context, closing=closed, header=header, advanced=advanced)


def header_of(*decisions: Any, **fields: Any) -> Header:
    header = Header(length_ms=60_000, **fields)
    for each in decisions:
        header.ledger.record([each])
    return header


def unload_reasons(header: Header, *, unsettled: frozenset[str] = frozenset(), **columns: Any) -> list[str]:
    context = fleet_of(header, guarded(excluded_namespaces=("t/c",)), **columns)
    return [MASK_REASONS[code] for code in unload_mask(context, unsettled).tolist()]


def test_a_bundle_without_a_reason_may_go() -> None:
    assert unload_reasons(header_of()) == ["", "", "excluded-namespace"]


@pytest.mark.parametrize(
    ("header", "columns", "reason"),
    [
        (header_of(), {"samples": [0, 3, 3]}, "no-samples"),
        (header_of(decision(bundle=A)), {"samples": [0, 3, 3]}, "in-flight"),
        (header_of(), {"is_absent": [True, False, False]}, "absent"),
        (header_of(decision(bundle=A, result="succeeded")), {}, "cooldown"),
        (header_of(split(bundle=A)), {}, "in-flight"),
        (header_of(split(bundle=A, result="succeeded")), {}, ""),
    ],
    ids=["no sample", "in flight before no sample", "absent", "resting", "being cut", "cut already"],
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
    codes = split_mask(fleet_of(header))
    assert [MASK_REASONS[code] for code in codes.tolist()] == ["cooldown", "in-flight", ""]


@pytest.mark.parametrize(("is_on", "found"), [(True, {"b1", "b2"}), (False, set())])
def test_brokers_wait_for_their_unloads_only_where_that_is_asked_for(*, is_on: bool, found: set[str]) -> None:
    settings = guarded(hold_unsettled_brokers=is_on)
    assert unsettled_brokers(fleet_of(header_of(decision(bundle=A)), settings)) == found


def without_effect(bundle: str) -> Any:
    done = decision("e", bundle, result="succeeded", decided_ms=-(10**9))
    end_watch(done, Verdict("ineffective", END_MS - 1, "b1", 3))
    return done


APART = Facts([], [], [], [Isolation("blue", ["t/a"], ["b9"])], {}, [], {A: (10.0, 10.0)})
"""A is at a broker of another group than its own, and carries our own topics."""
CAUSES: dict[str, dict[str, Any]] = {
    "in-flight": {"decisions": [split("s", A)]},
    "ineffective": {"decisions": [without_effect(A)]},
    "cooldown": {"decisions": [decision("u", A, result="succeeded")]},
    "rejected": {"rejected": {A: END_MS + 1}},
    "overlapping": {"overlaps": {A: [A]}},
    "excluded-namespace": {"excluded": ("t/a",)},
    "maintenance": {"resting": ("t/a",)},
    "absent": {"is_absent": [True, False, False]},
    "no-samples": {"samples": [0, 3, 3]},
    "other-group": {"facts": APART},
    "own-topics": {"facts": Facts([], [], [], [], {}, [], {A: (10.0, 10.0)})},
    "unsettled-broker": {"unsettled": frozenset({"b1"})},
}
"""What paints each reason on A, in the order in which they count."""


def masked_by(*causes: str, kind: str = "unload") -> str:
    """The reason of A for these causes; the first facts stand."""
    fields: dict[str, Any] = {"decisions": []}
    for each in causes:
        cause = CAUSES[each]
        fields = cause | fields | {"decisions": [*fields["decisions"], *cause.get("decisions", ())]}
    samples = fields.get("samples", [3, 3, 3])
    context = fleet_of(
        header_of(
            *fields["decisions"], **{name: fields[name] for name in ("rejected", "facts") if name in fields}
        ),
        guarded("fleet-planner", excluded_namespaces=fields.get("excluded", ())),
        samples=samples,
        split_samples=samples,
        is_absent=fields.get("is_absent", [False] * 3),
        overlaps=fields.get("overlaps", {}),
        resting=fields.get("resting", ()),
    )
    if kind == "unload":
        codes = unload_mask(context, fields.get("unsettled", frozenset()))
    else:
        codes = (drain_mask if kind == "drain" else split_mask)(context)
    assert set(codes[1:].tolist()) <= {OPEN, MASK_REASONS.index("unsettled-broker")}
    return SPLIT_MASK_REASONS[int(codes[0])]


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=list(CAUSES))
def test_of_several_reasons_against_an_unload_the_first_one_counts(place: int) -> None:
    names = list(CAUSES)
    assert masked_by(names[place]) == masked_by(*names[place:]) == names[place]


FOR_SPLITS = [
    "in-flight",
    "ineffective",
    "rejected",
    "overlapping",
    "excluded-namespace",
    "maintenance",
    "absent",
    "no-samples",
]


@pytest.mark.parametrize("place", range(len(FOR_SPLITS)), ids=FOR_SPLITS)
def test_a_split_is_kept_by_the_same_reasons_but_those_of_its_broker_and_its_unloads(place: int) -> None:
    beside = ("other-group", "own-topics", "unsettled-broker", "cooldown")
    assert masked_by(*FOR_SPLITS[place:], *beside, kind="split") == FOR_SPLITS[place]
    assert masked_by(*beside, kind="split") == ""


FOR_DRAINS = ["in-flight", "ineffective", "overlapping", "excluded-namespace", "maintenance", "absent"]


@pytest.mark.parametrize("place", range(len(FOR_DRAINS)), ids=FOR_DRAINS)
def test_a_drain_is_kept_by_actions_on_the_bundle_its_namespace_and_its_absence_only(place: int) -> None:
    beside = [name for name in CAUSES if name not in FOR_DRAINS]
    assert masked_by(*FOR_DRAINS[place:], *beside, kind="drain") == FOR_DRAINS[place]
    assert masked_by(*beside, kind="drain") == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expires_ms": END_MS + 1}, "in-flight"),
        ({"expires_ms": END_MS}, ""),
        ({"result": "succeeded", "succeeded_ms": 1}, "in-flight"),
        ({"result": "succeeded", "succeeded_ms": 1, "is_watched": False}, ""),
    ],
    ids=["it may be carried out", "it expired", "its effect is looked for", "its effect is known"],
)
def test_without_a_cooldown_a_drain_still_waits_for_an_action_on_its_bundle(
    fields: dict[str, Any], reason: str
) -> None:
    codes = drain_mask(fleet_of(header_of(decision(bundle=B, **fields)), guarded(bundle_cooldown_s=0)))
    assert [MASK_REASONS[code] for code in codes.tolist()] == ["", reason, ""]


@pytest.mark.parametrize(
    ("acting", "leaving", "expected"),
    [
        ([], [], [OPEN, OPEN, COOLDOWN]),
        ([1, 2], [], [OPEN, IN_FLIGHT, IN_FLIGHT]),
        ([], [1, 2], [OPEN, TO_BE_UNLOADED, COOLDOWN]),
        ([0], [0, 1], [IN_FLIGHT, TO_BE_UNLOADED, COOLDOWN]),
    ],
    ids=["nothing", "approved actions", "the policy wants to move them", "both"],
)
def test_what_moves_in_the_round_is_not_split_and_keeps_an_earlier_reason_against_it(
    acting: list[int], leaving: list[int], expected: list[int]
) -> None:
    codes = np.array([OPEN, OPEN, COOLDOWN], dtype=np.int8)
    assert leave_alone(codes, acting=acting, leaving=leaving).tolist() == expected
    assert codes.tolist() == [OPEN, OPEN, COOLDOWN], "the round's mask stays as it is"


def bundle(messages_per_s: float, bytes_per_s: float) -> Fleet:
    fleet = Fleet()
    fleet.bundles = ["t/a/0x0_0x1", "t/n/0x0_0x1"]
    fleet.averages = np.array(
        [[1.0] * 4, [messages_per_s / 2, messages_per_s / 2, bytes_per_s / 4, bytes_per_s * 3 / 4]]
    )
    return fleet


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((50.0, 500.0), [False, True]),
        ((49.9, 500.0), [False, False]),
        ((50.0, 499.0), [False, False]),
        ((200.0, 2000.0), [False, True]),
        ((0.0, 0.0), [False, False]),
    ],
)
def test_half_of_its_messages_and_of_its_bytes_are_needed(
    own: tuple[float, float], expected: list[bool]
) -> None:
    facts = Facts([], [], [], [], {}, own_topics={"t/n/0x0_0x1": own, "t/gone/0x0_0x1": (1.0, 1.0)})
    assert carries_own_topics(bundle(100.0, 1000.0), 2, facts).tolist() == expected


def test_an_idle_bundle_and_a_cluster_nobody_looked_at_are_not_its_own() -> None:
    facts = Facts([], [], [], [], {}, own_topics={"t/n/0x0_0x1": (0.0, 0.0)})
    assert not carries_own_topics(bundle(0.0, 0.0), 2, facts).any()
    assert not carries_own_topics(bundle(0.0, 0.0), 2, None).any()
