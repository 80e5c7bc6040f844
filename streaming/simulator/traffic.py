"""Traffic of a simulated fleet: slow changes that a balancer should follow, and fast noise that it should not.

The message rate of a bundle is its own base times a slow drift, the daily swing and the surges of its namespace, times noise of the
bundle and of its namespace. The first part is called structural: whether a fleet is balanced is judged on it. The sequence of
numbers depends on the seed alone, never on what is moved, so every policy gets the same traffic.
"""

import math
from dataclasses import dataclass

import numpy as np

from policies.columns import Floats, Ints

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """More traffic of one namespace for a while."""

    namespace: int
    start_s: float
    end_s: float
    factor: float
    ramp_s: float = 60.0
    """How long it takes to rise and to fall."""

    def at(self, time_s: float) -> float:
        """Factor at a moment."""
        rises = (time_s - self.start_s) / self.ramp_s
        falls = (self.end_s - time_s) / self.ramp_s
        return 1.0 + (self.factor - 1.0) * min(1.0, max(0.0, min(rises, falls)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sources:
    """Where traffic comes from: the r bundles that the fleet begins with, of k namespaces."""

    namespace: Ints
    """Row of each source's namespace, (r,)."""
    messages_per_s: Floats
    """Base rate of messages in, (r,)."""
    bytes_per_message: Floats
    """(r,)."""
    fan_out: Floats
    """Messages out for each in, (r,)."""
    sessions_count: Floats
    """Producers and consumers, with traffic or without, (r,)."""
    noise_ratio: Floats
    """Standard deviation of a bundle's fast noise, (r,)."""
    noise_s: float
    """How long a bundle's noise lasts."""
    common_noise_ratio: float
    """Standard deviation of the noise that the bundles of a namespace share."""
    drift_ratio: float
    """Standard deviation of the slow drift."""
    drift_s: float
    """How long a drift lasts."""
    swing_ratio: Floats
    """How far a namespace's daily swing goes to either side, (k,)."""
    swing_s: float = DAY_S
    """How long a swing takes, there and back."""
    swing_phase_s: Floats
    """(k,)."""
    surges: tuple[Surge, ...] = ()

    @property
    def namespaces_count(self) -> int:
        """The number of namespaces, k."""
        return len(self.swing_ratio)


class Traffic:
    """Rates tick by tick."""

    def __init__(self, sources: Sources, rng: np.random.Generator, *, tick_s: float) -> None:
        self._sources, self._rng, self._tick_s = sources, rng, tick_s
        self._drift = rng.standard_normal(len(sources.messages_per_s))
        self._noise = rng.standard_normal(len(sources.messages_per_s))
        self._common = rng.standard_normal(sources.namespaces_count)

    def step(self, time_s: float) -> tuple[Floats, Floats]:
        """Structural and real message rate in of each source, (r,) each."""
        sources = self._sources
        self._drift = self._step_noise(self._drift, sources.drift_s)
        self._noise = self._step_noise(self._noise, sources.noise_s)
        self._common = self._step_noise(self._common, sources.noise_s)
        structural = self.structural(time_s)
        common = sources.common_noise_ratio * self._common[sources.namespace]
        spread = sources.noise_ratio**2 + sources.common_noise_ratio**2
        return structural, structural * np.exp(sources.noise_ratio * self._noise + common - spread / 2)

    def structural(self, time_s: float) -> Floats:
        """Message rate in without noise, (r,)."""
        sources = self._sources
        swing = 1.0 + sources.swing_ratio * np.sin(
            2 * math.pi * (time_s + sources.swing_phase_s) / sources.swing_s
        )
        for surge in sources.surges:
            swing[surge.namespace] *= surge.at(time_s)
        drift = np.exp(sources.drift_ratio * self._drift - sources.drift_ratio**2 / 2)
        return sources.messages_per_s * drift * swing[sources.namespace]

    def _step_noise(self, now: Floats, lasts_s: float) -> Floats:
        """The next value of noise that lasts ``lasts_s``, with a standard deviation of 1."""
        kept = math.exp(-self._tick_s / lasts_s)
        return kept * now + math.sqrt(1.0 - kept * kept) * self._rng.standard_normal(len(now))


def rates_of(sources: Sources, messages_in: Floats) -> Floats:
    """Messages/s in and out, bytes/s in and out, and sessions, (r, 5)."""
    messages_out = messages_in * sources.fan_out
    size = sources.bytes_per_message
    return np.column_stack(
        [messages_in, messages_out, messages_in * size, messages_out * size, sources.sessions_count]
    )
