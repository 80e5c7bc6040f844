"""What a shedding policy returns: the unloads it wants, and the outcome of everything it looked at.

Invariants: every examined pair or broker has exactly one outcome, and so has every bundle of those that fired.
All of it is columns, because a thousand brokers are examined each round and only a hundred are ever shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Ints, empty_rows
from policies.usage import Floats

Codes = NDArray[np.int8]

BUNDLE_OUTCOMES = ("acted", "need-met", "too-big", "no-traffic", "masked", "no-destination")
"""Outcomes of a bundle of a broker that fired, by code. ``masked``: not movable; who masked it says why."""
ACTED, NEED_MET, TOO_BIG, NO_TRAFFIC, MASKED, NO_DESTINATION = range(len(BUNDLE_OUTCOMES))

NOBODY = -1
"""Row of a partner or destination that there is not."""


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
    tried_rows: Ints
    """Bundle rows of the brokers that fired, in the order they were tried, (t,)."""
    tried_outcomes: Codes
    """Index into ``BUNDLE_OUTCOMES``, (t,)."""
    tried_examined: Ints
    """Row of ``examined`` each was tried for, (t,)."""


def count_codes(codes: Codes, names: tuple[str, ...]) -> dict[str, int]:
    """How often each name occurs; names that do not occur are left out."""
    found = np.bincount(codes, minlength=len(names))
    return {name: int(count) for name, count in zip(names, found, strict=True) if count}


class PlanBuilder:
    """Collects the choices of the brokers that fire, one call a broker; not thread-safe, used once."""

    def __init__(self) -> None:
        self._chosen: list[int] = []
        self._destinations: list[int] = []
        self._chosen_by: list[int] = []
        self._tried: list[Ints] = []
        self._outcomes: list[Codes] = []
        self._tried_by: list[Ints] = []

    def add(self, *, examined: int, rows: Ints, outcomes: Codes, destination: int) -> None:
        """Take the tried rows of one broker, in the order tried; those ``ACTED`` become unloads."""
        chosen = rows[outcomes == ACTED].tolist()
        self._chosen.extend(chosen)
        self._destinations.extend([destination] * len(chosen))
        self._chosen_by.extend([examined] * len(chosen))
        self._tried.append(rows)
        self._outcomes.append(outcomes)
        self._tried_by.append(np.full(len(rows), examined, dtype=np.int64))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was chosen so far."""
        return not self._chosen

    def build(self, examined: Examined) -> SheddingPlan:
        """The plan of all that was added."""
        return SheddingPlan(
            examined=examined,
            unload_rows=np.array(self._chosen, dtype=np.int64),
            unload_destinations=np.array(self._destinations, dtype=np.int64),
            unload_examined=np.array(self._chosen_by, dtype=np.int64),
            tried_rows=np.concatenate(self._tried) if self._tried else empty_rows(),
            tried_outcomes=np.concatenate(self._outcomes) if self._outcomes else np.zeros(0, dtype=np.int8),
            tried_examined=np.concatenate(self._tried_by) if self._tried_by else empty_rows(),
        )
