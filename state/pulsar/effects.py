"""Judges the effects of actions.

Only real actions with a result are judged: a failed one at once, a succeeded one by the reports that came after its result. An
unload is good once another broker owns its bundle. A split is good once a child is listed and the parent is not. A round counts
against an action only if the broker concerned reported in it: a missing report does not mean "no effect". An action that was
skipped, or whose brokers sent no report for too long, gets no verdict.

Source: ours; Pulsar's answer to an admin call does not say whether anything happened.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from policies.shedding.view import Side, Traffic
from state.engine.ledger import ActionKind, Decision, Ledger, Verdict, end_watch
from state.pulsar.fleet import Advanced
from state.pulsar.memory import WaitingReport
from state.pulsar.tables import Loads
from state.settings import GuardSettings, PulsarSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What the reports of a round show about earlier decisions."""

    elsewhere: "list[Elsewhere]"
    """Unloads that landed elsewhere."""
    ineffective: dict[str, Decision]
    """By bundle, actions that this round found to have had no effect."""
    leaving: dict[str, set[str]]
    """By broker, bundles that it still lists, that were told to leave it and may still do so."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An unload that had an effect, but another than the one decided."""

    bundle: str
    owner: str
    destination: str


def judge(
    ledger: Ledger,
    advanced: Advanced,
    reports: Mapping[str, WaitingReport],
    loads: Loads,
    pulsar: PulsarSettings,
    *,
    length_ms: int,
    end_ms: int,
) -> Effects:
    """Judge earlier actions by the reports of a round."""
    patience_ms = pulsar.guards.ineffective_after_rounds_count * length_ms + pulsar.rounds.max_report_age_ms
    for each in ledger.decisions:
        last_ms = each.until_ms if each.succeeded_ms is None else each.succeeded_ms + patience_ms
        each.is_watched = each.is_watched and end_ms < last_ms
    watched = [each for each in ledger.decisions if each.is_watched and each.succeeded_ms is not None]
    expired = [each for each in ledger.decisions if each.is_unanswered(end_ms)]
    names = {
        name
        for each in watched + expired
        for name in (each.bundle, *(child.bundle for child in each.children))
    }
    owners = advanced.owners_of(names) if names else {}
    elsewhere = _judge_all(watched, ledger, owners, reports, loads, pulsar.guards, end_ms=end_ms)
    _count_unanswered(expired, ledger, owners, reports)
    leaving = _see_departures(ledger, advanced, end_ms=end_ms)
    for kind in _failing_kinds(ledger, pulsar.guards):
        ledger.failing_since_ms.setdefault(kind, end_ms)
    ineffective = {
        each.bundle: each
        for each in ledger.decisions
        if each.verdict and each.verdict.outcome == "ineffective" and each.verdict.judged_ms == end_ms
    }
    return Effects(elsewhere=elsewhere, ineffective=ineffective, leaving=leaving)


def _judge_all(
    watched: Sequence[Decision],
    ledger: Ledger,
    owners: Mapping[str, str],
    reports: Mapping[str, WaitingReport],
    loads: Loads,
    guards: GuardSettings,
    *,
    end_ms: int,
) -> list[Elsewhere]:
    elsewhere = []
    for each in watched:
        owner = owners.get(each.bundle, "")
        found = _has_effect(each, owners, reports) if guards.ineffective_after_rounds_count else True
        if found:
            end_watch(each, Verdict("good", end_ms, owner, each.rounds_count))
            elsewhere += _find_elsewhere(each, owner)
        elif found is False:
            each.rounds_count += 1
            if each.rounds_count >= guards.ineffective_after_rounds_count:
                end_watch(each, Verdict("ineffective", end_ms, owner, each.rounds_count))
        if each.verdict is not None and each.kind == "unload":
            each.verdict = msgspec.structs.replace(
                each.verdict,
                expected=ledger.expected_traffic(each),
                seen=_observe_traffic(each, reports, loads),
            )
    return elsewhere


def _observe_traffic(
    decision: Decision, reports: Mapping[str, WaitingReport], loads: Loads
) -> dict[Side, Traffic]:
    found: dict[Side, Traffic] = {}
    for side in decision.before:
        broker = decision.broker_of(side)
        if broker is not None and _has_reported_since(decision, reports, broker):
            found[side] = loads.traffic_of(broker)
    return found


def _find_elsewhere(decision: Decision, owner: str) -> list[Elsewhere]:
    if decision.destination is None or owner in ("", decision.source, decision.destination):
        return []
    return [Elsewhere(decision.bundle, owner, decision.destination)]


def _has_effect(
    decision: Decision, owners: Mapping[str, str], reports: Mapping[str, WaitingReport]
) -> bool | None:
    """Whether an action had its effect; None if the round's reports do not show it."""
    owner = owners.get(decision.bundle)
    if decision.kind == "split":
        if owner is None:
            return True if any(child.bundle in owners for child in decision.children) else None
        return False if _has_reported_since(decision, reports, owner) else None
    if owner is not None and owner != decision.source:
        return True
    return owner is None if _has_reported_since(decision, reports, decision.source) else None


def _has_reported_since(decision: Decision, reports: Mapping[str, WaitingReport], broker: str) -> bool:
    """Whether a broker's report of the round is no older than the result, or the expiry: an older one cannot show an effect."""
    report = reports.get(broker)
    since_ms = decision.expires_ms if decision.succeeded_ms is None else decision.succeeded_ms
    return report is not None and report.time_ms >= since_ms


def _count_unanswered(
    expired: Sequence[Decision],
    ledger: Ledger,
    owners: Mapping[str, str],
    reports: Mapping[str, WaitingReport],
) -> None:
    """Count the actions that expired without a result, as soon as reports show whether they had an effect."""
    for each in expired:
        found = _has_effect(each, owners, reports)
        if found is not None:
            each.is_counted = True
            ledger.count_unanswered(decided_ms=each.decided_ms, had_effect=found)


def _see_departures(ledger: Ledger, advanced: Advanced, *, end_ms: int) -> dict[str, set[str]]:
    """By broker, bundles that are still leaving. One that is seen at another broker has left; one whose unload is over stays."""
    found: dict[str, set[str]] = defaultdict(set)
    on_their_way = ledger.unloads_on_their_way()
    stays = [advanced.owns(each.source, each.bundle) for each in on_their_way]
    gone = {each.bundle for each, is_there in zip(on_their_way, stays, strict=True) if not is_there}
    elsewhere = advanced.owners_of(gone) if gone else {}
    for each, is_there in zip(on_their_way, stays, strict=True):
        may_leave = is_there or each.bundle not in elsewhere
        each.is_leaving = may_leave and (end_ms < each.until_ms or each.is_watched)
        if each.is_leaving and is_there:
            found[each.source].add(each.bundle)
    return found


def _failing_kinds(ledger: Ledger, guards: GuardSettings) -> list[ActionKind]:
    most = guards.failing_actions_count
    return [kind for kind in get_args(ActionKind) if 0 < most <= ledger.failures_count(kind)]
