"""One closed round of a Pulsar cluster: from its reports to its actions, the ledger and its summary.

The order is fixed: fleet, quorum and warm-up, masks, answers, drains, policy, splits, budgets, memory, outputs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from policies.shedding.contract import SheddingPlan
from policies.shedding.view import Side
from policies.splitting.plan import TopicTable
from state.closing import Closing, obstacle
from state.events import LoadReport, TopicStats
from state.ledger import Decision
from state.memory import Header
from state.outputs import Output, Split, Unload
from state.outputs.actions import SPLIT_TYPE, UNLOAD_TYPE
from state.pulsar import (
    approvals,
    broker_findings,
    budgets,
    drain_records,
    drains,
    effects,
    findings,
    fleet,
    groups,
    holds,
    masks,
    shadow,
    splits,
)
from state.pulsar.admission import Admission, traffic_in
from state.pulsar.effects import Promised, promised
from state.pulsar.memory import Fleet
from state.pulsar.shedding import Admitted, admit, settle, shed
from state.pulsar.splits import Splits
from state.pulsar.summary import Decided, candidate_outcomes, summarize
from state.pulsar.view import PolicyView, RoundContext, policy_view, round_context, shadowed_view
from state.pulsar.wording import actions_text, calm_text, stay_text
from state.summary import fit


def decide(
    closing: Closing,
    header: Header,
    before: Fleet,
    reports: dict[str, LoadReport],
    topics: Mapping[str, TopicStats],
) -> tuple[Fleet, list[Output]]:
    """The outputs of a round in which a broker reported. Changes ``header``, returns the fleet's next value."""
    has_shadow = shadow.is_on(closing, header.facts)
    if closing.restarted or (before.shadow and not has_shadow):
        before.forget_policies()  # what was counted with the shadow's figures begins anew
    before.shadow = before.shadow if has_shadow else {}
    advanced = _advance(closing, header, before, reports)
    if has_shadow:
        advanced.fleet.shadow = shadow.keep(
            before.shadow,
            advanced,
            end_ms=closing.end_ms,
            max_report_age_ms=closing.settings.pulsar.rounds.max_report_age_ms,
        )
    context = round_context(closing, header, before, advanced, reports)
    return advanced.fleet, _decide(context, topics, has_shadow=has_shadow)


def _advance(
    closing: Closing, header: Header, before: Fleet, reports: dict[str, LoadReport]
) -> fleet.Advanced:
    """The fleet after the round; what is remembered of it before is brought up to the settings and decisions in force."""
    pulsar, ledger = closing.settings.pulsar, header.ledger
    before.policies = groups.keep_policy(before.policies, pulsar.policy)
    ledger.forget_old(pulsar, end_ms=closing.end_ms)
    expected = list(ledger.expected_children(end_ms=closing.end_ms))
    if expected:
        listed = set[str]().union(*(waiting.report.bundles for waiting in reports.values()))
        fleet.inherit(before, expected, listed.__contains__)
    holds.watch_members(header, before, reports, closing)
    unloads = {move.bundle: move.destination for move in ledger.unloads_on_their_way() if not move.dry_run}
    return fleet.advance(
        before,
        reports,
        fleet.Sampling(
            samples=pulsar.bundle_average_samples,
            split_samples=pulsar.split.average_samples if pulsar.split.enabled else 0,
            skip_after_move=pulsar.skip_sample_after_move,
            skip_outliers=pulsar.policy.plans_rounds,
        ),
        round_end_ms=closing.end_ms,
        max_report_age_ms=pulsar.rounds.max_report_age_ms,
        unloads=unloads,
        keeps_absent=pulsar.policy.plans_rounds,
    )


def _decide(
    context: RoundContext, waiting_topics: Mapping[str, TopicStats], *, has_shadow: bool
) -> list[Output]:
    pulsar, closing = context.pulsar, context.closing
    broker_findings.watch(context)
    findings.watch_coordinators(context)
    put_back = drain_records.begin(context)
    answers = approvals.begin(context)
    effects_found = effects.judge(context)
    checked = effects.check_promises(context)
    unsettled = masks.unsettled_brokers(context)
    codes = masks.unload_mask(context, unsettled)
    closed = unsettled | context.ledger.unreached_brokers(end_ms=context.end_ms)
    measured = policy_view(context, codes, closed)
    table = shadowed_view(context, codes, closed) or measured
    topics = splits.topic_table(measured, waiting_topics)
    stopped = obstacle(context.header, pulsar.rounds, context.reports, live_count=len(context.live))
    if stopped:
        approvals.answer_none(answers, outcome=stopped[0], reason=stopped[1])
        decided = Decided(*stopped, drained=drains.stand_by(context, *stopped), answers=answers)
    else:
        leaving = {  # what counts as gone already does not leave any more
            broker: bundles - context.fleet.shadow.keys() for broker, bundles in effects_found.leaving.items()
        }
        decided = judge(
            context, table, splits.as_in(table, measured, topics), leaving=leaving, answers=answers
        )
        budgets.watch_forbidden(context, table, decided.admitted)
    made = [
        (closing.action(_type_of(action), action.bundle, action, place=place), action)
        for place, action in enumerate(decided.actions)
    ]
    proposed = [
        (closing.proposal(_type_of(action), action.bundle, action, place=place), action)
        for place, action in enumerate(decided.proposals, len(made))
    ]
    remember(context, table, made)
    approvals.record_proposals(context, proposed)
    if has_shadow:
        context.fleet.shadow = shadow.record(context.fleet.shadow, decided.unloads)
    promised_ = effects.summarize_promises(context, checked)
    found = [
        *drain_records.find_put_back(put_back),
        *findings.of_actions(context, effects_found),
        *effects.find_failed_promises(promised_, closing.cluster),
        *broker_findings.of_brokers(context, measured),
        *findings.find_gathered(context),
        *findings.of_gaps(context.advanced),
        *findings.of_overlaps(context.advanced),
        *findings.of_strays(context),
        *findings.of_topics(measured, topics, pulsar.split),
        *budgets.find_forbidden(context),
        *(findings.of_splits(decided.splits) if decided.splits else ()),
        *findings.of_unowned(closing.open_round.tick, len(context.fleet.owner)),
    ]
    actions = [output for output, _ in made]
    outputs = [*actions, *(output for output, _ in proposed)]
    summary = msgspec.structs.replace(
        summarize(context, table, decided, mask_codes=codes, actions=actions, findings=found),
        promises=promised_,
        approval=approvals.section(context, answers, made),
        maintenance=drains.section(context, decided.drained),
    )
    return [*outputs, closing.summary(fit(summary), actions_count=len(outputs))]


def _type_of(action: Unload | Split) -> str:
    return UNLOAD_TYPE if isinstance(action, Unload) else SPLIT_TYPE


def judge(
    context: RoundContext,
    table: PolicyView,
    topics: TopicTable,
    *,
    leaving: Mapping[str, Collection[str]],
    answers: approvals.Answers,
) -> Decided:
    """What a round does. Answers and drains come before the policy, whose rules know what they leave.

    ``leaving`` are the bundles, by broker, that were told to leave it.
    """
    table, rules = budgets.with_rules(context, table, leaving)
    admission = Admission(context, table, rules)
    approvals.answer(answers, admission, topics)
    drained = drains.decide(admission)
    wanted = shed(context, table)
    decided = None
    if context.pulsar.split.enabled:
        decided = splits.decide(
            admission,
            wanted.plan,
            topics,
            proposals=wanted.proposals(masks.stays(table.mask_codes)),
            acting=answers.unload_rows | answers.split_rows,
            approved=answers.cuts,
        )
    admitted = admit(
        admission,
        wanted.plan,
        split_rows=answers.split_rows | (decided.rows | decided.counting if decided else frozenset()),
        before_moves=decided.before_moves if decided else {},
        done_rows=answers.unload_rows,
    )
    settle(context, wanted, admitted.holds)
    reason = _decision_reason(admission, table, wanted.plan, decided, drained, answers, admitted)
    return Decided("decided", reason, wanted, admitted, decided, drained, answers)


def _decision_reason(
    admission: Admission,
    table: PolicyView,
    plan: SheddingPlan,
    decided: Splits | None,
    drained: drains.Drained,
    answers: approvals.Answers,
    admitted: Admitted,
) -> str:
    """What happens and why the rest does not; while a controller without memory starts, until when that is."""
    hold = admission.holds.unload
    unloads = len(answers.unloads) + len(drained.unloads) + len(admitted.unloads)
    why = stay_text(
        Counter(candidate_outcomes(table, plan, admitted.holds)),
        limits={hold.limit for hold in admitted.holds.values() if hold.limit},
    )
    if not why and not unloads:
        why = calm_text(plan.examined.counts(), admission.context.pulsar.policy)
    parts = [
        *([f"starting: {hold.detail}"] if hold is not None and hold.reason == "starting" else []),
        actions_text(
            unloads,
            "unload",
            why or ("" if unloads else "there is no broker to look at"),
            approved=len(answers.unloads),
            to_empty_drained_brokers=len(drained.unloads),
        ),
    ]
    cuts = len(answers.cuts) + (len(decided.cuts) if decided else 0)
    standing_out = splits.section(decided).outcomes if decided else {}
    if cuts or standing_out:
        parts.append(
            actions_text(
                cuts,
                "split",
                stay_text(standing_out, action="split", limits=["max_splits_per_round_count"]),
                approved=len(answers.cuts),
            )
        )
    return "; ".join(parts)


def remember(context: RoundContext, table: PolicyView, made: Sequence[tuple[Output, Unload | Split]]) -> None:
    """Record the actions that were decided on a view, each with its encoded output, in their order."""
    closing, decisions = context.closing, []
    for output, action in made:
        decision = Decision(
            id=output.id,
            kind="unload" if isinstance(action, Unload) else "split",
            bundle=output.subject,
            source=action.source_broker if isinstance(action, Unload) else action.broker,
            destination=action.destination_broker if isinstance(action, Unload) else None,
            children=() if isinstance(action, Unload) else tuple(approvals.children_of(action)),
            decided_ms=closing.end_ms,
            expires_ms=closing.expires_ms,
            # By then, an action that was carried out just before it expired has a result and shows in the next load reports.
            until_ms=closing.expires_ms + context.max_report_age_ms,
            dry_run=output.dry_run,
            is_watched=not output.dry_run,
            is_leaving=isinstance(action, Unload),
        )
        if isinstance(action, Unload):
            sides: dict[Side, str | None] = {
                "source": action.source_broker,
                "destination": action.destination_broker,
            }
            decision.is_drain = action.policy == drains.POLICY
            promise = Promised({}, {}) if decision.is_drain else promised(action, table)
            decision.traffic = traffic_in(action.evidence)
            decision.before = {
                side: table.loads.traffic_of(broker) for side, broker in sides.items() if broker is not None
            }
            decision.before_points, decision.promised_points = promise
        decisions.append(decision)
    context.ledger.record(decisions)
