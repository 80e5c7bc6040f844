"""Everything that decides about a Kafka cluster."""

from dataclasses import dataclass, field

from policies.throttle.settings import NetworkCapacitySettings, ThrottleSettings
from state.round_settings import RoundSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRoundSettings(RoundSettings):
    """The same for Kafka clusters: short rounds, because a throttle that is too low holds a move. Not changeable by control."""

    length_s: float = 10.0
    """Length of a round; Kafka's quota window is as long. Write rates come from the growth between two rounds, so not
    below 5."""
    lateness_s: float = 5.0
    """How long after a round's end events of it are still taken; a round closes when event time passes it."""
    warmup_rounds: int = 1
    """Rounds after a (re)start in which nothing is decided: write rates come from the growth between two."""
    quorum_ratio: float = 0.0
    """Share of the live brokers that must report for anything to be decided. Off: what a missing broker would have said
    is unknown by name, and only what needs it waits."""
    max_report_age_s: float = 180.0
    """A broker silent for longer is no longer live; what is remembered of logs for longer is forgotten."""
    max_ahead_s: float = 10.0
    """How far an event's time may be ahead of its append time; a wrong clock must not close other brokers' rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Everything that decides about a Kafka cluster."""

    rounds: KafkaRoundSettings = field(default_factory=KafkaRoundSettings)
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    capacity: NetworkCapacitySettings = field(default_factory=NetworkCapacitySettings)
