"""The settings of the fleet planner, in the terms of an operator."""

from dataclasses import dataclass
from typing import Final

GOAL_RATIO: Final = 0.5
"""Where a plan ends, as a share of the acceptable spread: half of it, so that the spread does not soon come back."""
MOST_PROMISES: Final = 10
"""How many of the last unloads are remembered with what became of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlannerSettings:
    """How far apart brokers may be, how sure it has to be, and how much may move."""

    acceptable_spread_points: float = 15.0
    """Percentage points between the most and the least used broker that need no action. A plan goes on to half of it, so
    that the spread does not soon come back. Not in Pulsar."""
    noise_multiple: float = 2.5
    """By how many times its uncertainty a spread has to be above the acceptable one, added up over the rounds in which it is. The
    uncertainty is computed from the measured noise: a large difference is acted on at once, one near the limit once it has lasted.
    A larger value acts less and later. Not in Pulsar."""
    min_gain_points: float = 0.5
    """Percentage points by which a plan as a whole has to lower one of its brokers; a single move may bring less, however small
    bundles are. Not in Pulsar."""
    max_moved_ratio: float = 0.2
    """Share of the fleet's traffic that one round may move; every client of what moves reconnects. Not in Pulsar."""
    failed_promises_ratio: float = 0.6
    """Share of the last ``promises_count`` unloads. If so many have settled and brought less than half of what they
    promised, nothing is planned until an hour has passed or a person resumes the cluster. Not in Pulsar."""
    promises_count: int = 10
    """How many of the last unloads ``failed_promises_ratio`` looks at, at most 10; 0: it never stops a plan. Not in Pulsar."""

    def __post_init__(self) -> None:
        for name in ("acceptable_spread_points", "noise_multiple", "min_gain_points"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("max_moved_ratio", "failed_promises_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be from 0 to 1")
        if not 0 <= self.promises_count <= MOST_PROMISES:
            raise ValueError(f"promises_count is {self.promises_count}; it must be from 0 to {MOST_PROMISES}")

    @property
    def goal_points(self) -> float:
        """Spread at which a plan ends."""
        return GOAL_RATIO * self.acceptable_spread_points
