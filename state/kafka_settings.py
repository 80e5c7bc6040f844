"""Everything that decides about a Kafka cluster."""

from dataclasses import dataclass, field

from policies.throttle.rates import NetworkCapacitySettings, ThrottleSettings
from state.round_settings import RoundSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRoundSettings(RoundSettings):
    """How event time is cut into rounds for Kafka clusters. Not changeable by control.

    Rounds are short, because a throttle that is too low stalls a move.
    """

    length_s: float = 10.0
    """Length of a round; Kafka's quota window is as long. Do not set it below 5: write rates come from the growth of logs
    between two rounds."""
    lateness_s: float = 5.0
    """How long after a round's end its events are still taken; the round closes when event time reaches that moment."""
    warmup_rounds: int = 1
    """Rounds after a (re)start in which nothing is decided: write rates come from the growth of logs between two
    rounds."""
    quorum_ratio: float = 0.0
    """Share of the live brokers that must report for anything to be decided. Off: numbers that a missing broker would have
    reported are listed as unknown, and only decisions that need them wait."""
    max_report_age_s: float = 180.0
    """A broker that is silent for longer is no longer live; log readings that are older are forgotten."""
    max_ahead_s: float = 10.0
    """How far an event's time may be ahead of its append time; a wrong clock must not close other brokers' rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Everything that decides about a Kafka cluster."""

    rounds: KafkaRoundSettings = field(default_factory=KafkaRoundSettings)
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    capacity: NetworkCapacitySettings = field(default_factory=NetworkCapacitySettings)
