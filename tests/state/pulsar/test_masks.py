"""Which bundles and brokers take part in a round, and why no action of a kind happens in it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from state.closing import MemoryStart
from state.events import Event
from state.facts import Facts, Isolation
from state.guard_settings import GuardSettings
from state.ledger import Verdict, end_watch
from state.memory import Header, MembersChange
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.fleet import Advanced
from state.pulsar.holds import balancer_at_work, find_calm, holds_of, other_balancers
from state.pulsar.masks import (
    MASK_REASONS,
    SPLIT_MASK_REASONS,
    Mask,
    carries_trimtab_topics,
    drain_mask,
    keep_from_splits,
    split_mask,
    unload_mask,
    unsettled_brokers,
)
from state.pulsar.memory import Fleet
from state.settings import ClusterSettings, PulsarSettings, SplitSettings
from state.summary import join_names
from tests.state.building import closing, control, decision, guarded, seen
from tests.state.building import decided_split as split
from tests.state.traces import BUNDLES, load, run, settings_of

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
        overlay=ControlData(
            maintenance_namespaces=dict.fromkeys(resting, MaintenanceWindow(since=moment_at(0)))
        ),
    )
    return replace(seen(load("b1", 1)).context, closing=closed, header=header, advanced=advanced)


def header_of(*decisions: Any, **fields: Any) -> Header:
    header = Header(length_ms=60_000, **fields)
    for each in decisions:
        header.ledger.record([each])
    return header


def test_an_unload_does_not_wait_for_a_split_that_was_carried_out() -> None:
    header = header_of(split(bundle=A, result="succeeded"))
    assert unload_mask(fleet_of(header), frozenset()).tolist() == [Mask.OPEN, Mask.OPEN, Mask.OPEN]


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
    "trimtab-topics": {"facts": Facts([], [], [], [], {}, [], {A: (10.0, 10.0)})},
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
    assert set(codes[1:].tolist()) <= {Mask.OPEN, MASK_REASONS.index("unsettled-broker")}
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
    beside = ("other-group", "trimtab-topics", "unsettled-broker", "cooldown")
    assert masked_by(*FOR_SPLITS[place:], *beside, kind="split") == FOR_SPLITS[place]
    assert masked_by(*beside, kind="split") == ""


FOR_DRAINS = ["in-flight", "ineffective", "overlapping", "excluded-namespace", "maintenance", "absent"]


@pytest.mark.parametrize("place", range(len(FOR_DRAINS)), ids=FOR_DRAINS)
def test_a_drain_is_kept_by_actions_on_the_bundle_its_namespace_and_its_absence_only(place: int) -> None:
    beside = [name for name in CAUSES if name not in FOR_DRAINS]
    assert masked_by(*FOR_DRAINS[place:], *beside, kind="drain") == FOR_DRAINS[place]
    assert masked_by(*beside, kind="drain") == ""


@pytest.mark.parametrize(
    ("rates", "reasons"),
    [
        ([10.0, 10.0, 10.0], ["overlapping", "", ""]),
        ([10.0, 10.0, 0.0], ["overlapping", "", "overlapping"]),
        ([0.0, 10.0, 10.0], ["overlapping", "", ""]),
    ],
    ids=["all busy", "a finer one is idle", "the wide one is idle"],
)
def test_a_drain_moves_the_finer_ranges_with_traffic_of_those_that_overlap(
    rates: list[float], reasons: list[str]
) -> None:
    """A is the wide one, B and C are finer. Nothing else moves or splits any of them."""
    context = fleet_of(
        header_of(),
        guarded("fleet-planner"),
        overlaps={A: [B, C]},
        averages=np.array(rates)[:, None] * np.ones(4),
    )
    assert [MASK_REASONS[code] for code in drain_mask(context).tolist()] == reasons
    assert set(split_mask(context).tolist()) == {Mask.OVERLAPPING}
    assert set(unload_mask(context, frozenset()).tolist()) == {Mask.OVERLAPPING}


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
        ([], [], [Mask.OPEN, Mask.OPEN, Mask.COOLDOWN]),
        ([1, 2], [], [Mask.OPEN, Mask.IN_FLIGHT, Mask.IN_FLIGHT]),
        ([], [1, 2], [Mask.OPEN, Mask.TO_BE_UNLOADED, Mask.COOLDOWN]),
        ([0], [0, 1], [Mask.IN_FLIGHT, Mask.TO_BE_UNLOADED, Mask.COOLDOWN]),
    ],
    ids=["nothing", "approved actions", "the policy wants to move them", "both"],
)
def test_what_moves_in_the_round_is_not_split_and_keeps_an_earlier_reason_against_it(
    acting: list[int], leaving: list[int], expected: list[int]
) -> None:
    codes = np.array([Mask.OPEN, Mask.OPEN, Mask.COOLDOWN], dtype=np.int8)
    assert keep_from_splits(codes, acting=acting, leaving=leaving).tolist() == expected
    assert codes.tolist() == [Mask.OPEN, Mask.OPEN, Mask.COOLDOWN], "the round's mask stays as it is"


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
    facts = Facts([], [], [], [], {}, trimtab_topics={"t/n/0x0_0x1": own, "t/gone/0x0_0x1": (1.0, 1.0)})
    assert carries_trimtab_topics(bundle(100.0, 1000.0), 2, facts).tolist() == expected


def test_an_idle_bundle_and_a_cluster_nobody_looked_at_are_not_its_own() -> None:
    facts = Facts([], [], [], [], {}, trimtab_topics={"t/n/0x0_0x1": (0.0, 0.0)})
    assert not carries_trimtab_topics(bundle(0.0, 0.0), 2, facts).any()
    assert not carries_trimtab_topics(bundle(0.0, 0.0), 2, None).any()


def facts(**fields: Any) -> Facts:
    usual: dict[str, Any] = {"shedding_brokers": [], "splitting_brokers": [], "unknown_brokers": []}
    return Facts(**usual | {"isolation": [], "anti_affinity": {}} | fields)


BESIDE = facts(shedding_brokers=["b1"])
PAUSED = control()
RESTRICTED = facts(restricted_brokers=["b1"])
ENDS_MS = 8 * 60_000
FRESH = MemoryStart(ENDS_MS - 60_000, is_fresh=True)
BUSY = facts(restricted_brokers=["b1"], splitting_brokers=["b1"])


def cooling(*, unload_s: float, split_s: float, is_on: bool = True) -> ClusterSettings:
    guards, split = (
        GuardSettings(bundle_cooldown_s=unload_s),
        SplitSettings(enabled=is_on, bundle_cooldown_s=split_s),
    )
    return ClusterSettings(pulsar=PulsarSettings(guards=guards, split=split))


@pytest.mark.parametrize(
    ("header", "fields", "expected"),
    [
        ({}, {}, (None, None)),
        ({}, {"control": PAUSED}, ("paused", "paused")),
        ({"error_held_since_ms": 1}, {}, ("failing", "failing")),
        ({"error_held_since_ms": 1}, {"control": PAUSED}, ("paused", "paused")),
        ({"facts": BESIDE}, {}, ("two-balancers", "two-balancers")),
        ({"facts": BESIDE}, {"mode": "dry-run"}, (None, None)),
        ({"facts": BESIDE}, {"settings": guarded(hold_with_other_balancer=False)}, (None, None)),
        ({"facts": BESIDE}, {"control": PAUSED}, ("paused", "paused")),
        ({"facts": facts(unknown_brokers=["b1"])}, {}, (None, None)),
        ({"facts": RESTRICTED}, {}, (None, "restricted-split")),
        ({"facts": BUSY}, {}, ("two-balancers", "two-balancers")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09 unloads",))}, ("quiet-hours", None)),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09 splits",))}, (None, "quiet-hours")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:09",))}, ("quiet-hours", "quiet-hours")),
        ({}, {"settings": guarded(quiet_hours=("00:00-00:08",))}, (None, None)),
        ({}, {"memory_start": MemoryStart(ENDS_MS - 1)}, (None, None)),
        ({}, {"memory_start": MemoryStart(ENDS_MS)}, ("starting", "starting")),
        ({}, {"memory_start": MemoryStart(ENDS_MS), "mode": "dry-run"}, ("starting", "starting")),
        ({}, {"memory_start": MemoryStart(ENDS_MS), "control": PAUSED}, ("paused", "paused")),
        ({}, {"memory_start": FRESH, "settings": cooling(unload_s=60, split_s=59)}, ("starting", "starting")),
        ({}, {"memory_start": FRESH, "settings": cooling(unload_s=59, split_s=60)}, ("starting", "starting")),
        ({}, {"memory_start": FRESH, "settings": cooling(unload_s=59, split_s=59)}, (None, None)),
        (
            {},
            {"memory_start": FRESH, "settings": cooling(unload_s=59, split_s=60, is_on=False)},
            (None, None),
        ),
    ],
    ids=str,
)
def test_a_round_is_held_by_the_first_reason_that_applies(
    header: dict[str, Any], fields: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    """The round ends at 00:08."""
    held = holds_of(seen(load("b1", 470), header=header, **fields).context)
    assert (held.unload and held.unload.reason, held.split and held.split.reason) == expected


@pytest.mark.parametrize(("zone", "is_quiet"), [("Asia/Tokyo", True), ("Asia/Kolkata", False)])
def test_quiet_hours_are_read_in_the_zones_of_the_settings(zone: str, *, is_quiet: bool) -> None:
    """At 00:08 UTC it is 09:08 in Tokyo and 05:38 in Kolkata."""
    offsets = {"Asia/Tokyo": ((0, 540),), "Asia/Kolkata": ((0, 330),)}
    pulsar = PulsarSettings(guards=GuardSettings(quiet_hours=(f"09:00-10:00 {zone}",)))
    context = seen(load("b1", 470), settings=ClusterSettings(pulsar=pulsar, zones=offsets)).context
    assert (holds_of(context).unload is not None) == is_quiet


@pytest.mark.parametrize(("changed_in", "is_calm"), [(6, True), (5, False)])
def test_a_change_of_brokers_makes_the_rounds_after_it_calm(changed_in: int, *, is_calm: bool) -> None:
    """Two rounds are calm, the one that shows the change included; this is round 7."""
    header = {"members_change": MembersChange(changed_in, "b3", "")}
    context = seen(load("b1", 470), header=header, settings=guarded(calm_after_change_rounds=2)).context
    assert (find_calm(context).hold_of(0.0) is not None) == is_calm


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


SETTINGS = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}


def reports(number: int, brokers: Sequence[str], *, cpu: float = 80.0) -> list[Event]:
    """b1 has more than enough to give away in every round."""
    hot = dict.fromkeys(BUNDLES[:4], 20.0)
    return [
        load(
            name,
            10 * number + 5,
            cpu=cpu if name == "b1" else 10.0,
            bundles=hot if name == "b1" else {},
            rate=90.0 if name == "b1" else 1.0,
        )
        for name in brokers
    ]


def outcomes(rounds: dict[int, Sequence[str]], *, rounds_count: int = 2, cpu: float = 80.0) -> list[str]:
    """``moved``, ``calm`` or ``neither`` for each round; every round in a batch of its own."""
    guards = {"calm_after_change_rounds": rounds_count, "bundle_cooldown_s": 0}
    batches = [reports(number, brokers, cpu=cpu) for number, brokers in rounds.items()]
    found = []
    for summary in run(batches, settings_of(**SETTINGS, guards=guards)).summaries:
        seen = summary["candidates"]["outcomes"]
        assert not {"acted", "calm-after-change"} <= seen.keys()
        found.append("calm" if "calm-after-change" in seen else "moved" if "acted" in seen else "neither")
    return found


TWO, THREE = ("b1", "b2"), ("b1", "b2", "b3")


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ({0: TWO, 1: TWO}, ["moved", "moved"]),
        ({0: TWO, 1: THREE, 2: THREE, 3: THREE}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: TWO, 3: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 2: THREE, 3: THREE, 4: THREE}, ["moved", "calm", "calm", "calm", "moved"]),
        ({0: THREE, 2: TWO, 3: TWO, 4: TWO}, ["moved", "calm", "calm", "moved"]),
        ({0: THREE, 1: TWO, 3: TWO}, ["moved", "calm", "moved"]),
        ({0: TWO, 40: THREE, 41: THREE}, ["moved", "moved", "moved"]),
    ],
    ids=[
        "the first round of a cluster changes nothing",
        "a broker joins",
        "a broker leaves",
        "a broker is restarted: each change counts anew",
        "a round without reports in between",
        "rounds without reports count as rounds",
        "after a long silence there is nothing to compare with",
    ],
)
def test_nothing_moves_for_some_rounds_after_a_broker_joined_or_left(
    rounds: dict[int, Sequence[str]], expected: list[str]
) -> None:
    assert outcomes(rounds) == expected
    assert set(outcomes(rounds, rounds_count=0)) == {"moved"}


def test_the_summary_says_who_came_and_went_and_how_long_it_waits() -> None:
    guards = {"calm_after_change_rounds": 3}
    batches = [reports(0, ("b1", "b2", "b4")), reports(1, THREE)]
    row = run(batches, settings_of(**SETTINGS, guards=guards)).summaries[1]["candidates"]["heaviest"]
    assert "b3 joined and b4 left in round 1: nothing moves before round 4" in {
        each["detail"] for each in row
    }
