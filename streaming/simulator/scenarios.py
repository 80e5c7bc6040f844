"""The scenarios of ``trimtab simulate``: fleets with one kind of trouble each. Every seed makes another fleet.

A scenario is a row of ``SCENARIOS``: the shape of its fleet, and the changes that make its trouble.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from policies.columns import Bools, Floats
from state.events import namespace_of
from state.facts import Facts
from streaming.simulator.setup import (
    CPU,
    DAY_S,
    NETWORK_PER_BYTE,
    SESSIONS_COUNT,
    Build,
    Bundles,
    Happening,
    Machines,
    Measuring,
    Setup,
    Sources,
    Surge,
    make_bundles,
    rates_of,
)

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


_MINUTE_S = 60.0
Change = Callable[[Setup, np.random.Generator], Setup]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of trouble."""

    name: str
    summary: str
    shape: Shape
    changes: tuple[Change, ...] = ()
    """What makes the trouble, one after the other."""

    def build(self, rng: np.random.Generator) -> Setup:
        """The fleet at its beginning, and what will happen to it."""
        setup = make_setup(rng, self.shape)
        for change in self.changes:
            setup = change(setup, rng)
        return setup


def _change(setup: Setup, _rng: np.random.Generator, **values: Any) -> Setup:
    """Set attributes of the setup."""
    return replace(setup, **values)


def _change_sources(setup: Setup, _rng: np.random.Generator, **values: Any) -> Setup:
    """Set attributes of the traffic."""
    return replace(setup, sources=replace(setup.sources, **values))


def _join(setup: Setup, _rng: np.random.Generator, *, minute: float) -> Setup:
    """The later brokers come, a quarter of a minute apart."""
    later, at_s = np.flatnonzero(~setup.alive).tolist(), minute * _MINUTE_S
    happenings = tuple(
        Happening(at_s=at_s + 15.0 * turn, broker=broker, joins=True) for turn, broker in enumerate(later)
    )
    return replace(setup, happenings=happenings, disturbed_s=(at_s,))


def _leave(setup: Setup, rng: np.random.Generator) -> Setup:
    """Two brokers leave and one dies, forty minutes apart."""
    times_s = tuple((20 + 40 * turn) * _MINUTE_S for turn in range(3))
    brokers = rng.choice(len(setup.machines), 3, replace=False).tolist()
    happenings = tuple(
        Happening(at_s=at_s, broker=broker) for at_s, broker in zip(times_s, brokers, strict=True)
    )
    return replace(setup, happenings=happenings, disturbed_s=times_s)


def _restart(setup: Setup, rng: np.random.Generator, *, every_minutes: float, away_minutes: float) -> Setup:
    """One broker after the other is away for a while, until the end."""
    order, happenings = rng.permutation(len(setup.machines)).tolist(), []
    starts_s = np.arange(every_minutes * _MINUTE_S, setup.hours * 3600.0, every_minutes * _MINUTE_S).tolist()
    for turn, at_s in enumerate(starts_s):
        broker = order[turn % len(order)]
        happenings += [
            Happening(at_s=at_s, broker=broker),
            Happening(at_s=at_s + away_minutes * _MINUTE_S, broker=broker, joins=True),
        ]
    return replace(setup, happenings=tuple(happenings), disturbed_s=tuple(starts_s))


def _surge(
    setup: Setup, rng: np.random.Generator, *, count: int | None, minutes: tuple[float, float], factor: float
) -> Setup:
    """The traffic of some namespaces, or of all, is ``factor`` times as much for a while."""
    total = setup.sources.namespaces_count
    chosen = rng.choice(total, total if count is None else count, replace=False).tolist()
    start_s, end_s = (each * _MINUTE_S for each in minutes)
    surges = tuple(Surge(namespace=each, start_s=start_s, end_s=end_s, factor=factor) for each in chosen)
    return replace(
        setup,
        sources=replace(setup.sources, surges=surges),
        disturbed_s=() if count is None else (start_s, end_s),
    )


def _heat_bundle(
    setup: Setup, _rng: np.random.Generator, *, to_points: float, topics_count: int | None = None
) -> Setup:
    """One bundle takes ``to_points`` of the first broker's CPU, in equal parts for its topics or for the first of them."""
    row = int(np.flatnonzero(setup.bundles.owner == 0)[0])
    rates = rates_of(setup.sources, setup.sources.messages_per_s)
    points = setup.machines.cost_points(rates[[row]], np.zeros(1, dtype=np.int64))[0, CPU]
    messages = setup.sources.messages_per_s.copy()
    messages[row] *= to_points / points
    topics = np.flatnonzero(setup.bundles.topic_bundle == row)
    setup.bundles.topic_share[topics] = 0.0
    busy = topics[:topics_count]
    setup.bundles.topic_share[busy] = 1.0 / len(busy)
    return replace(setup, sources=replace(setup.sources, messages_per_s=messages))


def _send_big_messages(setup: Setup, _rng: np.random.Generator, *, points: float) -> Setup:
    """Three bundles of the first broker take ``points`` of its network with messages of 4.5 MB; the others' are small."""
    rows = np.flatnonzero(setup.bundles.owner == 0)[:3]
    machines, sources = setup.machines, setup.sources
    network = np.full(len(machines), 0.5e9)
    messages, size = sources.messages_per_s.copy(), sources.bytes_per_message / 4
    fan_out = sources.fan_out.copy()
    size[rows], fan_out[rows] = 4.5e6, 1.0
    messages[rows] = (
        points / 100.0 * network[0] / len(rows) / (3.0 * size[rows])
    )  # it is sent to two bookies and a consumer
    return replace(
        setup,
        machines=replace(machines, network_bytes_per_s=network, cpu_s_per_byte=machines.cpu_s_per_byte / 8),
        sources=replace(sources, messages_per_s=messages, bytes_per_message=size, fan_out=fan_out),
    )


def _mix_networks(setup: Setup, _rng: np.random.Generator, *, points: float) -> Setup:
    """The second half are small machines that do not know their network, of which traffic takes most: ``points`` in the mean.

    The first broker carries half as much again as another. Messages are of one size, so that CPU goes with the network.
    """
    count = len(setup.machines)
    is_small = np.arange(count) >= count // 2
    machines = replace(
        setup.machines,
        cores=np.where(is_small, 6.4, 16.0),
        network_bytes_per_s=np.where(is_small, 0.5e9, 1.25e9),
        cpu_s_per_byte=setup.machines.cpu_s_per_byte / 8,
        is_measured=np.column_stack([np.ones(count, dtype=np.bool_), ~is_small, ~is_small]),
    )
    messages = setup.sources.messages_per_s
    size = points / 100.0 * machines.network_bytes_per_s.sum() / (3.0 * messages.sum())
    sources = replace(
        setup.sources, bytes_per_message=np.full(len(messages), size), fan_out=np.ones(len(messages))
    )
    want = np.where(np.arange(count) == 0, 1.5, 1.0)
    place(setup.bundles, sources, machines, want, np.ones((len(messages), count), dtype=np.bool_))
    return replace(setup, machines=machines, sources=sources)


def _flap(setup: Setup, _rng: np.random.Generator) -> Setup:
    """Every seventh bundle, and the two heaviest of each broker, are missing from every second figure."""
    rates = setup.sources.messages_per_s
    flapping = np.arange(len(rates)) % 7 == 0
    for broker in range(len(setup.machines)):
        rows = np.flatnonzero(setup.bundles.owner == broker)
        flapping[rows[np.argsort(-rates[rows], kind="stable")[:2]]] = True
    return replace(setup, flapping=flapping)


def _keep_apart(setup: Setup, _rng: np.random.Generator) -> Setup:
    """Of half of the namespaces, each three of different regions are to be kept on different brokers."""
    names = sorted(
        {namespace_of(name) for name in setup.bundles.names}, key=lambda name: name.rpartition("-")[2]
    )
    groups = {f"group-{at // 6}": sorted(names[at : at + 3]) for at in range(0, len(names) - 2, 6)}
    return replace(setup, facts=Facts([], [], [], [], groups))


def _place_by_messages(setup: Setup, _rng: np.random.Generator) -> Setup:
    """Give each broker the same message rate, as a balancer does that takes messages for usage."""
    carried = np.zeros(int(setup.alive.sum()))
    messages = rates_of(setup.sources, setup.sources.messages_per_s)[:, :2].sum(axis=1)
    for row in np.argsort(-messages, kind="stable").tolist():
        broker = int(np.argmin(carried))
        carried[broker] += messages[row]
        setup.bundles.owner[row] = broker
    return setup


_UNDISTURBED: Final = partial(_change, disturbed_s=())
_HOT: Final = (1.75,)
SCENARIOS: Final = (
    Scenario("one-hot-broker", "one broker carries far more than the others", Shape(factors=_HOT)),
    Scenario(
        "one-hot-bundle",
        "one bundle carries more than a broker should",
        Shape(mean_points=30.0),
        (partial(_heat_bundle, to_points=75.0),),
    ),
    Scenario(
        "heavy-topic",
        "one topic takes 52 points of a broker, which has to stay while the rest moves away",
        Shape(mean_points=48.0),
        (partial(_heat_bundle, to_points=52.0, topics_count=1),),
    ),
    Scenario(
        "scale-out",
        "five empty brokers join ten at 70 %",
        Shape(brokers_count=10, later_brokers_count=5, mean_points=70.0),
        (partial(_join, minute=20),),
    ),
    Scenario("scale-in", "two brokers leave and one dies", Shape(brokers_count=14), (_leave,)),
    Scenario(
        "rolling-restart",
        "every 12 minutes a broker leaves for two minutes, and returns empty",
        Shape(mean_points=30.0, topic_spread=1.3),
        (partial(_restart, every_minutes=12, away_minutes=2),),
    ),
    Scenario(
        "noise-alone",
        "balanced, but measured badly and with nervous traffic",
        Shape(placement_spread=0.03, noise_ratio=0.4, common_noise_ratio=0.1, swing_ratio=0.05),
        (
            _UNDISTURBED,
            partial(_change_sources, drift_ratio=0.02),
            partial(
                _change,
                measuring=Measuring(
                    cpu_error_points=4.0, cpu_error_s=60.0, spike_ratio=1 / 30, spike_points=30.0
                ),
            ),
        ),
    ),
    Scenario(
        "daily-swing",
        "namespaces with their peaks at different hours, for a day",
        Shape(swing_ratio=0.4, regions_count=None, hours=24.0),
        (_UNDISTURBED,),
    ),
    Scenario(
        "three-regions",
        "three regions, 60 % up and down over six hours, two hours apart",
        Shape(mean_points=40.0, swing_ratio=0.6, swing_s=6 * 3600.0, regions_count=3),
    ),
    Scenario(
        "surge",
        "six namespaces carry six times their traffic for 80 minutes",
        Shape(mean_points=35.0),
        (partial(_surge, count=6, minutes=(60, 140), factor=6.0),),
    ),
    Scenario(
        "busy-hour",
        "all traffic rises within a minute, and falls again an hour and a half later",
        Shape(mean_points=35.0, placement_spread=0.06),
        (partial(_surge, count=None, minutes=(60, 150), factor=1.75),),
    ),
    Scenario(
        "unlike-machines",
        "machines differ in cores and in what a message costs them",
        Shape(are_machines_unlike=True, mean_points=40.0),
        (_place_by_messages,),
    ),
    Scenario(
        "every-broker-hot",
        "more traffic than the fleet can carry",
        Shape(mean_points=95.0, placement_spread=0.05),
        (_UNDISTURBED,),
    ),
    Scenario(
        "wrong-limit",
        "brokers between half busy and full report 95 to 165 %, because the limit of CPU is too low",
        Shape(mean_points=72.0, placement_spread=0.2),
        (partial(_change, measuring=Measuring(cpu_limit_ratio=40 / 23)),),
    ),
    Scenario(
        "small-bundles",
        "120 nearly equal bundles a broker, one broker far hotter",
        Shape(brokers_count=4, bundles_per_broker=120, mean_points=27.5, topic_spread=0.2, factors=(2.7,)),
    ),
    Scenario(
        "tiny-bundles",
        "650 nearly equal bundles a broker, one broker hotter",
        Shape(brokers_count=6, bundles_per_broker=650, topic_spread=0.2, factors=_HOT),
    ),
    Scenario(
        "mixed-networks",
        "half of the brokers do not know that their network is nearly as busy as the others'",
        Shape(mean_points=16.0),
        (partial(_mix_networks, points=52.0),),
    ),
    Scenario(
        "big-messages",
        "three bundles of a few big messages fill the network of one broker",
        Shape(mean_points=34.0),
        (partial(_send_big_messages, points=66.0),),
    ),
    Scenario(
        "idle-clients",
        "bundles without traffic but with 800 clients each, and a broker without any",
        Shape(brokers_count=4, mean_points=9.0, factors=(1e-6,), sessions_count=800.0),
    ),
    Scenario(
        "flapping-bundles",
        "a hot broker, and bundles that are missing from every second report",
        Shape(factors=_HOT),
        (_flap, partial(_change, measuring=Measuring(silent_ratio=0.03))),
    ),
    Scenario(
        "kept-apart",
        "a hot broker, and anti-affinity groups that forbid half of its bundles most destinations",
        Shape(brokers_count=12, regions_count=3, home_ratio=1.0, factors=_HOT),
        (_keep_apart,),
    ),
    Scenario("three-brokers", "three brokers, one of them hot", Shape(brokers_count=3, factors=(1.8,))),
    Scenario(
        "large-fleet",
        "100 brokers, ten of them hot and five cold",
        Shape(brokers_count=100, factors=(1.6,) * 10 + (0.4,) * 5),
    ),
    Scenario(
        "late-and-lost",
        "a hot broker, and reports that are late or lost",
        Shape(factors=_HOT),
        (partial(_change, measuring=Measuring(lost_ratio=0.08, late_ratio=0.2)),),
    ),
    Scenario(
        "two-balancers",
        "another program moves bundles as well",
        Shape(factors=_HOT),
        (partial(_change, other_balancer_s=10 * _MINUTE_S),),
    ),
)
"""In the order of the table."""


BY_NAME: Mapping[str, Scenario] = {each.name: each for each in SCENARIOS}


def limit_hours(build: Build, hours: float) -> Build:
    """The same fleet for another length of time."""
    return partial(_build_limited, build, hours)


def _build_limited(build: Build, hours: float, rng: np.random.Generator) -> Setup:
    setup = build(rng)
    disturbed_s = tuple(each for each in setup.disturbed_s if each < 3600 * hours)
    return replace(setup, hours=hours, disturbed_s=disturbed_s)
