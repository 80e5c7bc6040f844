"""The scenarios of ``trimtab simulate``: fleets with one kind of trouble each. Every seed makes another fleet."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.columns import Floats
from streaming.simulator.bundles import Bundles, make_bundles
from streaming.simulator.machines import CPU, Machines
from streaming.simulator.setup import Happening, Measuring, Setup
from streaming.simulator.traffic import DAY_S, Sources, Surge, rates_of

_MINUTE_S = 60.0
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
    hot_factor: float = 1.0
    """What the first broker carries at the beginning, as a multiple of what another one carries."""
    swing_ratio: float = 0.15
    are_swings_apart: bool = False
    """Whether namespaces have their peaks at different hours."""
    noise_ratio: float = 0.25
    common_noise_ratio: float = 0.05
    hours: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A kind of trouble."""

    name: str
    summary: str
    build: Callable[[np.random.Generator], Setup]


def make_setup(rng: np.random.Generator, shape: Shape) -> Setup:
    """A fleet of that shape, with nothing happening to it."""
    count = shape.brokers_count or int(rng.integers(10, 16))
    total = count + shape.later_brokers_count
    machines = make_machines(rng, total, are_unlike=shape.are_machines_unlike)
    namespaces_count = max(2, round(count * shape.bundles_per_broker / _BUNDLES_OF_NAMESPACE))
    names = [f"tenant-{row % 5 + 1}/app-{row + 1:03d}" for row in range(namespaces_count)]
    bundles, namespace, weight = make_bundles(names, _BUNDLES_OF_NAMESPACE, 96, rng, topic_spread=1.0)
    busy = rng.lognormal(0.0, 0.5, namespaces_count)
    size = rng.lognormal(np.log(1000.0), 0.8, namespaces_count)
    fan_out = rng.choice([1.0, 1.0, 1.0, 2.0, 3.0], namespaces_count)
    noise = shape.noise_ratio * rng.uniform(0.5, 1.5, namespaces_count)
    phases = rng.uniform(0, DAY_S, namespaces_count) if shape.are_swings_apart else np.zeros(namespaces_count)
    start_s = DAY_S * rng.random()
    sources = Sources(
        namespace=namespace,
        messages_per_s=weight * busy[namespace],
        bytes_per_message=size[namespace],
        fan_out=fan_out[namespace],
        noise_ratio=noise[namespace],
        noise_s=40.0,
        common_noise_ratio=shape.common_noise_ratio,
        drift_ratio=0.15,
        drift_s=3 * 3600.0,
        swing_ratio=shape.swing_ratio * rng.uniform(0.5, 1.5, namespaces_count),
        swing_phase_s=start_s + phases,
    )
    alive = np.arange(total) < count
    sources = scale_traffic(sources, machines, count, shape.mean_points)
    want = rng.lognormal(0.0, shape.placement_spread, count)
    want[0] *= shape.hot_factor
    place(bundles, sources, machines, want)
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
    )


def scale_traffic(sources: Sources, machines: Machines, brokers_count: int, mean_points: float) -> Sources:
    """The same sources, with so much traffic that the mean CPU of the first brokers is ``mean_points``."""
    rates = rates_of(sources, sources.messages_per_s)
    messages, volume = rates[:, :2].sum(), rates[:, 2:].sum()
    first = slice(brokers_count)
    core_s = (
        messages * machines.cpu_s_per_message[first].mean() + volume * machines.cpu_s_per_byte[first].mean()
    )
    wanted = (mean_points - machines.idle_points[first].mean()) / 100.0 * machines.cores[first].sum()
    return replace(sources, messages_per_s=sources.messages_per_s * wanted / core_s)


def place(bundles: Bundles, sources: Sources, machines: Machines, want: Floats) -> None:
    """Give each broker about its share of the usage: the heaviest bundle first, to the broker that is lowest for its share."""
    rates, brokers = rates_of(sources, sources.messages_per_s), np.arange(len(want))
    cost = machines.cost_points(rates, np.zeros(len(rates), dtype=np.int64)).max(axis=1)
    usage = np.zeros((len(want), 3))
    usage[:, CPU] = machines.idle_points[brokers]
    for row in np.argsort(-cost, kind="stable").tolist():
        at_each = machines.cost_points(np.repeat(rates[[row]], len(want), axis=0), brokers)
        broker = int(np.argmin((usage + at_each).max(axis=1) / want))
        usage[broker] += at_each[broker]
        bundles.owner[row] = broker


def place_by_messages(setup: Setup) -> None:
    """Give each broker the same message rate, as a balancer does that takes messages for usage."""
    carried = np.zeros(int(setup.alive.sum()))
    messages = rates_of(setup.sources, setup.sources.messages_per_s)[:, :2].sum(axis=1)
    for row in np.argsort(-messages, kind="stable").tolist():
        broker = int(np.argmin(carried))
        carried[broker] += messages[row]
        setup.bundles.owner[row] = broker


def _one_hot_broker(rng: np.random.Generator) -> Setup:
    return make_setup(rng, Shape(hot_factor=rng.uniform(1.6, 1.9)))


def _one_hot_bundle(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(mean_points=30.0))
    return heat_bundle(setup, to_points=75.0)


def heat_bundle(setup: Setup, *, to_points: float) -> Setup:
    """The same fleet, where one bundle takes ``to_points`` of the first broker's CPU, in equal parts for its topics."""
    row = int(np.flatnonzero(setup.bundles.owner == 0)[0])
    rates = rates_of(setup.sources, setup.sources.messages_per_s)
    points = setup.machines.cost_points(rates[[row]], np.zeros(1, dtype=np.int64))[0, CPU]
    messages = setup.sources.messages_per_s.copy()
    messages[row] *= to_points / points
    topics = setup.bundles.topic_bundle == row
    setup.bundles.topic_share[topics] = 1.0 / topics.sum()
    return replace(setup, sources=replace(setup.sources, messages_per_s=messages))


def _scale_out(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(brokers_count=10, later_brokers_count=5, mean_points=70.0))
    at_s = 20 * _MINUTE_S
    return replace(
        setup,
        happenings=tuple(
            Happening(at_s=at_s + 40.0 * place, kind="join", broker=10 + place) for place in range(5)
        ),
        disturbed_s=(at_s,),
    )


def _scale_in(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(brokers_count=14))
    times_s = [(20 + 40 * place) * _MINUTE_S for place in range(3)]
    kinds = ("leave", "leave", "die")
    happenings = tuple(
        Happening(at_s=at_s, kind="die" if kind == "die" else "leave", broker=int(broker))
        for at_s, kind, broker in zip(times_s, kinds, rng.choice(14, 3, replace=False), strict=True)
    )
    return replace(setup, happenings=happenings, disturbed_s=tuple(times_s))


def _rolling_restart(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape())
    count = len(setup.machines)
    happenings: list[Happening] = []
    for place, broker in enumerate(rng.permutation(count).tolist()):
        at_s = (20 + 5 * place) * _MINUTE_S
        happenings += [
            Happening(at_s=at_s, kind="leave", broker=broker),
            Happening(at_s=at_s + 2.5 * _MINUTE_S, kind="join", broker=broker),
        ]
    return replace(
        setup, happenings=tuple(happenings), disturbed_s=(20 * _MINUTE_S, (20 + 5 * count) * _MINUTE_S)
    )


def _noise_alone(rng: np.random.Generator) -> Setup:
    setup = make_setup(
        rng, Shape(placement_spread=0.03, noise_ratio=0.4, common_noise_ratio=0.1, swing_ratio=0.05)
    )
    measuring = Measuring(cpu_error_points=4.0, cpu_error_s=60.0, spike_ratio=1 / 30, spike_points=30.0)
    return replace(
        setup, measuring=measuring, sources=replace(setup.sources, drift_ratio=0.02), disturbed_s=()
    )


def _daily_swing(rng: np.random.Generator) -> Setup:
    return make_setup(rng, Shape(swing_ratio=0.4, are_swings_apart=True, hours=24.0))


def _tenant_surge(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape())
    first, second = rng.choice(setup.sources.namespaces_count, 2, replace=False).tolist()
    surges = (
        Surge(namespace=first, start_s=30 * _MINUTE_S, end_s=60 * _MINUTE_S, factor=rng.uniform(3, 6)),
        Surge(namespace=second, start_s=120 * _MINUTE_S, end_s=180 * _MINUTE_S, factor=rng.uniform(3, 6)),
    )
    return replace(
        setup,
        sources=replace(setup.sources, surges=surges),
        disturbed_s=tuple(time_s for each in surges for time_s in (each.start_s, each.end_s)),
    )


def _busy_hour(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(mean_points=35.0, placement_spread=0.06))
    factor = rng.uniform(1.5, 2.0)
    surges = tuple(
        Surge(namespace=namespace, start_s=60 * _MINUTE_S, end_s=150 * _MINUTE_S, factor=factor)
        for namespace in range(setup.sources.namespaces_count)
    )
    return replace(setup, sources=replace(setup.sources, surges=surges), disturbed_s=())


def _unlike_machines(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(are_machines_unlike=True, mean_points=40.0))
    place_by_messages(setup)
    return setup


def _every_broker_hot(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(mean_points=95.0, placement_spread=0.05))
    return replace(setup, disturbed_s=())


def _three_brokers(rng: np.random.Generator) -> Setup:
    return make_setup(rng, Shape(brokers_count=3, hot_factor=1.8))


def _large_fleet(rng: np.random.Generator) -> Setup:
    return make_setup(rng, Shape(brokers_count=200, bundles_per_broker=100, placement_spread=0.12))


def _late_and_lost(rng: np.random.Generator) -> Setup:
    setup = make_setup(rng, Shape(hot_factor=1.8))
    return replace(setup, measuring=replace(setup.measuring, lost_ratio=0.08, late_ratio=0.2))


def _two_balancers(rng: np.random.Generator) -> Setup:
    return replace(make_setup(rng, Shape(hot_factor=1.7)), other_balancer_s=10 * _MINUTE_S)


SCENARIOS: Final = tuple(
    Scenario(name=name, summary=summary, build=build)
    for name, summary, build in (
        ("one-hot-broker", "one broker carries far more than the others", _one_hot_broker),
        ("one-hot-bundle", "one bundle carries more than a broker should", _one_hot_bundle),
        ("scale-out", "five empty brokers join ten busy ones", _scale_out),
        ("scale-in", "two brokers leave and one dies", _scale_in),
        ("rolling-restart", "every broker is restarted in turn and returns empty", _rolling_restart),
        ("noise-alone", "balanced, but measured badly and with nervous traffic", _noise_alone),
        ("daily-swing", "namespaces with their peaks at different hours, for a day", _daily_swing),
        ("tenant-surge", "two tenants' traffic multiplies for a while, and ends by itself", _tenant_surge),
        (
            "busy-hour",
            "all traffic rises within a minute, and falls again an hour and a half later",
            _busy_hour,
        ),
        ("unlike-machines", "machines differ in cores and in what a message costs them", _unlike_machines),
        ("every-broker-hot", "more traffic than the fleet can carry", _every_broker_hot),
        ("three-brokers", "three brokers, one of them hot", _three_brokers),
        ("large-fleet", "200 brokers with 20,000 bundles, unevenly placed", _large_fleet),
        ("late-and-lost", "a hot broker, and reports that are late or lost", _late_and_lost),
        ("two-balancers", "another program moves bundles as well", _two_balancers),
    )
)
"""In the order of the table."""


def find_scenario(name: str) -> Scenario | None:
    """The scenario of that name; None where there is none."""
    return next((each for each in SCENARIOS if each.name == name), None)


@dataclass(frozen=True, slots=True)
class LimitedScenario:
    """A scenario with another length, in hours."""

    build: Callable[[np.random.Generator], Setup]
    hours: float

    def __call__(self, rng: np.random.Generator) -> Setup:
        """The fleet at its beginning."""
        setup = self.build(rng)
        disturbed_s = tuple(each for each in setup.disturbed_s if each < 3600 * self.hours)
        return replace(setup, hours=self.hours, disturbed_s=disturbed_s)
