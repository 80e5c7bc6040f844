"""Actions, and what a round of a Pulsar cluster sees, built by hand for the tests of single modules.

Rounds last a minute; the one that is looked at is number 7.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from policies.columns import Codes, Floats
from policies.costs import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, KBIT_PER_BYTE, Costs
from policies.shedding import avg_shedder
from policies.shedding.contract import Examined, SheddingPlan
from policies.shedding.rules import Rules
from policies.usage import REPORTED_COUNT, RESOURCES
from state.closing import UNBOUNDED, Closing
from state.events import Control, LoadReport, TopicStats, TopicTraffic
from state.facts import Facts, Isolation
from state.guard_settings import GuardSettings
from state.ledger import Child, Decision, Ledger
from state.memory import Header, OpenRound
from state.outputs import Configured, Output, Split, SplitChild, Unload, output
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.admission import Admission
from state.pulsar.budgets import with_rules
from state.pulsar.fleet import Advanced, Sampling, advance
from state.pulsar.holds import Calm, Holds
from state.pulsar.loads import Loads, broker_rates, measure
from state.pulsar.memory import Fleet, ShadowMoves
from state.pulsar.view import PolicyView, RoundContext, policy_view
from state.settings import ClusterSettings, PulsarSettings
from tests.policies.fleets import evidence_names
from tests.state.traces import load

END_MS = 480_000
EXPIRES_AT, EXPIRES_MS = "1970-01-01T00:11:00.000Z", 660_000
PROPOSALS_EXPIRE_AT, PROPOSALS_EXPIRE_MS = "1970-01-01T01:00:00.000Z", 3_600_000
AGE_MS = 180_000
"""``max_report_age_s`` of the defaults."""
BUNDLE, LEFT, RIGHT = "t/a/0x00_0x80", "t/a/0x00_0x40", "t/a/0x40_0x80"
PARENT, CHILDREN = "t/n/0x0_0x4", ("t/n/0x0_0x2", "t/n/0x2_0x4")
"""The bundle of a decision of the ledger, and those that a split makes of it."""

_COMMON: dict[str, Any] = {
    "cluster": "east-1",
    "round": 7,
    "reason": "why",
    "expires_at": EXPIRES_AT,
    "dry_run": False,
    "bundle": BUNDLE,
    "precondition": {"owner": "b1", "range": "0x00_0x80"},
}


def unload(**fields: Any) -> Unload:
    """An unload of 20 messages/s and 300 bytes/s from b1 to b2."""
    usual: dict[str, Any] = {
        "policy": "avg-shedder",
        "trigger": "high",
        "evidence": {"bundle_messages_per_s": 20.0, "bundle_bytes_per_s": 300.0},
        "expected": {},
        "source_broker": "b1",
        "destination_broker": "b2",
    }
    return Unload(**_COMMON | usual | fields)


def split(**fields: Any) -> Split:
    """A split in two; the left child has a quarter of the messages and nothing of the bytes."""
    usual: dict[str, Any] = {
        "policy": "bundle-split",
        "trigger": "messages",
        "evidence": {"bundle_messages_per_s": 40.0},
        "expected": {},
        "broker": "b1",
        "algorithm": "range",
        "boundaries": [0x40],
        "children": [
            SplitChild(range="0x00_0x40", topics_count=1, messages_per_s=10.0, bytes_per_s=0.0),
            SplitChild(range="0x40_0x80", topics_count=2, messages_per_s=30.0, bytes_per_s=50.0),
        ],
    }
    return Split(**_COMMON | usual | fields)


def published(action: Unload | Split, *, time_ms: int = END_MS, place: int = 0) -> Output:
    """An action or a proposal as a controller publishes it."""
    return output(
        type_=UNLOAD_TYPE if isinstance(action, Unload) else SPLIT_TYPE,
        subject=action.bundle,
        cluster=action.cluster,
        number=action.round,
        place=place,
        time_ms=time_ms,
        data=action,
        dry_run=action.dry_run or action.proposal is True,
    )


def control(**fields: Any) -> Control:
    """A control event of ann that pauses the cluster; ``fields`` are those of its data."""
    return Control(1_000, "c", ControlData(**{"paused": True, "who": "ann", "why": "test"} | fields))


def closing(**fields: Any) -> Closing:
    """Round 7 of a cluster that acts, with the default settings."""
    usual: dict[str, Any] = {
        "cluster": "east-1",
        "number": 7,
        "start_ms": 420_000,
        "end_ms": END_MS,
        "expires_ms": EXPIRES_MS,
        "open_round": OpenRound(),
        "settings": ClusterSettings(),
        "control": None,
        "settings_problem": None,
        "mode": "act",
        "configured": Configured(mode="act", approval="none", settings_digest="x"),
        "gap_rounds": 2,
        "restarted": False,
        "max_action_bytes": 1_000,
        "memory_start": UNBOUNDED,
    }
    found = usual | fields
    event: Control | None = found["control"]
    overlay = ControlData() if event is None else event.data.at(moment_at(found["start_ms"]))
    return Closing(**{"overlay": overlay} | found)


def decision(id_: str = "a", bundle: str = PARENT, **fields: Any) -> Decision:
    """An unload of the ledger, from b1 to b2, that was decided at one second and may be carried out for three minutes."""
    usual: dict[str, Any] = {
        "kind": "unload",
        "source": "b1",
        "destination": "b2",
        "children": (),
        "decided_ms": 1000,
        "expires_ms": 181_000,
        "until_ms": 361_000,
        "dry_run": False,
        "is_watched": True,
        "is_leaving": True,
    }
    return Decision(id=id_, bundle=bundle, **usual | fields)


def decided_split(id_: str = "s", bundle: str = PARENT, **fields: Any) -> Decision:
    """A split of the ledger; the left child has a quarter of the messages and half of the bytes."""
    children = (Child(CHILDREN[0], 0.25, 0.5), Child(CHILDREN[1], 0.75, 0.5))
    return decision(
        id_, bundle, kind="split", destination=None, is_leaving=False, **{"children": children} | fields
    )


def ledger_of(*decisions: Decision) -> Ledger:
    """A ledger of decisions of as many rounds."""
    found = Ledger()
    for each in decisions:
        found.record([each])
    return found


def guarded(policy: str = "avg-shedder", **guards: Any) -> ClusterSettings:
    """Settings with these guards."""
    return ClusterSettings(pulsar=PulsarSettings(shedding_policy=policy, guards=GuardSettings(**guards)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a round sees, and what its policy does of it if every bundle may move."""

    context: RoundContext
    table: PolicyView

    @property
    def advanced(self) -> Advanced:
        """The fleet after the round."""
        return self.context.advanced

    @property
    def loads(self) -> Loads:
        """The loads of its brokers."""
        return self.context.loads

    def changed(self, *, header: Mapping[str, Any] | None = None, **fields: Any) -> "Seen":
        """The same with other fields of the header and of the closing round."""
        context = replace(
            self.context,
            header=msgspec.structs.replace(self.context.header, **header or {}),
            closing=replace(self.context.closing, **fields),
        )
        return replace(self, context=context)


def seen(
    *reports: LoadReport,
    before: Fleet | None = None,
    header: Mapping[str, Any] | None = None,
    apart: Collection[str] = (),
    isolation: Collection[Isolation] = (),
    shadow: ShadowMoves | None = None,
    left: Collection[str] | None = None,
    destinations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Seen:
    """What round 7 sees in these reports; ``fields`` are those of the closing round, ``apart`` brokers that take no part.

    Absent bundles stay unless ``left`` is None; it has those that were unloaded, and ``destinations`` where to, by bundle. What traffic
    costs is not learned.
    """
    found = {each.broker: each for each in reports}
    if apart:
        fields["overlay"] = ControlData(
            maintenance_brokers=dict.fromkeys(apart, MaintenanceWindow(since=moment_at(0)))
        )
    closed = closing(**fields)
    advanced = advance(
        before or Fleet(),
        found,
        Sampling(samples=10, split_samples=10, skip_after_move=True, skip_outliers=left is not None),
        round_end_ms=closed.end_ms,
        max_report_age_ms=AGE_MS,
        unloads=dict.fromkeys(left or ()) | dict(destinations or {}),
        keeps_absent=left is not None,
    )
    advanced.fleet.shadow = shadow or {}
    loads = measure(closed, advanced, found)
    facts = Facts([], [], [], list(isolation), {}) if isolation else None
    context = RoundContext(
        closing=closed,
        header=Header(**{"length_ms": 60_000, "facts": facts} | dict(header or {})),
        before=before or Fleet(),
        advanced=advanced,
        reports=found,
        loads=loads,
        rates=broker_rates(advanced, loads),
        costs=plain_costs(loads.limits),
    )
    return Seen(context=context, table=policy_view(context, open_to_all(context), ()))


def open_to_all(context: RoundContext) -> Codes:
    """Masks that let every bundle move."""
    return np.zeros(context.advanced.owned_count, dtype=np.int8)


def plain_costs(limits: Floats, cpu_per_message: float = 1.25) -> Costs:
    """Costs of like brokers: messages take CPU, a byte takes a byte of the network its way, and counts are exact."""
    rule = np.zeros((len(RESOURCES), 2))
    rule[CPU, 0], rule[BANDWIDTH_IN : BANDWIDTH_OUT + 1, 0] = cpu_per_message, KBIT_PER_BYTE
    rule[REPORTED_COUNT:, 0] = 1.0
    return Costs(limits=limits, rule=rule, factor=np.ones_like(limits), factor_error=np.zeros_like(limits))


def ruled(
    found: Seen,
    *,
    groups: Mapping[str, list[str]] | None = None,
    domains: Mapping[str, list[str]] | None = None,
    hour_count: int = 0,
    drained_count: int = 0,
    leaving: Mapping[str, Collection[str]] | None = None,
    drained: Collection[str] = (),
    lifetime_s: float | None = None,
    **guards: Any,
) -> tuple[PolicyView, Rules]:
    """The view with its rules: anti-affinity groups, failure domains, unloads of the last hour, and limits; that of traffic is off.

    With a ``lifetime_s`` of actions the policy is one that plans whole rounds.
    """
    there = found.context.facts or Facts([], [], [], [], {})
    facts = msgspec.structs.replace(
        there, anti_affinity=dict(groups or {}), failure_domains=dict(domains or {})
    )
    unloads = [
        decision(bundle=BUNDLE, decided_ms=END_MS, expires_ms=EXPIRES_MS, is_leaving=False, is_drain=is_drain)
        for is_drain in [False] * hour_count + [True] * drained_count
    ]
    changed = found.changed(
        header={"facts": facts, "ledger": Ledger(unloads)},
        settings=guarded("avg-shedder" if lifetime_s is None else "fleet-planner", **guards),
        overlay=ControlData(drained_brokers=dict.fromkeys(drained, MaintenanceWindow(since=moment_at(0)))),
        expires_ms=END_MS + round(1000 * (lifetime_s or 0.0)),
    )
    return with_rules(changed.context, found.table, leaving or {})


def admission(
    found: Seen,
    *,
    holds: Holds | None = None,
    calm: Calm | None = None,
    header: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    **options: Any,
) -> Admission:
    """What lets unloads happen in a round with the rules of ``options``; ``holds`` and ``calm`` stand in place of the round's own."""
    table, rules = ruled(found, **options)
    changed = found.changed(header=header, **fields or {})
    made = Admission(changed.context, table, rules)
    made.holds, made.calm = holds or made.holds, calm or made.calm
    return made


def spent(rules: Rules) -> dict[str, float]:
    """How much of each limit is spent, in all."""
    return {
        each.name.removeprefix("max_").removesuffix("_count"): float(each.spent.sum())
        for each in rules.limits
        if each.costs is None
    }


def told_to_leave(rules: Rules) -> list[int]:
    """Rows of bundles that were told to leave their brokers."""
    rows: list[int] = np.flatnonzero(rules.leaving).tolist()
    return rows


def uneven(
    broker: str, *, cpu: float, bundles: Mapping[str, tuple[float, float]], total: tuple[float, float]
) -> LoadReport:
    """A report with messages/s and bytes/s of each bundle and of the broker; a quarter of a bundle's load goes out."""
    found = load(broker, 470, cpu=cpu, bundles={name: messages for name, (messages, _) in bundles.items()})
    rates = np.array([bundles[name] for name in found.report.bundles]).reshape(-1, 2)
    traffic = np.repeat(rates, 2, axis=1) * [0.75, 0.25, 0.75, 0.25]
    messages_per_s, bytes_per_s = total
    changed = replace(found.report, traffic=traffic, messages_per_s=messages_per_s, bytes_per_s=bytes_per_s)
    return msgspec.structs.replace(found, report=changed)


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
        "unload_swap_group": np.array([each[2] if len(each) > 2 else each[0] for each in wanted]),
        "tried_rows": rows,
        "tried_outcomes": np.zeros(len(wanted), dtype=np.int8),
        "tried_examined": count % 2,
    }
    return SheddingPlan(**usual | fields)


Listed = Mapping[str, list[tuple[str, float]]]
"""Topics with messages/s, by bundle."""


def waiting(bundles: Listed) -> TopicStats:
    """Topics with messages/s by bundle; bytes/s are ten times that."""
    topics = [each for listed in bundles.values() for each in listed]
    rates = np.array([rate for _, rate in topics])
    return TopicStats(
        470_000,
        "s",
        "b1",
        TopicTraffic(
            bundles=list(bundles),
            counts=np.array([len(listed) for listed in bundles.values()], dtype=np.int64),
            topics=[name for name, _ in topics],
            messages_per_s=rates,
            bytes_per_s=10 * rates,
            sessions=np.zeros(len(rates), dtype=np.int64),
        ),
    )
