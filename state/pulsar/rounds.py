"""One closed round of a Pulsar cluster: from its reports to its actions and its summary.

The order is fixed: fleet, quorum and warm-up, masks, policy, splits, budgets, memory, outputs.
"""

from collections.abc import Mapping

import msgspec

from state.engine.closing import Closing, obstacle
from state.engine.ledger import Ledger
from state.engine.memory import Header
from state.engine.summary import fit
from state.outputs import Finding, Output
from state.pulsar import (
    approvals,
    coordinators,
    drain,
    effects,
    findings,
    fleet,
    members,
    policy_memory,
    promises,
    rules,
    shadow,
    splits,
    upkeep,
)
from state.pulsar.aftermath import remember
from state.pulsar.circumstances import circumstances_of
from state.pulsar.closing import Decided
from state.pulsar.counted import Counted, view_of, with_shadow
from state.pulsar.judging import judge
from state.pulsar.memory import Fleet, WaitingReport, WaitingTopics
from state.pulsar.outputs import actions_of, proposals_of, summarize
from state.pulsar.tables import learn_costs, loads
from state.settings import PulsarSettings


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
        left={each.bundle for each in ledger.unloads_on_their_way()} if pulsar.policy.plans_rounds else None,
    )
    advanced.fleet.gathered = coordinators.watch(
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
    live = upkeep.missing(_live(advanced.fleet, closing, pulsar), reports, closing.upkeep)
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
    put_back = drain.begin(header, advanced, closing.upkeep)
    answers = approvals.begin(header, closing)
    effects_found = effects.judge(
        ledger, advanced, reports, round_loads, pulsar, length_ms=header.length_ms, end_ms=closing.end_ms
    )
    checked = promises.check(ledger, round_loads, length_ms=header.length_ms, end_ms=closing.end_ms)
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
        rules.watch_forbidden(header, decided.admitted, counted.table, number=closing.number)
    made = actions_of(closing, circumstances, decided)
    proposed = proposals_of(closing, circumstances, decided, place=len(made))
    remember(ledger, closing, made, counted.loads, counted.table.view)
    approvals.record_proposals(header, closing, proposed)
    actions = [output for output, _ in made]
    outputs = [*actions, *(output for output, _ in proposed)]
    if has_shadow:
        advanced.fleet.shadow = shadow.record(advanced.fleet.shadow, decided.unloads)
    promised = promises.summarize(ledger, checked, end_ms=closing.end_ms)
    found = [
        *upkeep.of_put_back(put_back),
        *_of_actions(closing, ledger, effects_found),
        *promises.find_failed(promised, pulsar.shedding_policy),
        *findings.of_brokers(advanced, round_loads, measured, reports, end_ms=closing.end_ms),
        *coordinators.find(advanced.fleet.gathered, reports, live_count=len(live), end_ms=closing.end_ms),
        *findings.of_gaps(advanced),
        *findings.of_overlaps(advanced),
        *findings.of_topics(measured, topics, pulsar.split),
        *rules.of_forbidden(header, pulsar.shedding_policy, number=closing.number),
        *(findings.of_splits(decided.splits) if decided.splits else ()),
        *findings.of_unowned(closing.open_round.tick, len(advanced.fleet.owner)),
    ]
    summary_ = msgspec.structs.replace(
        summarize(closing, header, round_loads, measured, counted, decided, actions, found, reports, live),
        promises=promised,
        approval=approvals.section(header, closing, answers, actions),
        upkeep=upkeep.section(closing.upkeep, decided.drained, advanced, header.drains, reports),
    )
    return [*outputs, closing.summary(fit(summary_), actions_count=len(outputs))]


def _of_actions(closing: Closing, ledger: Ledger, found: effects.Effects) -> list[Finding]:
    rest_s = closing.settings.pulsar.guards.ineffective_rest_s
    ineffective = ledger.ineffective(rest_s, end_ms=closing.end_ms)
    return findings.of_actions(ineffective | found.ineffective, found.elsewhere)
