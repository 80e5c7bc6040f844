"""Decides the actions of a round from what the policy sees, and gives the reason."""

from collections.abc import Callable, Collection, Mapping
from functools import cache

from policies.columns import Codes
from policies.shedding.contract import FIRED, SheddingPlan
from policies.splitting.plan import TopicTable
from policies.wording import counted
from state.engine.closing import Closing
from state.engine.memory import Header
from state.pulsar import approvals, drain, fleet, masks, splits
from state.pulsar.actions import Admitted, admit
from state.pulsar.after import After
from state.pulsar.circumstances import Circumstances
from state.pulsar.closing import Decided
from state.pulsar.counted import Counted
from state.pulsar.rules import with_rules
from state.pulsar.shedding import Shed, settle, shed
from state.pulsar.splits import Splits
from state.pulsar.tables import Eligible
from state.round_settings import MS_PER_S
from state.settings import PulsarSettings


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
    scene = drain.Scene(
        table=table,
        advanced=advanced,
        loads=counted.loads,
        header=header,
        pulsar=pulsar,
        upkeep=closing.upkeep,
    )
    drained = drain.decide(scene, rules, circumstances, after)
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
    drained: drain.Drained,
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
