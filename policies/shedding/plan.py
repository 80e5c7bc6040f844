"""What a shedding policy returns: the unloads it wants, and the outcome of everything it looked at.

Invariants: every examined pair or broker has exactly one outcome, and so has every bundle of those that fired.
All of it is columns, because a thousand brokers are examined each round and only a hundred are ever shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import BundleTable, Ints, empty_rows
from policies.usage import Floats

Codes = NDArray[np.int8]

BUNDLE_OUTCOMES = (
    "acted",
    "need-met",
    "too-big",
    "no-traffic",
    "masked",
    "no-destination",
    "bundle-limit",
)
"""Outcomes of a bundle of a broker that fired, by code. ``masked``: not movable; who masked it says why."""
ACTED, NEED_MET, TOO_BIG, NO_TRAFFIC, MASKED, NO_DESTINATION, BUNDLE_LIMIT = range(len(BUNDLE_OUTCOMES))

NOBODY = -1
"""Row of a partner or destination that there is not."""

FEWEST_BROKERS = 2
"""Pulsar starts no shedder with fewer: there is nowhere to go. It matters to policies that compare nobody."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined:
    """Pairs of brokers, or single brokers, in the order the policy took them; k rows."""

    high: Ints
    """Broker row that would shed, (k,)."""
    low: Ints
    """Broker row of its partner, NOBODY for a policy without pairs, (k,)."""
    outcome: Codes
    """Index into ``outcomes``, (k,)."""
    outcomes: tuple[str, ...]
    """Every outcome this policy knows."""
    trigger: Codes
    """Index into ``triggers``: what would make it fire, (k,)."""
    triggers: tuple[str, ...]
    """Every trigger this policy knows."""
    evidence: Mapping[str, Floats | Ints]
    """The numbers each row was judged on, (k,) each, units in their names."""

    def __len__(self) -> int:
        return len(self.high)

    def outcome_of(self, row: int) -> str:
        """Outcome in words."""
        return self.outcomes[int(self.outcome[row])]

    def trigger_of(self, row: int) -> str:
        """Trigger in words."""
        return self.triggers[int(self.trigger[row])]

    def evidence_of(self, row: int) -> dict[str, float | int]:
        """The numbers of one row."""
        return {name: column[row].item() for name, column in self.evidence.items()}

    def counts(self) -> dict[str, int]:
        """How many rows ended with each outcome that occurred."""
        return count_codes(self.outcome, self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SheddingPlan:
    """Decisions of one round with their explanation; the policy's next memory travels beside it."""

    examined: Examined
    unload_rows: Ints
    """Bundle rows to unload, in the policy's order, (u,)."""
    unload_destinations: Ints
    """Broker row each goes to; NOBODY where Pulsar chooses, (u,)."""
    unload_examined: Ints
    """Row of ``examined`` each comes from, (u,)."""
    unload_evidence: Mapping[str, Floats] = field(default_factory=dict)
    """Numbers of each unload beside those of its row of ``examined``, (u,) each, units in their names."""
    tried_rows: Ints
    """Bundle rows of the brokers that fired, in the order they were tried, (t,)."""
    tried_outcomes: Codes
    """Index into ``BUNDLE_OUTCOMES``, (t,)."""
    tried_examined: Ints
    """Row of ``examined`` each was tried for, (t,)."""


def nothing_examined(outcomes: tuple[str, ...], triggers: tuple[str, ...]) -> Examined:
    """What a policy examines in a fleet without brokers."""
    return Examined(
        high=empty_rows(),
        low=empty_rows(),
        outcome=np.zeros(0, dtype=np.int8),
        outcomes=outcomes,
        trigger=np.zeros(0, dtype=np.int8),
        triggers=triggers,
        evidence={},
    )


def count_codes(codes: Codes, names: tuple[str, ...]) -> dict[str, int]:
    """How often each name occurs; names that do not occur are left out."""
    found = np.bincount(codes, minlength=len(names))
    return {name: int(count) for name, count in zip(names, found, strict=True) if count}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Every bundle of the brokers that fire, broker by broker in the policy's order; t rows."""

    rows: Ints
    """Bundle rows, (t,); ascending within a broker until ``heaviest_first``."""
    examined: Ints
    """Row of ``examined`` each belongs to, ascending, (t,)."""
    ends: Ints
    """Where each broker's rows end, ascending."""

    def heaviest_first(self, traffic: Floats) -> tuple["Candidates", Floats]:
        """The same, each broker's heaviest bundle first (ties by name), with their traffic; ``traffic`` is (t,)."""
        order, lightness, start = np.empty_like(self.rows), -traffic, 0
        for end in self.ends.tolist():  # a sort for each broker takes a third of one over both keys
            order[start:end] = lightness[start:end].argsort(kind="stable") + start
            start = end
        return Candidates(rows=self.rows[order], examined=self.examined, ends=self.ends), traffic[order]


def candidates(bundles: BundleTable, *, fired: Ints, brokers: Ints) -> Candidates:
    """Bundles of each of ``brokers`` (rows of the table); ``fired`` are their rows of ``examined``, ascending."""
    firsts = bundles.starts[brokers]
    counts = bundles.starts[brokers + 1] - firsts
    ends = np.cumsum(counts)
    rows = np.arange(counts.sum(), dtype=np.int64) + np.repeat(firsts - (ends - counts), counts)
    return Candidates(rows=rows, examined=np.repeat(fired, counts), ends=ends)


class PlanBuilder:
    """Collects the choices of the brokers that fire, in the policy's order; not thread-safe, used once."""

    def __init__(self) -> None:
        self._tried: list[Candidates] = []
        self._outcomes: list[Codes] = []
        self._destinations: list[Ints] = []

    def add(self, tried: Candidates, *, outcomes: Codes, destinations: Ints) -> None:
        """Take candidates in the order tried, (t,) each; those ``ACTED`` become unloads to ``destinations``."""
        self._tried.append(tried)
        self._outcomes.append(outcomes)
        self._destinations.append(destinations[outcomes == ACTED])

    @property
    def is_empty(self) -> bool:
        """Whether nothing was chosen so far."""
        return not any(len(destinations) for destinations in self._destinations)

    def build(self, examined: Examined) -> SheddingPlan:
        """The plan of all that was added."""
        rows = np.concatenate([empty_rows(), *(tried.rows for tried in self._tried)])
        by = np.concatenate([empty_rows(), *(tried.examined for tried in self._tried)])
        outcomes = np.concatenate([np.zeros(0, dtype=np.int8), *self._outcomes])
        return SheddingPlan(
            examined=examined,
            unload_rows=rows[outcomes == ACTED],
            unload_destinations=np.concatenate([empty_rows(), *self._destinations]),
            unload_examined=by[outcomes == ACTED],
            tried_rows=rows,
            tried_outcomes=outcomes,
            tried_examined=by,
        )
