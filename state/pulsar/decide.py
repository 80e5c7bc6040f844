"""One closed round of a Pulsar cluster: from its reports to its actions, the ledger and its summary.

The order is fixed: fleet, quorum and warm-up, masks, policy, splits, budgets, memory, outputs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import msgspec

from policies.columns import Codes
from policies.shedding.contract import SheddingPlan
from policies.shedding.outcomes import FIRED
from policies.shedding.view import RoundView, Side, Traffic
from policies.splitting.plan import TopicTable
from policies.wording import counted
from state.closing import Closing, obstacle
from state.ledger import ActionKind, Child, Decision, Ledger
from state.memory import Header
from state.outputs import Finding, Output, Split, Unload
from state.pulsar import (
    approvals,
    budgets,
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
from state.pulsar.approvals import children_of
from state.pulsar.budgets import with_rules
from state.pulsar.effects import Promised, promised
from state.pulsar.holds import Circumstances, circumstances_of
from state.pulsar.memory import Fleet, WaitingReport, WaitingTopics
from state.pulsar.shedding import Admitted, After, Shed, admit, settle, shed
from state.pulsar.splits import Splits
from state.pulsar.summary import Decided, actions_of, proposals_of, summarize
from state.pulsar.view import Counted, Eligible, Loads, learn_costs, loads, view_of, with_shadow
from state.settings import MS_PER_S, PulsarSettings
from state.summary import fit


def judge(
    closing: Closing,
    circumstances: Circumstances,
    header: Header,
    counted: Counted,
    advanced: fleet.Advanced,
    topics: TopicTable,
    *,
    leaving: Mapping[str, Collection[str]],
    answers: approvals.Answers,
) -> Decided:
    """What a round does. Answers and drains come before the policy, whose rules know what they leave.

    ``leaving`` are the bundles, by broker, that were told to leave it.
    """
    pulsar, lifetime_s = closing.settings.pulsar, (closing.expires_ms - closing.end_ms) / MS_PER_S
    table, rules = with_rules(
        counted.table,
        advanced,
        pulsar.guards,
        facts=header.facts,
        ledger=header.ledger,
        leaving=leaving,
        drained=closing.upkeep.drains,
        lifetime_s=lifetime_s if pulsar.policy.plans_rounds else None,
        end_ms=closing.end_ms,
    )

    @cache
    def split_codes() -> Codes:
        resting = closing.upkeep.namespaces
        return masks.split_mask(advanced, header, pulsar, end_ms=circumstances.end_ms, resting=resting)

    after = After(table.view)
    asked = approvals.Scene(
        table=table,
        advanced=advanced,
        split_codes=split_codes,
        rules=rules,
        circumstances=circumstances,
        after=after,
        usage_ratio=table.view.brokers.usage_ratio.copy(),
    )
    approvals.answer(answers, asked, circumstances.asking)
    scene = drains.Scene(
        table=table,
        advanced=advanced,
        loads=counted.loads,
        header=header,
        pulsar=pulsar,
        upkeep=closing.upkeep,
    )
    drained = drains.decide(scene, rules, circumstances, after)
    wanted = shed(table, advanced.fleet, pulsar, has_apart=bool(closing.upkeep.apart))
    decided = _decide_splits(wanted, table, advanced, topics, split_codes, answers, circumstances, pulsar)
    admitted = admit(
        table,
        wanted.plan,
        rules,
        circumstances,
        after,
        split_rows=answers.split_rows | (decided.rows if decided else frozenset()),
        done_rows=answers.unload_rows,
    )
    settle(wanted, table, advanced.fleet, pulsar, admitted.holds)
    reason = _decision_reason(wanted.plan, admitted, decided, drained, answers)
    return Decided("decided", reason, wanted, admitted, decided, drained, answers)


def _decide_splits(
    wanted: Shed,
    table: Eligible,
    advanced: fleet.Advanced,
    topics: TopicTable,
    split_codes: Callable[[], Codes],
    answers: approvals.Answers,
    circumstances: Circumstances,
    pulsar: PulsarSettings,
) -> Splits | None:
    """The round's splits; None where they are switched off. Bundles of approved actions count as in flight."""
    if not pulsar.split.enabled:
        return None
    return splits.decide(
        table,
        advanced,
        wanted.plan,
        topics,
        split_codes(),
        proposals=wanted.proposals(),
        acting=answers.unload_rows | answers.split_rows,
        circumstances=circumstances,
        pulsar=pulsar,
    )


def _decision_reason(
    plan: SheddingPlan,
    admitted: Admitted,
    decided: Splits | None,
    drained: drains.Drained,
    answers: approvals.Answers,
) -> str:
    fired = plan.examined.counts().get(FIRED, 0)
    held = len(admitted.holds)
    sentence = f"{fired} of {len(plan.examined)} examined fired, {counted(len(admitted.unloads), 'unload')} decided, {held} held back"
    if answers.unloads or answers.cuts:
        approved = len(answers.unloads) + len(answers.cuts)
        sentence += f"; {counted(approved, 'approved action')} go{'es' * (approved == 1)} out"
    if drained.unloads:
        sentence += f"; {counted(len(drained.unloads), 'unload')} to empty drained brokers"
    if admitted.proposals or (decided and decided.proposed):
        count = len(admitted.proposals) + (len(decided.proposed) if decided else 0)
        sentence += f"; {count} proposed"
    if decided is None:
        return sentence
    outstanding = len(decided.plan.examined)
    return (
        f"{sentence}; {counted(outstanding, 'bundle')} stand{'s' * (outstanding == 1)} out for a split, "
        f"{counted(len(decided.admitted), 'split')} decided"
    )


def remember(
    ledger: Ledger,
    closing: Closing,
    made: Sequence[tuple[Output, Unload | Split]],
    loads: Loads,
    view: RoundView,
) -> None:
    """Record the actions that were decided on a view, each with its encoded output, in their order."""
    ledger.record(
        [
            _unload(output, action, closing, loads, view)
            if isinstance(action, Unload)
            else _decision(output, closing, "split", source=action.broker, children=children_of(action))
            for output, action in made
        ]
    )


def _unload(output: Output, unload: Unload, closing: Closing, loads: Loads, view: RoundView) -> Decision:
    is_drain = unload.policy == drains.POLICY
    sides: dict[Side, str | None] = {"source": unload.source_broker, "destination": unload.destination_broker}
    return _decision(
        output,
        closing,
        "unload",
        source=unload.source_broker,
        destination=unload.destination_broker,
        traffic=Traffic(
            float(unload.evidence["bundle_messages_per_s"]), float(unload.evidence["bundle_bytes_per_s"])
        ),
        before={side: loads.traffic_of(broker) for side, broker in sides.items() if broker is not None},
        promise=None if is_drain else promised(unload, loads, view),
        is_drain=is_drain,
    )


def _decision(
    output: Output,
    closing: Closing,
    kind: ActionKind,
    *,
    source: str,
    destination: str | None = None,
    children: Sequence[Child] = (),
    traffic: Traffic | None = None,
    before: dict[Side, Traffic] | None = None,
    promise: Promised | None = None,
    is_drain: bool = False,
) -> Decision:
    return Decision(
        id=output.id,
        kind=kind,
        bundle=output.subject,
        source=source,
        destination=destination,
        children=tuple(children),
        traffic=traffic,
        before=before or {},
        before_points=promise.before_points if promise else {},
        promised_points=promise.change_points if promise else {},
        decided_ms=closing.end_ms,
        expires_ms=closing.expires_ms,
        # By then, an action that was carried out just before it expired has a result and shows in the next load reports.
        until_ms=closing.expires_ms + closing.settings.pulsar.rounds.max_report_age_ms,
        dry_run=output.dry_run,
        is_watched=not output.dry_run,
        is_leaving=kind == "unload",
        is_drain=is_drain,
    )


def decide(
    closing: Closing,
    header: Header,
    before: Fleet,
    reports: dict[str, WaitingReport],
    topics: Mapping[str, WaitingTopics],
) -> tuple[Fleet, list[Output]]:
    """The outputs of a round in which a broker reported. Changes ``header``, returns the fleet's next value."""
    pulsar, ledger = closing.settings.pulsar, header.ledger
    has_shadow = shadow.is_on(closing, header.facts)
    if closing.restarted or (before.shadow and not has_shadow):
        before.forget_policies()  # what was counted with the shadow's figures begins anew
    before.shadow = before.shadow if has_shadow else {}
    before.policies = groups.keep_policy(before.policies, pulsar.policy)
    ledger.forget_old(pulsar, end_ms=closing.end_ms)
    expected = list(ledger.expected_children(end_ms=closing.end_ms))
    if expected:
        listed = set[str]().union(*(waiting.report.bundles for waiting in reports.values()))
        fleet.inherit(before, expected, listed.__contains__)
    holds.watch_members(
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
        left={each.bundle for each in ledger.unloads_on_their_way()} if pulsar.policy.plans_rounds else None,
    )
    advanced.fleet.gathered = findings.watch_coordinators(
        None if closing.restarted else before.gathered, reports, end_ms=closing.end_ms
    )
    if has_shadow:
        advanced.fleet.shadow = shadow.keep(
            before.shadow, advanced, end_ms=closing.end_ms, max_report_age_ms=pulsar.rounds.max_report_age_ms
        )
    return advanced.fleet, _decide(closing, header, before, advanced, reports, topics, has_shadow=has_shadow)


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
    before: Fleet,
    advanced: fleet.Advanced,
    reports: dict[str, WaitingReport],
    waiting_topics: Mapping[str, WaitingTopics],
    *,
    has_shadow: bool,
) -> list[Output]:
    pulsar, ledger = closing.settings.pulsar, header.ledger
    live = drains.missing_brokers(_live(advanced.fleet, closing, pulsar), reports, closing.upkeep)
    round_loads = loads(reports, pulsar, advanced, end_ms=closing.end_ms, apart=closing.upkeep.apart)
    costs = learn_costs(advanced, round_loads, ledger, end_ms=closing.end_ms)
    findings.watch(
        before,
        advanced,
        round_loads,
        reports,
        start_ms=closing.start_ms,
        max_report_age_ms=pulsar.rounds.max_report_age_ms,
    )
    put_back = drains.begin(header, advanced, closing.upkeep)
    answers = approvals.begin(header, closing)
    effects_found = effects.judge(
        ledger, advanced, reports, round_loads, pulsar, length_ms=header.length_ms, end_ms=closing.end_ms
    )
    checked = effects.check_promises(ledger, round_loads, length_ms=header.length_ms, end_ms=closing.end_ms)
    measured = view_of(closing, header, advanced, round_loads, reports, costs)
    topics = splits.topic_table(measured, waiting_topics)
    counted = with_shadow(closing, header, advanced, reports, costs) or Counted(round_loads, measured, None)
    stopped = obstacle(header, pulsar.rounds, reports, live_count=len(live))
    circumstances = circumstances_of(closing, header)
    if stopped:
        approvals.answer_none(answers, outcome=stopped[0], reason=stopped[1])
        decided = Decided(*stopped, answers=answers)
    else:
        in_view = splits.as_in(counted.table, measured, topics)
        leaving = shadow.without(effects_found.leaving, advanced.fleet.shadow)
        decided = judge(
            closing, circumstances, header, counted, advanced, in_view, leaving=leaving, answers=answers
        )
        budgets.watch_forbidden(header, decided.admitted, counted.table, number=closing.number)
    made = actions_of(closing, circumstances, decided)
    proposed = proposals_of(closing, circumstances, decided, place=len(made))
    remember(ledger, closing, made, counted.loads, counted.table.view)
    approvals.record_proposals(header, closing, proposed)
    actions = [output for output, _ in made]
    outputs = [*actions, *(output for output, _ in proposed)]
    if has_shadow:
        advanced.fleet.shadow = shadow.record(advanced.fleet.shadow, decided.unloads)
    promised = effects.summarize_promises(ledger, checked, end_ms=closing.end_ms)
    found = [
        *drains.find_put_back(put_back),
        *_of_actions(closing, ledger, effects_found),
        *effects.find_failed_promises(promised, pulsar.shedding_policy),
        *findings.of_brokers(advanced, round_loads, measured, reports, end_ms=closing.end_ms),
        *findings.find_gathered(
            advanced.fleet.gathered, reports, live_count=len(live), end_ms=closing.end_ms
        ),
        *findings.of_gaps(advanced),
        *findings.of_overlaps(advanced),
        *findings.of_topics(measured, topics, pulsar.split),
        *budgets.find_forbidden(header, pulsar.shedding_policy, number=closing.number),
        *(findings.of_splits(decided.splits) if decided.splits else ()),
        *findings.of_unowned(closing.open_round.tick, len(advanced.fleet.owner)),
    ]
    summary_ = msgspec.structs.replace(
        summarize(closing, header, round_loads, measured, counted, decided, actions, found, reports, live),
        promises=promised,
        approval=approvals.section(header, closing, answers, actions),
        upkeep=drains.section(closing.upkeep, decided.drained, advanced, header.drains, reports),
    )
    return [*outputs, closing.summary(fit(summary_), actions_count=len(outputs))]


def _of_actions(closing: Closing, ledger: Ledger, found: effects.Effects) -> list[Finding]:
    rest_s = closing.settings.pulsar.guards.ineffective_rest_s
    ineffective = ledger.ineffective(rest_s, end_ms=closing.end_ms)
    return findings.of_actions(ineffective | found.ineffective, found.elsewhere)
