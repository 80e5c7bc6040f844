"""Decides the actions of a round from what the policy sees, and gives the reason."""

from collections.abc import Callable
from functools import cache

from policies.columns import Codes
from policies.shedding.contract import SheddingPlan
from policies.shedding.outcomes import FIRED
from policies.splitting.plan import TopicTable
from state.engine.closing import Closing
from state.engine.memory import Header
from state.pulsar import approvals, drain, fleet, masks, splits
from state.pulsar.actions import Admitted, admit
from state.pulsar.after import After
from state.pulsar.anti_affinity import AntiAffinity
from state.pulsar.budget import Budget
from state.pulsar.circumstances import Circumstances
from state.pulsar.closing import Decided
from state.pulsar.counted import Counted
from state.pulsar.shedding import Shed, settle, shed
from state.pulsar.splits import Splits
from state.pulsar.tables import Eligible
from state.settings import PulsarSettings


def judge(
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
    decided = _decide_splits(wanted, table, advanced, topics, split_codes, answers, circumstances, pulsar)
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
