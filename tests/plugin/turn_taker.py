"""A policy as somebody might add one: every few rounds the busiest broker gives its heaviest bundle to the idlest."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.shedding.contract import (
    BundleOutcome,
    Evidence,
    Examined,
    Headline,
    OutcomeText,
    Proposal,
    SheddingPolicy,
    Stand,
    keep_pending,
)
from policies.shedding.plan import PlanBuilder, candidates
from policies.shedding.view import NOBODY, RoundView

OUTCOMES, TRIGGERS = ("fired", "waits"), ("", "turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTakerSettings:
    """How often a bundle moves."""

    rounds_count: int = 2
    """Rounds from one unload to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTakerMemory:
    """Rounds since the last unload of the group, and how many unloads each broker has given."""

    waited: int = 0
    given: Mapping[str, int] = field(default_factory=dict)


def plan(view: RoundView, memory: TurnTakerMemory, settings: TurnTakerSettings) -> Proposal[TurnTakerMemory]:
    waited, fires, builder = memory.waited + 1, memory.waited + 1 >= settings.rounds_count, PlanBuilder()
    busiest, idlest = (int(find(view.brokers.percents[:, 0])) for find in (np.argmax, np.argmin))
    if fires:
        tried = candidates(view.bundles, fired=np.array([0]), brokers=np.array([busiest]))
        tried, _ = tried.heaviest_first(view.bundles.rates[tried.rows].sum(axis=1))
        movable = view.bundles.movable[tried.rows]
        outcomes = np.where(movable, BundleOutcome.NEED_MET, BundleOutcome.MASKED).astype(np.int8)
        outcomes[np.flatnonzero(movable)[:1]] = BundleOutcome.ACTED
        builder.add(tried, outcomes=outcomes, destinations=np.full(len(outcomes), idlest))
    whole_fleet, code = np.array([NOBODY]), np.array([fires], dtype=np.int8)
    examined = Examined(
        high=whole_fleet, low=whole_fleet, outcome=1 - code, outcomes=OUTCOMES, trigger=code, triggers=TRIGGERS,
        evidence={"waited_rounds_count": np.array([waited]), "in_flight_count": np.array([len(view.in_flight())])},
    )  # fmt: skip
    giver = view.brokers.names[busiest]
    given = {**memory.given, giver: memory.given.get(giver, 0) + 1} if fires else memory.given
    return Proposal(builder.build(examined), TurnTakerMemory(waited=0 if fires else waited, given=given))


def _sentence(source: str, partner: str | None, evidence: Evidence) -> str:
    return (
        f"it is the turn of {source} after {evidence['waited_rounds_count']} rounds, compared with {partner}"
    )


def _stand(evidence: Evidence) -> Stand:
    return Stand(difference_points=float(evidence["waited_rounds_count"]), threshold_points=2.0)


TEXTS = {"waits": OutcomeText(meaning="its turn has not come", remedy="its turn has to come")}
POLICY = SheddingPolicy(
    name="turn-taker", settings=TurnTakerSettings, memory=TurnTakerMemory, plan=plan, settle=keep_pending,
    outcomes=OUTCOMES, outcome_texts=TEXTS, calm_outcomes=("waits",), triggers=TRIGGERS,
    sentences={"turn": _sentence},
    headline=Headline(meaning="the rounds since the last unload", stand_of=_stand),
)  # fmt: skip
