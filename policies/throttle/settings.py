"""How reassignments are paced: the settings of ``[kafka.throttle]`` and ``[kafka.capacity]``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policies.throttle.moves import LARGEST_NUMBER
from policies.throttle.rates import MIB, fraction_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """Which rate a reassignment gets, and when it is changed."""

    enabled: bool = True
    """Whether throttles are decided. Off: reassignments are watched, and nothing is decided about them."""
    rates: Literal["uniform", "per-broker"] = "uniform"
    """``uniform``: one rate for every broker and both roles, which is quicker; ``per-broker``: each gets what it needs, for
    fleets whose brokers differ much."""
    headroom_ratio: float = 0.2
    """How far a rate is above the minimum: with 0.2, a fifth. At 0 nothing would ever finish."""
    floor_bytes_per_s: int = MIB
    """No rate is below it: Kafka's limiter overshoots by up to a fetch, 1 MiB, so lower rates are inaccurate.
    Kafka: the advice for ``leader.replication.throttled.rate``."""
    deadline_s: float = 0.0
    """Time within which a move must be done, from when trimtab first sees it; 0: no deadline."""
    raise_at_ratio: float = 0.9
    """The rate is raised when a minimum is above this share of it, because the leader moved or traffic grew. If the
    minimum reached the rate, the move would never end."""
    change_threshold_ratio: float = 0.2
    """A rate is changed only by at least this share of it: every change is a write to every broker of the move."""
    min_change_interval_s: float = 60.0
    """Shortest time between two changes, unless the minimum or a new move demands one at once. Kafka's quota window is 10 s."""
    stale_rounds_count: int = 3
    """Rounds in a row without the reports that a minimum needs, after which the failover-safe rate is set: high enough
    whichever source leads. It is never zero and never below what is known to be needed."""
    network_share_ratio: float = 0.9
    """Share of a broker's declared network capacity up to which replication may fill it, beside all other traffic."""
    planned_fingerprint: str = ""
    """Fingerprint that ``trimtab throttle plan`` printed; a move with another one is reported as ``differs-from-plan``.
    Empty: there is no plan to compare with."""

    def __post_init__(self) -> None:
        _require(0 < self.headroom_ratio <= 100, self, "headroom_ratio", "above 0 and at most 100")  # noqa: PLR2004
        _require(1 <= self.floor_bytes_per_s <= LARGEST_NUMBER, self, "floor_bytes_per_s", "1 or more")
        _require(0 <= self.deadline_s < float("inf"), self, "deadline_s", "0 or more")
        _require(0 < self.raise_at_ratio <= 1, self, "raise_at_ratio", "above 0 and at most 1")
        _require(
            fraction_of(self.raise_at_ratio) * (1 + fraction_of(self.headroom_ratio)) > 1,
            self,
            "raise_at_ratio",
            f"above 1 / (1 + headroom_ratio {self.headroom_ratio}), or a rate just set would be raised again",
        )
        _require(0 <= self.change_threshold_ratio < float("inf"), self, "change_threshold_ratio", "0 or more")
        _require(0 <= self.min_change_interval_s < float("inf"), self, "min_change_interval_s", "0 or more")
        _require(self.stale_rounds_count >= 1, self, "stale_rounds_count", "1 or more")
        _require(0 < self.network_share_ratio <= 1, self, "network_share_ratio", "above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNetwork:
    """What one broker's network carries; unset falls back to the default of ``[kafka.capacity]``."""

    network_bytes_per_s: int | None = None
    """Bytes per second in each direction; unset = the default."""

    def __post_init__(self) -> None:
        _require_network(self, self.network_bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCapacitySettings:
    """Declared network capacity: caps the throttle, and with measured usage lets it use what is free."""

    network_bytes_per_s: int | None = None
    """Bytes per second a broker's network carries in each direction; unset = not declared, then nothing is capped."""
    brokers: Mapping[str, BrokerNetwork] = field(default_factory=dict)
    """The same for single brokers, by broker id."""

    def __post_init__(self) -> None:
        _require_network(self, self.network_bytes_per_s)

    def of(self, broker: int) -> int | None:
        """Bytes per second of one broker; None: not declared."""
        own = self.brokers.get(str(broker))
        if own is None or own.network_bytes_per_s is None:
            return self.network_bytes_per_s
        return own.network_bytes_per_s


def _require_network(owner: object, value: int | None) -> None:
    _require(
        value is None or 1 <= value <= LARGEST_NUMBER, owner, "network_bytes_per_s", "1 or more, or unset"
    )


def _require(condition: bool, owner: object, name: str, expected: str) -> None:  # noqa: FBT001  reads as a sentence
    if not condition:
        raise ValueError(f"{name} is {getattr(owner, name)}; it must be {expected}")
