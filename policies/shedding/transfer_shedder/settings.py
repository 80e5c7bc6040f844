"""The settings of TransferShedder, and what it remembers."""

from dataclasses import dataclass

MOST_UNDERLOADED_RATIO = 0.5
"""A broker is underloaded below a share of the mean: half of the target, but at most this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShedderSettings:
    """When bundles are transferred, and between how many brokers."""

    target_std_ratio: float = 0.25
    """Standard deviation of the brokers' smoothed usage, 1.0 = 100 %, above which bundles are transferred.
    Pulsar: ``loadBalancerBrokerLoadTargetStd``."""
    overloaded_points: float = 85.0
    """Smoothed usage in percentage points above which one broker alone is reason enough, if it is also above the mean by
    more than the target. Pulsar: ``loadBalancerBrokerOverloadedThresholdPercentage``."""
    hit_count: int = 3
    """Rounds in a row that show a reason before the next one acts. Pulsar: ``loadBalancerSheddingConditionHitCountThreshold``."""
    max_brokers_count: int = 3
    """Largest number of brokers that are relieved in one round. Pulsar: ``loadBalancerMaxNumberOfBrokerSheddingPerCycle``."""
    transfer: bool = True
    """Name the destination, and swap bundles where one alone does not fit; false: a placement or Pulsar chooses.
    Pulsar: ``loadBalancerTransferEnabled``."""
    shedding_delay_s: float = 180.0
    """How much newer than its last unload a broker's load has to be; until then nothing is decided for any broker.
    Pulsar: ``loadBalanceSheddingDelayInSeconds``."""
    load_data_ttl_s: float = 1800.0
    """Age from which a broker's load is not counted any more. Pulsar: ``loadBalancerBrokerLoadDataTTLInSeconds``."""

    def __post_init__(self) -> None:
        for name in (
            "target_std_ratio",
            "overloaded_points",
            "hit_count",
            "max_brokers_count",
            "shedding_delay_s",
            "load_data_ttl_s",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")

    @property
    def underloaded_ratio(self) -> float:
        """Share of the mean usage, or of the busiest broker's throughput, below which a broker is underloaded."""
        return min(MOST_UNDERLOADED_RATIO, max(0.0, self.target_std_ratio / 2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShedderMemory:
    """Rounds in a row that showed a reason to transfer."""

    hit_count: int = 0
