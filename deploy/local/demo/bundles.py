"""The bundles of the simulated fleet: namespaces, their topics in the bundles that their names hash to, and all traffic.

Invariant: a topic lies in the bundle that its CRC32 falls into, in a child as in its parent. So a cut only divides the
topics, and the mean rates of the children add up to that of the parent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from policies.splitting.ranges import Bundle as BundleName
from policies.splitting.ranges import NamespaceBundles, partitions_of, positions_of
from streaming.contract.messages import BundleStats, TopicLoad, Traffic

HOT_BUNDLE = "shop/orders/0x78000000_0x80000000"
HOT_MESSAGES_PER_S = 14_000.0
"""Nearly twice what the demo's settings allow a bundle; more than any broker should be given at once."""
WEIGHT_SIGMA = 0.7
"""Spread of the other bundles' sizes (log-normal): the heaviest is about five times the median."""
TOPIC_SIGMA = 0.4
"""Spread of the topics' sizes within a bundle."""
PRODUCERS_PER_TOPIC_COUNT = 2

_TOPICS_SEED_OFFSET = 1_000_003
"""Topics have a random generator of their own, so that their number does not change the bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Topics of one kind of traffic, each with ``partitions_count`` partitions."""

    name: str
    topics: tuple[str, ...]
    partitions_count: int
    bundles_count: int
    """Number of bundles at the start."""
    message_bytes: float
    fan_out_count: int
    """Subscriptions of a topic: how often each message that is published is delivered."""

    def traffic(self, messages_per_s: float) -> Traffic:
        """Traffic of a topic with so many messages/s, in and out together."""
        rate_in = messages_per_s / (1 + self.fan_out_count)
        rate_out = messages_per_s - rate_in
        size = self.message_bytes
        return Traffic(
            msgRateIn=rate_in,
            msgRateOut=rate_out,
            msgThroughputIn=rate_in * size,
            msgThroughputOut=rate_out * size,
        )


NAMESPACES = (
    Namespace(
        name="shop/orders",
        topics=("placed", "paid", "shipped", "returned"),
        partitions_count=40,
        bundles_count=32,
        message_bytes=700.0,
        fan_out_count=2,
    ),
    Namespace(
        name="shop/clicks",
        topics=("web", "app"),
        partitions_count=40,
        bundles_count=16,
        message_bytes=250.0,
        fan_out_count=1,
    ),
    Namespace(
        name="bank/payments",
        topics=("card", "transfer", "direct-debit"),
        partitions_count=32,
        bundles_count=16,
        message_bytes=1_400.0,
        fan_out_count=3,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic partition."""

    name: str
    position: int
    messages_per_s: float
    """Mean rate, in and out together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle with its topics; its traffic swings slowly around its mean."""

    place: BundleName
    namespace: Namespace
    topics: tuple[Topic, ...]
    drift_period_s: float
    drift_phase: float

    @property
    def name(self) -> str:
        """Full name."""
        return str(self.place)

    @property
    def messages_per_s(self) -> float:
        """Mean rate, in and out together."""
        return math.fsum(topic.messages_per_s for topic in self.topics)

    def stats(self, factor: float) -> BundleStats:
        """What its broker reports while it carries ``factor`` times its mean traffic."""
        traffic = self.namespace.traffic(self.messages_per_s * factor)
        return BundleStats(
            msgRateIn=traffic.msgRateIn,
            msgRateOut=traffic.msgRateOut,
            msgThroughputIn=traffic.msgThroughputIn,
            msgThroughputOut=traffic.msgThroughputOut,
            topics=len(self.topics),
            producerCount=PRODUCERS_PER_TOPIC_COUNT * len(self.topics),
            consumerCount=self.namespace.fan_out_count * len(self.topics),
        )

    def topic_stats(self, factor: float) -> dict[str, TopicLoad]:
        """The same by topic."""
        return {
            topic.name: TopicLoad(
                **msgspec.structs.asdict(self.namespace.traffic(topic.messages_per_s * factor)),
                producers=PRODUCERS_PER_TOPIC_COUNT,
                consumers=self.namespace.fan_out_count,
            )
            for topic in self.topics
        }

    def cut(self, boundaries: Sequence[int]) -> tuple["Bundle", ...]:
        """The children, each with the topics that hash into it. Raises ``BadRange`` where Pulsar refuses the split."""
        return tuple(
            replace(
                self,
                place=BundleName(self.place.namespace, child),
                topics=tuple(topic for topic in self.topics if child.contains(topic.position)),
            )
            for child in self.place.range.cut(boundaries)
        )


def first_bundles(random: np.random.Generator, *, seed: int, total_messages_per_s: float) -> list[Bundle]:
    """All bundles at the start; their mean rates add up to the total, in which the hot bundle has its fixed rate."""
    places = [(namespace, place) for namespace in NAMESPACES for place in _places(namespace)]
    weights = random.lognormal(0.0, WEIGHT_SIGMA, len(places))
    is_hot = np.array([str(place) == HOT_BUNDLE for _, place in places])
    rates = weights * (total_messages_per_s - HOT_MESSAGES_PER_S) / float(weights[~is_hot].sum())
    rates[is_hot] = HOT_MESSAGES_PER_S
    names = {namespace.name: _topic_names(namespace) for namespace in NAMESPACES}
    topics_random = np.random.default_rng(seed + _TOPICS_SEED_OFFSET)
    return [
        Bundle(
            place=place,
            namespace=namespace,
            topics=_topics(names[namespace.name][row], rate, topics_random),
            drift_period_s=float(random.uniform(60.0, 240.0)),
            drift_phase=float(random.uniform()),
        )
        for (namespace, place), row, rate in zip(places, _rows(), rates.tolist(), strict=True)
    ]


def _places(namespace: Namespace) -> list[BundleName]:
    bundles = NamespaceBundles.equal(namespace.bundles_count)
    return [BundleName(namespace.name, bundles.range_of(row)) for row in range(len(bundles))]


def _rows() -> list[int]:
    return [row for namespace in NAMESPACES for row in range(namespace.bundles_count)]


def _topic_names(namespace: Namespace) -> list[list[tuple[str, int]]]:
    """Names and positions by bundle row."""
    names = [
        name
        for topic in namespace.topics
        for name in partitions_of(f"persistent://{namespace.name}/{topic}", namespace.partitions_count)
    ]
    positions = positions_of(names)
    rows = NamespaceBundles.equal(namespace.bundles_count).rows_of(positions)
    found: list[list[tuple[str, int]]] = [[] for _ in range(namespace.bundles_count)]
    for row, name, position in zip(rows.tolist(), names, positions.tolist(), strict=True):
        found[row].append((name, position))
    return found


def _topics(
    names: list[tuple[str, int]], messages_per_s: float, random: np.random.Generator
) -> tuple[Topic, ...]:
    """A bundle's topics, with its rate divided among them."""
    weights = random.lognormal(0.0, TOPIC_SIGMA, len(names))
    rates = messages_per_s * weights / weights.sum()
    return tuple(
        Topic(name=name, position=position, messages_per_s=rate)
        for (name, position), rate in zip(names, rates.tolist(), strict=True)
    )
