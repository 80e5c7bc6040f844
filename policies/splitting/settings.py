"""When bundles are split and how: the settings of ``[pulsar.split]``."""

from dataclasses import dataclass
from typing import Literal

from policies.splitting import balanced_flow_divide, specified_positions_divide
from policies.splitting.algorithms import ALGORITHMS, UnknownAlgorithm
from policies.splitting.cut import (
    PULSAR_MAX_BYTES_PER_S,
    PULSAR_MAX_MESSAGES_PER_S,
    Boundary,
    BundleLimits,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings:
    """Which bundles are split, where, and how many at once."""

    enabled: bool = False
    """Whether bundles are split. Off by default: a split cannot be undone. Pulsar: ``loadBalancerAutoBundleSplitEnabled``."""
    algorithm: str = balanced_flow_divide.NAME
    """Where to cut: ``balanced_flow_divide``, ``flow_or_qps_equally_divide``, ``range_equally_divide`` or
    ``topic_count_equally_divide``. Pulsar: ``defaultNamespaceBundleSplitAlgorithm``, which does not have
    ``balanced_flow_divide``; the boundaries of that one are carried out as ``specified_positions_divide``."""
    max_topics_count: int = 1000
    """Topics above which a bundle is split; 0: no limit.
    Pulsar: ``loadBalancerNamespaceBundleMaxTopics``."""
    max_sessions_count: int = 1000
    """Producers and consumers above which a bundle is split; 0: no limit.
    Pulsar: ``loadBalancerNamespaceBundleMaxSessions``."""
    max_messages_per_s: float = PULSAR_MAX_MESSAGES_PER_S
    """Message rate, in and out together, above which a bundle is split; must be above 0, loads are measured against it.
    Pulsar: ``loadBalancerNamespaceBundleMaxMsgRate``."""
    max_bytes_per_s: float = PULSAR_MAX_BYTES_PER_S
    """Throughput, in and out together, above which a bundle is split; must be above 0, loads are measured against it.
    Pulsar: ``loadBalancerNamespaceBundleMaxBandwidthMbytes`` (there in MiB/s)."""
    average_samples: int = 1
    """Samples that rate and throughput are averaged over before they are judged: 1 is the present value, as in
    Pulsar's extensible load manager; 1000 is as in its modular one, where a burst counts only after a long time and is
    forgotten even later."""
    difference_threshold_percent: float = 10.0
    """By how much the bundle's total must exceed a limit before ``flow_or_qps_equally_divide`` cuts.
    Pulsar: ``flowOrQpsDifferenceThresholdPercentage``."""
    hit_count: int = 3
    """Rounds in a row that a bundle is above a limit before the round that splits it: with 3 the fourth round splits it.
    Pulsar: ``loadBalancerNamespaceBundleSplitConditionHitCountThreshold``; its modular load manager has none (0)."""
    max_namespace_bundles_count: int = 128
    """Bundles a namespace may have; 0: any number. Pulsar: ``loadBalancerNamespaceMaximumBundles``."""
    max_splits_per_round_count: int = 10
    """Bundles split in one round; 0: any number. Pulsar: ``loadBalancerMaxNumberOfBundlesToSplitPerCycle``."""
    bundle_cooldown_s: float = 1800.0
    """How long a bundle, its children included, is not split again: long enough for the children to be moved and
    measured. Not in Pulsar, where stale numbers can split the same range twice (#25031)."""
    max_child_ratio: float = 0.7
    """Share of the limits below which ``balanced_flow_divide`` brings every child: room to grow before the next split.
    Not in Pulsar."""
    flow_or_qps_boundary: Boundary = "shipped"
    """Where ``flow_or_qps_equally_divide`` cuts between two topics: ``shipped`` is Pulsar's middle + 1, ``proposal``
    the middle, as PIP-169 has it."""
    without_topic_stats: Literal["hold", "range"] = "hold"
    """What to do with a bundle above a limit of topics, rate or throughput where the statistics of its topics account for less than
    four fifths of it: ``hold`` it, or cut its ``range`` in the middle, once, and look at the parts."""
    hot_partition_bytes_per_s: float = 20_000_000.0
    """Throughput of one topic partition above which the summary advises more partitions: no split can help it.
    0: no advice. Not in Pulsar."""

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise UnknownAlgorithm(self.algorithm)
        if self.algorithm == specified_positions_divide.NAME:
            raise ValueError(
                f"algorithm {self.algorithm!r} works only in `trimtab split plan`, where a person gives the positions; "
                f"choose another one"
            )
        if not 0 < self.max_child_ratio <= 1:
            raise ValueError(f"max_child_ratio is {self.max_child_ratio}; it must be above 0 and at most 1")
        if self.average_samples < 1:
            raise ValueError(f"average_samples is {self.average_samples}; it must be 1 or more")
        if self.bundle_cooldown_s < 0:
            raise ValueError(
                f"bundle_cooldown_s is {self.bundle_cooldown_s}; it must be 0 or more (0 switches it off)"
            )
        self.limits()

    def limits(self) -> BundleLimits:
        """What one bundle may carry. Raises ``ValueError`` where a limit is not above 0."""
        return BundleLimits(messages_per_s=self.max_messages_per_s, bytes_per_s=self.max_bytes_per_s)
