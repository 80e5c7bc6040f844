"""When to sweep, and which failing brokers to leave out of a sweep. Pure: time is passed in."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from state.settings import RoundSettings

BACKOFF_S_MAX = 60.0
"""Longest wait after sweeps without a broker list; by then the readiness check has told a person."""
_SKIPS_MAX = 3
"""Most sweeps in a row that leave out a broker that keeps failing: with two sweeps a round it is asked every other round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Sweeps at fixed times of the round, one of them just when the round before may close."""

    length_s: float
    lateness_s: float
    sweeps_per_round: int

    @classmethod
    def of(cls, rounds: RoundSettings, *, sweeps_per_round: int) -> "Cadence":
        """The cadence of a cluster with these rounds."""
        return cls(length_s=rounds.length_s, lateness_s=rounds.lateness_s, sweeps_per_round=sweeps_per_round)

    @property
    def interval_s(self) -> float:
        """Time between sweeps."""
        return self.length_s / self.sweeps_per_round

    def next_sweep_s(self, now_s: float) -> float:
        """First moment after ``now_s`` (Unix seconds) at which to sweep.

        Counted from the end of a round plus the lateness: the tick of that sweep closes the round before.
        """
        phase_s = self.lateness_s % self.interval_s
        next_s = (math.floor((now_s - phase_s) / self.interval_s) + 1) * self.interval_s + phase_s
        return next_s if next_s > now_s else next_s + self.interval_s  # the last digit may be rounded away

    def after_failures_s(self, now_s: float, failures: int) -> float:
        """When to try again after this many sweeps in a row without a broker list: ever later, at most a minute."""
        delay_s = min(BACKOFF_S_MAX, self.interval_s * 2 ** min(failures - 1, 10))
        return self.next_sweep_s(now_s + max(0.0, delay_s - self.interval_s))


@dataclass(slots=True)
class Patience:
    """Which brokers to leave out of a sweep because they keep failing: 1, then 3 sweeps at a time."""

    _failures: dict[str, int] = field(default_factory=dict)
    _skips: dict[str, int] = field(default_factory=dict)

    def skips(self, broker: str) -> bool:
        """Whether to leave the broker out of this sweep; counts the sweep."""
        left = self._skips.get(broker, 0)
        if left:
            self._skips[broker] = left - 1
        return left > 0

    def note_failure(self, broker: str) -> None:
        """Note that the broker was asked and failed."""
        count = self._failures[broker] = self._failures.get(broker, 0) + 1
        self._skips[broker] = min(2 ** (count - 1) - 1, _SKIPS_MAX)

    def note_answer(self, broker: str) -> None:
        """Note that the broker was asked and answered."""
        self._failures.pop(broker, None)
        self._skips.pop(broker, None)

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget brokers that are gone, so that one that comes back is asked at once."""
        for broker in self._failures.keys() - set(brokers):
            self.note_answer(broker)
