"""How event time is cut into rounds; the same for every system, with defaults of its own."""

from dataclasses import dataclass
from typing import Final

MS_PER_S = 1000
LONGEST_S = 1e9
"""Longest round and longest life of an action, about 31 years: their ends stay within the calendar."""

MAX_OPEN_ROUNDS_COUNT: Final = 1_000
"""Most rounds that may be open at once, which is ``lateness_s`` divided by ``length_s``; each is a part of a value that every
batch writes."""


def to_ms(seconds: float) -> int:
    """Whole milliseconds; all event time is counted in them, so that rounds never depend on float division."""
    return round(seconds * MS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """How event time is cut into rounds, and what a round needs before its policies run. Not changeable by control."""

    length_s: float = 60.0
    """Length of a round; one minute is Pulsar's own shedding interval.
    Pulsar: ``loadBalancerSheddingIntervalMinutes``."""
    lateness_s: float = 10.0
    """How long after a round's end its events are still taken; the round closes when event time reaches that moment."""
    warmup_rounds: int = 1
    """Rounds after a (re)start in which only averages are built: the first numbers of a broker are noisy. 0 = off."""
    quorum_ratio: float = 0.6
    """Share of the live brokers that must report for the policies to run; with fewer, the mean is useless. 0 = off."""
    max_report_age_s: float = 180.0
    """A broker that is silent for longer is no longer live, and its memory is dropped; a cluster that is silent for longer
    starts again. Three rounds, so that one lost report does not count as a dead broker."""
    max_ahead_s: float = 10.0
    """How far an event's time may be ahead of its append time; a wrong clock must not close other brokers' rounds."""

    forget_cluster_s: float = 604_800.0
    """A cluster whose load reports come back after a longer silence is treated as a new one: all earlier decisions about it are
    forgotten, with their cooldowns, budgets and failures. A week, so that no outage or maintenance causes this.
    A value below ``max_report_age_s`` counts as ``max_report_age_s``. 0 = off."""

    def __post_init__(self) -> None:
        if to_ms(self.length_s) < 1:
            raise ValueError(f"length_s is {self.length_s}; a round lasts at least a millisecond")
        if self.length_s > LONGEST_S:
            raise ValueError(f"length_s is {self.length_s}; a round lasts at most {LONGEST_S:g} s")
        for name in (
            "lateness_s",
            "warmup_rounds",
            "quorum_ratio",
            "max_report_age_s",
            "max_ahead_s",
            "forget_cluster_s",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.lateness_s > MAX_OPEN_ROUNDS_COUNT * self.length_s:
            raise ValueError(
                f"lateness_s is {self.lateness_s}; at most {MAX_OPEN_ROUNDS_COUNT} rounds of {self.length_s:g} s may be open at "
                f"once"
            )

    @property
    def length_ms(self) -> int:
        """Length of a round in milliseconds."""
        return to_ms(self.length_s)

    @property
    def lateness_ms(self) -> int:
        """Lateness in milliseconds."""
        return to_ms(self.lateness_s)

    @property
    def max_report_age_ms(self) -> int:
        """Age of a report in milliseconds above which its broker is not live."""
        return to_ms(self.max_report_age_s)

    @property
    def forget_cluster_ms(self) -> int:
        """Milliseconds of silence after which a cluster is taken for a new one; 0: never."""
        return to_ms(self.forget_cluster_s)

    @property
    def max_ahead_ms(self) -> int:
        """Milliseconds an event may be ahead of its append time."""
        return to_ms(self.max_ahead_s)

    def first_open(self, newest_ms: int) -> int:
        """Number of the first round that is open when the newest event has this time."""
        return (newest_ms - self.lateness_ms) // self.length_ms

    def is_ahead(self, time_ms: int, appended_ms: int | None) -> bool:
        """Whether an event's time is too far ahead of the time it was appended; never if the log has none."""
        return appended_ms is not None and time_ms > appended_ms + self.max_ahead_ms
