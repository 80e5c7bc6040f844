"""What happens to a cluster that was calm, and the traffic that everybody gets alike: the same for each balancer and seed.

A broker's card carries ``CARD_BYTES_PER_S`` each way. A message goes in once and out twice, to its consumer and to the bookie, so what
goes out is the usage; ``usage_points`` below are points of it, of one broker.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from policies.splitting.ranges import Bundle, position_of

SEEDS = (1, 2)
TENANT, NAMESPACE = "shop", "shop/orders"
CARD_GBIT_PER_S = 0.02
CARD_BYTES_PER_S = CARD_GBIT_PER_S * 1e9 / 8
MESSAGE_BYTES = 8192
_OUT_TIMES, _OVERHEAD = 2.0, 1.03
"""Measured: a message and what goes with it on the wire."""
MESSAGES_PER_S_PER_POINT = CARD_BYTES_PER_S / 100 / (MESSAGE_BYTES * _OUT_TIMES * _OVERHEAD)
BUNDLES_PER_BROKER = 12
TOPICS_PER_BUNDLE = 2
HOT_BUNDLE_TOPICS = 8

Happening = Literal["heat-broker", "join", "leave", "restart-all", "heat-bundle", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of trouble."""

    name: str
    text: str
    happening: Happening
    brokers_count: int
    """Those that run from the start."""
    joining_count: int = 0
    usage_points: float
    """Of each broker while all is calm."""
    to_points: float = 0.0
    """What the hot broker, or the hot bundle, rises to."""
    noise_ratio: float = 0.05
    """Standard deviation of a topic's rate, which lasts some forty seconds."""

    @property
    def all_count(self) -> int:
        """Brokers that run at some time."""
        return self.brokers_count + self.joining_count


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="hot-broker",
            text="The traffic of everything at one of three brokers grows from 35 to 85 % of its card.",
            happening="heat-broker",
            brokers_count=3,
            usage_points=35,
            to_points=85,
        ),
        Scenario(
            name="join",
            text="Two brokers join three at 60 %.",
            happening="join",
            brokers_count=3,
            joining_count=2,
            usage_points=60,
        ),
        Scenario(
            name="leave",
            text="One of five brokers at 45 % is stopped.",
            happening="leave",
            brokers_count=5,
            usage_points=45,
        ),
        Scenario(
            name="rolling-restart",
            text="Three brokers at 40 % are restarted one after the other, a minute apart.",
            happening="restart-all",
            brokers_count=3,
            usage_points=40,
        ),
        Scenario(
            name="hot-bundle",
            text="One bundle of eight topics grows until its broker is at 85 %, the others are at 35 %.",
            happening="heat-bundle",
            brokers_count=3,
            usage_points=35,
            to_points=85,
        ),
        Scenario(
            name="noise",
            text="Nothing happens; the topics' rates swing by a quarter.",
            happening="nothing",
            brokers_count=3,
            usage_points=50,
            noise_ratio=0.25,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The topics, where they begin, and how much goes over each before and after what happens."""

    placement: Mapping[Bundle, int]
    """Number of the broker that has each bundle at the start."""
    calm_messages_per_s: Mapping[str, float]
    """By topic."""
    then_messages_per_s: Mapping[str, float]


def traffic_of(scenario: Scenario, bundles: Sequence[Bundle], seed: int) -> Traffic:
    """Bundles of unlike weight, which the seed draws, dealt so that every broker carries the same."""
    draw = random.Random(f"{scenario.name} {seed}")  # noqa: S311  the same for everybody
    weights = {bundle: draw.lognormvariate(0.0, 0.6) for bundle in bundles}
    placement = _dealt(weights, scenario.brokers_count)
    total = scenario.usage_points * MESSAGES_PER_S_PER_POINT * scenario.brokers_count
    unit = total / sum(weights.values())
    hot = max((bundle for bundle, broker in placement.items() if broker == 1), key=weights.__getitem__)
    calm: dict[str, float] = {}
    then: dict[str, float] = {}
    for bundle, weight in weights.items():
        is_hot = bundle == hot and scenario.happening == "heat-bundle"
        names = _topics(bundle, HOT_BUNDLE_TOPICS if is_hot else TOPICS_PER_BUNDLE)
        rate = weight * unit
        grown = rate
        if is_hot:
            grown += (scenario.to_points - scenario.usage_points) * MESSAGES_PER_S_PER_POINT
        elif scenario.happening == "heat-broker" and placement[bundle] == 1:
            grown *= scenario.to_points / scenario.usage_points
        calm |= dict.fromkeys(names, rate / len(names))
        then |= dict.fromkeys(names, grown / len(names))
    return Traffic(placement=placement, calm_messages_per_s=calm, then_messages_per_s=then)


def _dealt(weights: Mapping[Bundle, float], brokers_count: int) -> dict[Bundle, int]:
    """The heaviest first, each to the broker that carries least."""
    carried = dict.fromkeys(range(1, brokers_count + 1), 0.0)
    placement = {}
    for bundle in sorted(weights, key=weights.__getitem__, reverse=True):
        broker = min(carried, key=carried.__getitem__)
        placement[bundle] = broker
        carried[broker] += weights[bundle]
    return placement


def _topics(bundle: Bundle, count: int) -> list[str]:
    """Names of topics that fall into a bundle."""
    names: list[str] = []
    number = 0
    while len(names) < count:
        topic = f"persistent://{NAMESPACE}/order-{number}"
        if bundle.range.contains(position_of(topic)):
            names.append(topic)
        number += 1
    return names
