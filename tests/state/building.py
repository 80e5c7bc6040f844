"""Actions, and what a round of a Pulsar cluster sees, built by hand for the tests of single modules.

Rounds last a minute; the one that is looked at is that of ``tests.state.engine.test_summary.closing``, number 7.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from policies.columns import Floats
from policies.costs import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, KBIT_PER_BYTE, Costs
from policies.shedding.registry import POLICIES
from policies.shedding.rules import Rules
from policies.usage import REPORTED_COUNT, RESOURCES
from state.events import LoadReport
from state.facts import Facts
from state.guard_settings import NO_ZONES
from state.ledger import Decision, Ledger
from state.outputs import Output, Split, SplitChild, Unload, output
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.pulsar.budgets import with_rules
from state.pulsar.fleet import Advanced, Sampling, advance
from state.pulsar.groups import Groups
from state.pulsar.holds import Asking, Calm, Circumstances, Holds
from state.pulsar.memory import Fleet, WaitingReport
from state.pulsar.view import Eligible, Loads, eligible, loads
from state.settings import GuardSettings, PulsarSettings
from tests.state.traces import load

END_MS = 480_000
EXPIRES_AT, EXPIRES_MS = "1970-01-01T00:11:00.000Z", 660_000
PROPOSALS_EXPIRE_AT, PROPOSALS_EXPIRE_MS = "1970-01-01T01:00:00.000Z", 3_600_000
AGE_MS = 180_000
"""``max_report_age_s`` of the defaults."""
BUNDLE, LEFT, RIGHT = "t/a/0x00_0x80", "t/a/0x00_0x40", "t/a/0x40_0x80"

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
        kind="action",
        type_=UNLOAD_TYPE if isinstance(action, Unload) else SPLIT_TYPE,
        subject=action.bundle,
        cluster=action.cluster,
        number=action.round,
        place=place,
        time_ms=time_ms,
        data=action,
        dry_run=action.dry_run or action.proposal is True,
    )


def waiting(*reports: LoadReport) -> dict[str, WaitingReport]:
    """Reports by broker, as they wait for a round's close."""
    return {each.broker: WaitingReport(each.time_ms, each.id, each.report) for each in reports}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a round sees."""

    reports: dict[str, WaitingReport]
    advanced: Advanced
    loads: Loads
    table: Eligible


def seen(
    *reports: LoadReport,
    before: Fleet | None = None,
    pulsar: PulsarSettings | None = None,
    apart: Collection[str] = (),
    groups: Groups | None = None,
    left: Collection[str] | None = None,
    end_ms: int | None = None,
) -> Seen:
    """What the round sees in these reports, if every bundle may move; ``apart`` are brokers that take no part.

    Absent bundles stay unless ``left`` is None; it has those that were unloaded.
    """
    settings, found = pulsar or PulsarSettings(), waiting(*reports)
    advanced = advance(
        before or Fleet(),
        found,
        Sampling(samples=10, split_samples=10, skip_after_move=True),
        round_end_ms=END_MS if end_ms is None else end_ms,
        max_report_age_ms=AGE_MS,
        left=left,
    )
    round_loads = loads(found, settings, advanced, end_ms=END_MS if end_ms is None else end_ms, apart=apart)
    table = eligible(
        round_loads,
        advanced,
        np.zeros(advanced.owned_count, dtype=np.int8),
        groups or Groups(),
        Ledger(),
        end_ms=END_MS,
        reports=found,
        costs=plain_costs(round_loads.limits),
    )
    return Seen(reports=found, advanced=advanced, loads=round_loads, table=table)


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
) -> tuple[Eligible, Rules]:
    """The view with its rules: anti-affinity groups, failure domains, unloads of the last hour, and limits; that of traffic is off."""
    ledger = Ledger([_unloaded(is_drain=each >= hour_count) for each in range(hour_count + drained_count)])
    return with_rules(
        found.table,
        found.advanced,
        GuardSettings(**guards),
        lifetime_s=lifetime_s,
        facts=Facts([], [], [], [], dict(groups or {}), [], {}, dict(domains or {})),
        ledger=ledger,
        leaving=leaving,
        drained=drained,
        end_ms=END_MS,
    )


def _unloaded(*, is_drain: bool) -> Decision:
    return Decision(
        id="a",
        kind="unload",
        bundle=BUNDLE,
        source="b1",
        destination="b2",
        children=(),
        decided_ms=END_MS,
        expires_ms=EXPIRES_MS,
        until_ms=EXPIRES_MS,
        dry_run=False,
        is_watched=True,
        is_leaving=False,
        is_drain=is_drain,
    )


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


def circumstances(**fields: Any) -> Circumstances:
    """What every action of a round shares, if nothing holds the round and nothing has to be approved."""
    usual: dict[str, Any] = {
        "cluster": "east-1",
        "number": 7,
        "end_ms": END_MS,
        "expires_ms": EXPIRES_MS,
        "policy": POLICIES[0],
        "dry_run": False,
        "holds": Holds(unload=None, split=None),
        "calm": Calm(),
    }
    return Circumstances(**usual | fields)


def required(**fields: Any) -> Asking:
    """Required approval, without a standing approval and without an open proposal."""
    usual: dict[str, Any] = {
        "rules": {},
        "zones": NO_ZONES,
        "end_ms": END_MS,
        "expires_ms": PROPOSALS_EXPIRE_MS,
        "waiting": {},
    }
    return Asking(**usual | fields)
