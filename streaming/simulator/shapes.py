"""The fleets that scenarios begin with: machines, bundles and traffic, and who has which bundle."""

from dataclasses import dataclass, replace

import numpy as np

from policies.columns import Bools, Floats
from streaming.simulator.bundles import Bundles, make_bundles
from streaming.simulator.machines import CPU, NETWORK_PER_BYTE, SESSIONS_COUNT, Machines
from streaming.simulator.setup import Setup
from streaming.simulator.traffic import DAY_S, Sources, rates_of

_BUNDLES_OF_NAMESPACE = 16
_CORE_SIZES = (8.0, 16.0, 32.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What scenarios have in common, and where they differ."""

    brokers_count: int | None = None
    """None: 10 to 15."""
    bundles_per_broker: int = 40
    mean_points: float = 45.0
    """CPU of the fleet when it is balanced, without the brokers that come later."""
    later_brokers_count: int = 0
    """Brokers that are not there at the beginning."""
    are_machines_unlike: bool = False
    placement_spread: float = 0.04
    """Standard deviation of the logarithm of what brokers carry at the beginning."""
    factors: tuple[float, ...] = ()
    """What the first brokers carry at the beginning, as multiples of what another one carries."""
    topic_spread: float = 1.15
    """Standard deviation of the logarithm of a topic's size."""
    swing_ratio: float = 0.15
    """Mean of how far the namespaces' traffic goes to either side; they differ by half of it."""
    swing_s: float = DAY_S
    regions_count: int | None = 1
    """Groups of namespaces with their peaks at different hours; brokers mostly serve one. None: every namespace has hours of its own."""
    home_ratio: float = 0.8
    """Share of a region's bundles that its own brokers serve at the beginning."""
    sessions_count: float = 0.0
    """Producers and consumers of a bundle."""
    noise_ratio: float = 0.25
    common_noise_ratio: float = 0.05
    hours: float = 4.0


def make_setup(rng: np.random.Generator, shape: Shape) -> Setup:
    """A fleet of that shape, with nothing happening to it."""
    count = shape.brokers_count or int(rng.integers(10, 16))
    total = count + shape.later_brokers_count
    machines = make_machines(rng, total, are_unlike=shape.are_machines_unlike)
    namespaces_count = max(2, round(count * shape.bundles_per_broker / _BUNDLES_OF_NAMESPACE))
    names = [f"tenant-{row % 5 + 1}/app-{row + 1:03d}" for row in range(namespaces_count)]
    bundles, namespace, weight = make_bundles(
        names, _BUNDLES_OF_NAMESPACE, 96, rng, topic_spread=shape.topic_spread
    )
    busy = rng.lognormal(0.0, 0.45 * shape.topic_spread, namespaces_count)
    size = rng.lognormal(np.log(1000.0), 0.8, namespaces_count)
    fan_out = rng.choice([1.0, 1.0, 1.0, 2.0, 3.0], namespaces_count)
    noise = shape.noise_ratio * rng.uniform(0.5, 1.5, namespaces_count)
    regions_count = namespaces_count if shape.regions_count is None else shape.regions_count
    region = np.arange(namespaces_count) % regions_count
    sources = Sources(
        namespace=namespace,
        messages_per_s=weight * busy[namespace],
        bytes_per_message=size[namespace],
        fan_out=fan_out[namespace],
        sessions_count=np.full(len(namespace), shape.sessions_count),
        noise_ratio=noise[namespace],
        noise_s=40.0,
        common_noise_ratio=shape.common_noise_ratio,
        drift_ratio=0.15,
        drift_s=3 * 3600.0,
        swing_ratio=shape.swing_ratio * rng.uniform(0.5, 1.5, namespaces_count),
        swing_s=shape.swing_s,
        swing_phase_s=shape.swing_s * (rng.random() + region / regions_count),
    )
    alive = np.arange(total) < count
    sources = scale_traffic(sources, machines, count, shape.mean_points)
    want = rng.lognormal(0.0, shape.placement_spread, count)
    want[: len(shape.factors)] *= shape.factors
    is_home = np.ones((len(namespace), count), dtype=np.bool_)
    if 1 < regions_count < namespaces_count:
        is_home = region[namespace][:, None] == np.arange(count) % regions_count
        is_home |= rng.random((len(namespace), 1)) >= shape.home_ratio
    place(bundles, sources, machines, want, is_home)
    return Setup(machines=machines, sources=sources, bundles=bundles, alive=alive, hours=shape.hours)


def make_machines(rng: np.random.Generator, count: int, *, are_unlike: bool) -> Machines:
    """Similar machines differ by a few percent; unlike ones differ in cores, and in what a message costs them."""
    cores = rng.choice(_CORE_SIZES, count) if are_unlike else np.full(count, 16.0)
    spread = 0.25 if are_unlike else 0.04
    return Machines(
        names=tuple(f"broker-{row + 1:03d}:8080" for row in range(count)),
        cores=cores,
        network_bytes_per_s=cores / 16.0 * 2.5e9,
        idle_points=rng.uniform(2.0, 5.0, count),
        cpu_s_per_message=40e-6 * rng.lognormal(0.0, spread, count),
        cpu_s_per_byte=16e-9 * rng.lognormal(0.0, spread, count),
        network_per_byte=np.broadcast_to(NETWORK_PER_BYTE, (count, 2, 2)),
        sessions_count=np.full(count, SESSIONS_COUNT),
        is_measured=np.ones((count, 3), dtype=np.bool_),
    )


def scale_traffic(sources: Sources, machines: Machines, brokers_count: int, mean_points: float) -> Sources:
    """The same sources, with so much traffic that the mean CPU of the first brokers is ``mean_points``."""
    rates = rates_of(sources, sources.messages_per_s)
    messages, volume = rates[:, :2].sum(), rates[:, 2:4].sum()
    first = slice(brokers_count)
    core_s = (
        messages * machines.cpu_s_per_message[first].mean() + volume * machines.cpu_s_per_byte[first].mean()
    )
    wanted = (mean_points - machines.idle_points[first].mean()) / 100.0 * machines.cores[first].sum()
    return replace(sources, messages_per_s=sources.messages_per_s * wanted / core_s)


def place(bundles: Bundles, sources: Sources, machines: Machines, want: Floats, is_home: Bools) -> None:
    """Give each broker about its share of the usage: the heaviest bundle first, to the broker that is lowest for its share.

    ``is_home`` says which broker may have which bundle, (m, n).
    """
    rates, brokers = rates_of(sources, sources.messages_per_s), np.arange(len(want))
    cost = machines.cost_points(rates, np.zeros(len(rates), dtype=np.int64)).max(axis=1)
    usage = np.zeros((len(want), 4))
    usage[:, CPU] = machines.idle_points[brokers]
    for row in np.argsort(-cost, kind="stable").tolist():
        at_each = machines.cost_points(np.repeat(rates[[row]], len(want), axis=0), brokers)
        level = np.where(is_home[row], (usage + at_each).max(axis=1) / want, np.inf)
        broker = int(np.argmin(level))
        usage[broker] += at_each[broker]
        bundles.owner[row] = broker
