"""One closed round of a Pulsar cluster: from its reports to its actions and its summary.

The order is fixed: fleet, quorum and warm-up, masks, policy, splits, budgets, memory, outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import msgspec

from policies.columns import Codes
from policies.shedding.contract import FIRED, SheddingPlan
from policies.splitting.plan import TopicTable
from state.engine.closing import Closing, obstacle
from state.engine.memory import Header
from state.engine.summary import findings_section, fit, frame, skipped_after_pause
from state.outputs import Finding, Output, RoundSummary, Section, ShadowSummary, Split, Unload
from state.pulsar import (
    approvals,
    drain,
    effects,
    findings,
    fleet,
    masks,
    members,
    policy_memory,
    promises,
    shadow,
    splits,
    summary,
    upkeep,
)
from state.pulsar.actions import Admitted, Circumstances, admit
from state.pulsar.after import After
from state.pulsar.aftermath import remember
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.asking import Asking
from state.pulsar.budget import Budget
from state.pulsar.closing import Decided
from state.pulsar.groups import Groups
from state.pulsar.holds import holds_of
from state.pulsar.memory import Fleet, WaitingReport, WaitingTopics
from state.pulsar.shadow import Shadow
from state.pulsar.shedding import settle, shed
from state.pulsar.splits import Splits
from state.pulsar.tables import Eligible, Loads, eligible, loads
from state.pulsar.two_balancers import other_balancers
from state.settings import PulsarSettings

UNLOAD_TYPE = "trimtab.action.unload.v1"
SPLIT_TYPE = "trimtab.action.split.v1"


def decide(
    closing: Closing,
    header: Header,
    before: Fleet,
    reports: dict[str, WaitingReport],
    topics: Mapping[str, WaitingTopics],
) -> tuple[Fleet, list[Output]]:
    """The outputs of a round that somebody reported in. Changes ``header``, returns the fleet's next value."""
    pulsar, ledger = closing.settings.pulsar, header.ledger
    has_shadow = shadow.is_on(closing, header.facts)
    if closing.restarted or (before.shadow and not has_shadow):
        before.forget_policies()  # what was counted on other figures than the measured ones begins anew
    before.shadow = before.shadow if has_shadow else {}
    before.policies = policy_memory.of_policy(before.policies, pulsar.policy)
    ledger.forget_old(pulsar, end_ms=closing.end_ms)
    expected = list(ledger.expected_children(end_ms=closing.end_ms))
    if expected:
        listed = set[str]().union(*(waiting.report.bundles for waiting in reports.values()))
        fleet.inherit(before, expected, listed.__contains__)
    members.watch(
        header,
        before,
        reports,
        number=closing.number,
        restarted=closing.restarted,
        apart=closing.upkeep.apart,
    )
    advanced = fleet.advance(
        before,
        reports,
        _sampling(pulsar),
        round_end_ms=closing.end_ms,
        max_report_age_ms=pulsar.rounds.max_report_age_ms,
    )
    if has_shadow:
        advanced.fleet.shadow = shadow.keep(
            before.shadow, advanced, end_ms=closing.end_ms, max_report_age_ms=pulsar.rounds.max_report_age_ms
        )
    return advanced.fleet, _decide(closing, header, advanced, reports, topics, has_shadow=has_shadow)


def _sampling(pulsar: PulsarSettings) -> fleet.Sampling:
    return fleet.Sampling(
        samples=pulsar.bundle_average_samples,
        split_samples=pulsar.split.average_samples if pulsar.split.enabled else 0,
        skip_after_move=pulsar.skip_sample_after_move,
    )


def _live(after: Fleet, closing: Closing, pulsar: PulsarSettings) -> list[str]:
    fresh = closing.end_ms - after.broker_last_ms <= pulsar.rounds.max_report_age_ms
    return [name for name, is_live in zip(after.brokers, fresh.tolist(), strict=True) if is_live]


def _decide(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    reports: dict[str, WaitingReport],
    waiting_topics: Mapping[str, WaitingTopics],
    *,
    has_shadow: bool,
) -> list[Output]:
    pulsar, ledger = closing.settings.pulsar, header.ledger
    live = upkeep.missing(_live(advanced.fleet, closing, pulsar), reports, closing.upkeep)
    round_loads = loads(reports, pulsar, end_ms=closing.end_ms, apart=closing.upkeep.apart)
    put_back = drain.begin(header, advanced, closing.upkeep)
    answers = approvals.begin(header, closing)
    effects_found = effects.judge(
        ledger, advanced, reports, round_loads, pulsar, length_ms=header.length_ms, end_ms=closing.end_ms
    )
    checked = promises.check(ledger, round_loads, length_ms=header.length_ms, end_ms=closing.end_ms)
    leaving = shadow.without(effects_found.leaving, advanced.fleet.shadow)
    budget = Budget.of(ledger, pulsar.guards, leaving, end_ms=closing.end_ms)
    measured = _view(closing, header, advanced, round_loads, reports)
    topics = splits.topic_table(measured, waiting_topics)
    moved = shadow.of_round(advanced.fleet.shadow, advanced)
    counted = _counted(closing, header, advanced, reports, moved) or Counted(round_loads, measured, None)
    stopped = obstacle(header, pulsar.rounds, reports, live_count=len(live))
    circumstances = _circumstances(closing, header)
    if stopped:
        approvals.answer_none(answers, outcome=stopped[0], reason=stopped[1])
    decided = (
        Decided(*stopped, answers=answers)
        if stopped
        else _judge(
            closing,
            circumstances,
            header,
            counted,
            advanced,
            splits.as_in(counted.table, measured, topics),
            budget=budget,
            answers=answers,
        )
    )
    actions = _actions(closing, circumstances, decided)
    proposed = _proposals(closing, circumstances, decided, place=len(actions))
    remember(ledger, closing, decided, counted.loads, actions)
    approvals.record_proposals(header, closing, proposed)
    outputs = [*actions, *(output for output, _ in proposed)]
    if has_shadow:
        advanced.fleet.shadow = shadow.record(advanced.fleet.shadow, decided.unloads)
    ineffective = ledger.ineffective(pulsar.guards.ineffective_rest_s, end_ms=closing.end_ms)
    found = skipped_after_pause(closing) + upkeep.of_put_back(put_back)
    found += findings.of_actions(ineffective | effects_found.ineffective, effects_found.elsewhere)
    promised = promises.summarize(ledger, checked, end_ms=closing.end_ms)
    found += promises.find_failed(promised, pulsar.shedding_policy)
    found += findings.of_topics(measured, topics, pulsar.split)
    summary_ = _summary(
        closing, header, round_loads, measured, counted, decided, findings_section(found), reports, live
    )
    summary_ = msgspec.structs.replace(
        summary_,
        actions_count=len(actions),
        actions=[action.id for action in actions],
        promises=promised,
        shadow=counted.shadow,
        approval=approvals.section(header, closing, answers, actions),
        upkeep=upkeep.section(closing.upkeep, decided.drained, advanced, header.drains),
    )
    return [*outputs, closing.summary(fit(summary_), actions_count=len(outputs))]


@dataclass(frozen=True, slots=True)
class Counted:
    """What the policy sees: what was measured, or that with the shadow of a dry-run."""

    loads: Loads
    table: Eligible
    shadow: ShadowSummary | None


def _view(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    round_loads: Loads,
    reports: Mapping[str, WaitingReport],
    moved: Shadow | None = None,
) -> Eligible:
    pulsar = closing.settings.pulsar
    tick = closing.open_round.tick
    asked = () if tick is None else tick.asked
    not_missed = {*reports, *pulsar.guards.excluded_brokers, *closing.upkeep.apart}
    unsettled = masks.unsettled_brokers(header, pulsar, end_ms=closing.end_ms)
    return eligible(
        round_loads,
        advanced,
        masks.unload_mask(
            advanced, header, pulsar, unsettled, end_ms=closing.end_ms, resting=closing.upkeep.namespaces
        ),
        Groups.of(header.facts),
        header.ledger,
        end_ms=closing.end_ms,
        reports=reports,
        missing=sorted({*asked} - not_missed),
        unsettled=unsettled,
        shadow=moved,
    )


def _counted(
    closing: Closing,
    header: Header,
    advanced: fleet.Advanced,
    reports: dict[str, WaitingReport],
    moved: Shadow | None,
) -> Counted | None:
    """None where nothing counts elsewhere."""
    if moved is None:
        return None
    pulsar, apart = closing.settings.pulsar, closing.upkeep.apart
    counted = loads(reports, pulsar, end_ms=closing.end_ms, shadow=moved, apart=apart)
    usage = summary.usage_summary(100.0 * counted.usage_ratio[counted.included])
    if usage is None:  # every broker is excluded, and nothing is decided
        return None
    return Counted(
        counted, _view(closing, header, advanced, counted, reports, moved), moved.section(usage=usage)
    )


def _summary(
    closing: Closing,
    header: Header,
    round_loads: Loads,
    measured: Eligible,
    counted: Counted,
    decided: Decided,
    found: Section[Finding],
    reports: Mapping[str, WaitingReport],
    live: list[str],
) -> RoundSummary:
    pulsar, shed_ = closing.settings.pulsar, decided.shed
    framed = frame(
        closing,
        header,
        policy=pulsar.shedding_policy,
        outcome=decided.outcome,
        reason=decided.reason,
        reports_ms={name: each.time_ms for name, each in reports.items()},
        live=live,
    )
    summary_ = msgspec.structs.replace(
        framed,
        other_balancers=other_balancers(header.facts),
        brokers_excluded=[
            name for name, kept in zip(round_loads.names, round_loads.included, strict=True) if not kept
        ],
        usage=summary.usage_summary(100.0 * round_loads.usage_ratio[round_loads.included]),
        resources=summary.resource_summaries(round_loads),
        brokers=summary.broker_rows(round_loads, measured),
        judged=summary.judged_section(header.ledger.list_verdicts()),
        findings=found,
    )
    if decided.splits is not None:
        summary_ = msgspec.structs.replace(summary_, splits=splits.section(decided.splits))
    if shed_ is None:
        return summary_
    return msgspec.structs.replace(
        summary_,
        examined=summary.examined_section(counted.table, shed_, pulsar.policy),
        candidates=summary.candidates_section(counted.table, shed_.plan, decided.admitted.holds),
    )


def _judge(
    closing: Closing,
    circumstances: Circumstances,
    header: Header,
    counted: Counted,
    advanced: fleet.Advanced,
    topics: TopicTable,
    *,
    budget: Budget,
    answers: approvals.Answers,
) -> Decided:
    table, pulsar = counted.table, closing.settings.pulsar
    wanted = shed(table, advanced.fleet, pulsar, has_apart=bool(closing.upkeep.apart))

    @cache
    def split_codes() -> Codes:
        resting = closing.upkeep.namespaces
        return masks.split_mask(advanced, header, pulsar, end_ms=circumstances.end_ms, resting=resting)

    spread, after = AntiAffinity.of(header.facts, table, advanced.fleet), After(table.view)
    asked = approvals.Scene(
        table=table,
        advanced=advanced,
        split_codes=split_codes,
        budget=budget,
        circumstances=circumstances,
        spread=spread,
        after=after,
        usage_ratio=table.view.brokers.usage_ratio.copy(),
    )
    approvals.answer(answers, asked, circumstances.asking)
    decided = None
    if pulsar.split.enabled:
        codes = split_codes()
        codes[table.fleet_rows[sorted(answers.unload_rows | answers.split_rows)]] = masks.IN_FLIGHT
        decided = splits.decide(
            table,
            advanced,
            wanted.plan,
            topics,
            codes,
            proposals=wanted.proposals(),
            circumstances=circumstances,
            pulsar=pulsar,
        )
    scene = drain.Scene(
        table=table,
        advanced=advanced,
        loads=counted.loads,
        header=header,
        pulsar=pulsar,
        upkeep=closing.upkeep,
    )
    drained = drain.decide(scene, budget, circumstances, spread, after)
    admitted = admit(
        table,
        wanted.plan,
        budget,
        circumstances,
        spread,
        after,
        split_rows=answers.split_rows | (decided.rows if decided else frozenset()),
        done_rows=answers.unload_rows,
    )
    settle(wanted, table, advanced.fleet, pulsar, admitted.holds)
    reason = _decision_reason(wanted.plan, admitted, decided, drained, answers)
    return Decided("decided", reason, wanted, admitted, decided, drained, answers)


def _circumstances(closing: Closing, header: Header) -> Circumstances:
    return Circumstances(
        cluster=closing.cluster,
        number=closing.number,
        end_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        policy=closing.settings.pulsar.policy,
        dry_run=closing.is_dry_run,
        holds=holds_of(
            header,
            closing.settings.pulsar.guards,
            is_paused=closing.is_paused,
            mode=closing.mode,
            end_ms=closing.end_ms,
            zones=closing.settings.zones,
        ),
        calm=members.calm(header, closing.settings.pulsar, number=closing.number),
        asking=_asking(closing, header),
    )


def _asking(closing: Closing, header: Header) -> Asking | None:
    """What a round goes by whose actions have to be approved; None where they go out."""
    if closing.proposals_expire_ms is None:
        return None
    return Asking.of(
        closing.settings.pulsar.approval.standing,
        closing.settings.zones,
        header.proposals,
        end_ms=closing.end_ms,
        expires_ms=closing.proposals_expire_ms,
    )


def _decision_reason(
    plan: SheddingPlan,
    admitted: Admitted,
    decided: Splits | None,
    drained: drain.Drained,
    answers: approvals.Answers,
) -> str:
    fired = plan.examined.counts().get(FIRED, 0)
    held = len(admitted.holds)
    sentence = f"{fired} of {len(plan.examined)} examined fired, {len(admitted.unloads)} unloads decided, {held} held back"
    if answers.unloads or answers.cuts:
        sentence += f"; {len(answers.unloads) + len(answers.cuts)} approved actions go out"
    if drained.unloads:
        sentence += f"; {len(drained.unloads)} unloads empty drained brokers"
    if admitted.proposals or (decided and decided.proposed):
        count = len(admitted.proposals) + (len(decided.proposed) if decided else 0)
        sentence += f"; {count} proposed"
    if decided is None:
        return sentence
    return f"{sentence}; {len(decided.plan.examined)} bundles stand out for a split, {len(decided.admitted)} splits decided"


def _actions(closing: Closing, circumstances: Circumstances, decided: Decided) -> list[Output]:
    """Unloads that were approved, those that empty drained brokers, those of the policy in its order, then splits in that of the criteria."""
    cuts = splits.actions(decided.splits, circumstances) if decided.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in decided.unloads),
        *((SPLIT_TYPE, cut.action) for cut in decided.answers.cuts),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        closing.action(type_, action.bundle, action, place=place)
        for place, (type_, action) in enumerate(typed)
    ]


def _proposals(
    closing: Closing, circumstances: Circumstances, decided: Decided, *, place: int
) -> list[tuple[Output, Unload | Split]]:
    """What waits for approval, behind the actions of the round."""
    cuts = splits.proposals(decided.splits, circumstances) if decided.splits else []
    typed: list[tuple[str, Unload | Split]] = [
        *((UNLOAD_TYPE, unload) for unload in decided.admitted.proposals),
        *((SPLIT_TYPE, cut) for cut in cuts),
    ]
    return [
        (closing.proposal(type_, action.bundle, action, place=place + at), action)
        for at, (type_, action) in enumerate(typed)
    ]
