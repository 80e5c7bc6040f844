"""What a simulated fleet is made of, which is everything that a scenario decides: machines, traffic, bundles and their troubles.

Machines: usage of a resource is proportional to traffic above an idle part, up to ``KNEE_POINTS``; above it saturates, and never
exceeds 100 %. A broker receives the bytes of its bundles once, and sends what comes in to two bookies in addition to its consumers.
What it can hold of sessions (producers and consumers) is a resource as well.

Traffic has slow changes that a balancer should follow, and fast noise that it should not. The message rate of a bundle is its own
base times a slow drift, the daily swing and the surges of its namespace, times noise of the bundle and of its namespace. The first
part is called structural: whether a fleet is balanced is judged on it. The sequence of numbers depends on the seed alone, never on
what is moved, so every policy gets the same traffic.

Bundles: a bundle's traffic is a share of the source it began with, so a split changes no traffic. Topics have real names and
Pulsar's hash positions, so a split cuts where Pulsar would cut.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.splitting.ranges import Bundle, NamespaceBundles, positions_of
from state.facts import Facts

KNEE_POINTS = 80.0
"""Usage above which more demand shows only in part."""
CPU, NETWORK_IN, NETWORK_OUT, SESSIONS = range(4)
"""Columns of usage; brokers report the first three."""
NETWORK_PER_BYTE: Final = ((1.0, 0.0), (2.0, 1.0))
"""Bytes on the network, in and out, for a byte that comes in and for one that goes out: two bookies get what comes in."""
SESSIONS_COUNT: Final = 100_000.0
"""Sessions that a broker of a made-up fleet can hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """One row for each broker that is ever part of the fleet; n rows."""

    names: tuple[str, ...]
    """Broker ids, ascending."""
    cores: Floats
    """(n,)."""
    network_bytes_per_s: Floats
    """What the network carries each way, (n,)."""
    idle_points: Floats
    """CPU without traffic, (n,)."""
    cpu_s_per_message: Floats
    """Core seconds of a message in or out, (n,)."""
    cpu_s_per_byte: Floats
    """Core seconds of a byte in or out, (n,)."""
    network_per_byte: Floats
    """(n, 2, 2): see ``NETWORK_PER_BYTE``."""
    sessions_count: Floats
    """Sessions that each can hold, (n,)."""
    is_measured: Bools
    """Whether a broker knows its CPU and its network each way, (n, 3)."""

    def __len__(self) -> int:
        return len(self.names)

    def cost_points(self, rates: Floats, rows: Ints) -> Floats:
        """Usage that traffic would cost a broker, in points, (k, 4), for rates (k, 5) and a broker's row for each."""
        messages, volume = rates[:, 0] + rates[:, 1], rates[:, 2] + rates[:, 3]
        core_s = messages * self.cpu_s_per_message[rows] + volume * self.cpu_s_per_byte[rows]
        carried = (self.network_per_byte[rows] * rates[:, None, 2:4]).sum(axis=2)
        return np.column_stack(
            [
                100.0 * core_s / self.cores[rows],
                100.0 * carried / self.network_bytes_per_s[rows, None],
                100.0 * rates[:, 4] / self.sessions_count[rows],
            ]
        )

    def demand_points(self, rates: Floats, owner: Ints) -> Floats:
        """Demand on each broker, in points, (n, 4), not limited by its capacity."""
        totals = np.zeros((len(self), rates.shape[1]))
        for column in range(rates.shape[1]):
            totals[:, column] = np.bincount(owner, weights=rates[:, column], minlength=len(self))
        demand = self.cost_points(totals, np.arange(len(self)))
        demand[:, CPU] += self.idle_points
        return demand


def saturate(demand_points: Floats) -> Floats:
    """Usage from demand: the same up to the knee, then less and less, never above 100."""
    room = 100.0 - KNEE_POINTS
    above = np.maximum(demand_points - KNEE_POINTS, 0.0)
    return np.minimum(demand_points, KNEE_POINTS) + room * (1.0 - np.exp(-above / room))


DAY_S = 86_400.0
RAMP_S = 60.0
"""How long a surge takes to rise and to fall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """More traffic of one namespace for a while."""

    namespace: int
    start_s: float
    end_s: float
    factor: float

    def at(self, time_s: float) -> float:
        """Factor at a moment."""
        rises, falls = (time_s - self.start_s) / RAMP_S, (self.end_s - time_s) / RAMP_S
        return 1.0 + (self.factor - 1.0) * min(1.0, max(0.0, min(rises, falls)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sources:
    """Where traffic comes from: the r bundles that the fleet begins with, of k namespaces."""

    namespace: Ints
    """Row of each source's namespace, (r,)."""
    messages_per_s: Floats
    """Base rate of messages in, (r,)."""
    bytes_per_message: Floats
    """(r,)."""
    fan_out: Floats
    """Messages out for each in, (r,)."""
    sessions_count: Floats
    """Producers and consumers, with traffic or without, (r,)."""
    noise_ratio: Floats
    """Standard deviation of a bundle's fast noise, (r,)."""
    noise_s: float
    """How long a bundle's noise lasts."""
    common_noise_ratio: float
    """Standard deviation of the noise that the bundles of a namespace share."""
    drift_ratio: float
    """Standard deviation of the slow drift."""
    drift_s: float
    """How long a drift lasts."""
    swing_ratio: Floats
    """How far a namespace's daily swing goes to either side, (k,)."""
    swing_s: float = DAY_S
    """How long a swing takes, there and back."""
    swing_phase_s: Floats
    """(k,)."""
    surges: tuple[Surge, ...] = ()

    @property
    def namespaces_count(self) -> int:
        """The number of namespaces, k."""
        return len(self.swing_ratio)


class Traffic:
    """Rates tick by tick."""

    def __init__(self, sources: Sources, rng: np.random.Generator, *, tick_s: float) -> None:
        self._sources, self._rng, self._tick_s = sources, rng, tick_s
        self._drift = rng.standard_normal(len(sources.messages_per_s))
        self._noise = rng.standard_normal(len(sources.messages_per_s))
        self._common = rng.standard_normal(sources.namespaces_count)

    def step(self, time_s: float) -> tuple[Floats, Floats]:
        """Structural and real message rate in of each source, (r,) each."""
        sources = self._sources
        self._drift = self._step_noise(self._drift, sources.drift_s)
        self._noise = self._step_noise(self._noise, sources.noise_s)
        self._common = self._step_noise(self._common, sources.noise_s)
        swing = 1.0 + sources.swing_ratio * np.sin(
            2 * math.pi * (time_s + sources.swing_phase_s) / sources.swing_s
        )
        for surge in sources.surges:
            swing[surge.namespace] *= surge.at(time_s)
        drift = np.exp(sources.drift_ratio * self._drift - sources.drift_ratio**2 / 2)
        structural = sources.messages_per_s * drift * swing[sources.namespace]
        common = sources.common_noise_ratio * self._common[sources.namespace]
        spread = sources.noise_ratio**2 + sources.common_noise_ratio**2
        return structural, structural * np.exp(sources.noise_ratio * self._noise + common - spread / 2)

    def _step_noise(self, now: Floats, lasts_s: float) -> Floats:
        """The next value of noise that lasts ``lasts_s``, with a standard deviation of 1."""
        kept = math.exp(-self._tick_s / lasts_s)
        return kept * now + math.sqrt(1.0 - kept * kept) * self._rng.standard_normal(len(now))


def rates_of(sources: Sources, messages_in: Floats) -> Floats:
    """Messages/s in and out, bytes/s in and out, and sessions, (r, 5)."""
    messages_out = messages_in * sources.fan_out
    size = sources.bytes_per_message
    return np.column_stack(
        [messages_in, messages_out, messages_in * size, messages_out * size, sources.sessions_count]
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Bundles:
    """m bundles and t topics. ``split`` appends rows and changes others; apart from that only ``owner`` changes."""

    names: list[str]
    source: Ints
    """Row of the source from which each bundle draws its traffic, (m,)."""
    share: Floats
    """Each bundle's part of that source, (m,)."""
    owner: Ints
    """Row of the broker that has it, (m,)."""
    topics: list[str]
    position: Ints
    """Position of each topic in the hash range, (t,)."""
    topic_bundle: Ints
    """Bundle row of each topic, (t,)."""
    topic_share: Floats
    """A topic's part of its source, (t,)."""
    _row_of: dict[str, int] = field(init=False)
    _by_bundle: Ints | None = field(init=False, default=None)
    """Topic rows in the order of their bundles; None until it is made, and after a split."""

    def __post_init__(self) -> None:
        self._row_of = {name: row for row, name in enumerate(self.names)}

    def topics_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """How many topics each of these bundles has, (k,), and the rows of all of them, bundle after bundle."""
        if self._by_bundle is None:
            self._by_bundle = np.argsort(self.topic_bundle, kind="stable")
        owners = self.topic_bundle[self._by_bundle]
        first, last = np.searchsorted(owners, rows), np.searchsorted(owners, rows, side="right")
        spans = (self._by_bundle[start:end] for start, end in zip(first.tolist(), last.tolist(), strict=True))
        return last - first, np.concatenate([np.zeros(0, dtype=np.int64), *spans])

    def row_of(self, name: str) -> int | None:
        """The row of a bundle; None for one that was split."""
        return self._row_of.get(name)

    def split(self, name: str, boundaries: list[int]) -> None:
        """Cut a bundle; its first child takes its row. Raises ``BadRange`` for boundaries that Pulsar would refuse."""
        bundle = Bundle.parse(name)
        children = bundle.range.cut(boundaries)
        row = self._row_of.pop(name)
        self._by_bundle = None
        topics = np.flatnonzero(self.topic_bundle == row)
        for place, range_ in enumerate(children):
            child = str(Bundle(bundle.namespace, range_))
            inside = topics[range_.contains_each(self.position[topics])]
            at = row if place == 0 else len(self.names)
            if at == row:
                self.names[row] = child
            else:
                self.names.append(child)
                self.source = np.append(self.source, self.source[row])
                self.share = np.append(self.share, 0.0)
                self.owner = np.append(self.owner, self.owner[row])
            self._row_of[child] = at
            self.topic_bundle[inside] = at
            self.share[at] = self.topic_share[inside].sum()


def make_bundles(
    namespaces: list[str],
    bundles_count: int,
    topics_count: int,
    rng: np.random.Generator,
    *,
    topic_spread: float = 1.2,
) -> tuple[Bundles, Ints, Floats]:
    """Namespaces of equal bundles, with topics of very different sizes; also the namespace and the weight of each bundle.

    ``topics_count`` is the number of topics of a namespace. ``topic_spread`` is the standard deviation of the logarithm of a topic's size.
    A bundle that no topic falls into gets one.
    """
    edges = NamespaceBundles.equal(bundles_count)
    ranges = [str(edges.range_of(row)) for row in range(bundles_count)]
    names: list[str] = []
    topics: list[str] = []
    positions: list[Ints] = []
    homes: list[Ints] = []
    weights: list[Floats] = []
    for namespace in namespaces:
        first = len(names)
        names += [f"{namespace}/{range_}" for range_ in ranges]
        own = [f"persistent://{namespace}/topic-{place}" for place in range(topics_count)]
        at = positions_of(own)
        rows = edges.rows_of(at)
        topics += own
        positions.append(at)
        homes.append(first + rows)
        weights.append(rng.lognormal(0.0, topic_spread, len(own)))
        for empty in sorted(set(range(bundles_count)) - set(rows.tolist())):
            topics.append(_topic_within(namespace, edges, empty))
            positions.append(positions_of(topics[-1:]))
            homes.append(np.array([first + empty], dtype=np.int64))
            weights.append(rng.lognormal(0.0, topic_spread, 1))
    home, weight = np.concatenate(homes), np.concatenate(weights)
    total = np.zeros(len(names)) + np.bincount(home, weights=weight, minlength=len(names))
    rows = np.arange(len(names), dtype=np.int64)
    bundles = Bundles(
        names=names,
        source=rows,
        share=np.ones(len(names)),
        owner=np.zeros(len(names), dtype=np.int64),
        topics=topics,
        position=np.concatenate(positions),
        topic_bundle=home,
        topic_share=weight / total[home],
    )
    return bundles, rows // bundles_count, total


def _topic_within(namespace: str, edges: NamespaceBundles, bundle: int) -> str:
    """A topic's name that falls into a bundle."""
    names = (f"persistent://{namespace}/small-{bundle}-{number}" for number in itertools.count())
    return next(name for name in names if int(edges.rows_of(positions_of([name]))[0]) == bundle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """A broker comes or goes."""

    at_s: float
    broker: int
    """Row of the broker. One that joins is empty; the bundles of one that leaves or dies are placed by Pulsar."""
    joins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """How brokers measure and report."""

    cpu_error_points: float = 1.5
    """Standard deviation of the error of a CPU reading."""
    cpu_error_s: float = 30.0
    """How long an error lasts."""
    spike_ratio: float = 1 / 60
    """Share of readings with a spike, such as a garbage collection causes."""
    spike_points: float = 25.0
    """Largest spike."""
    cpu_limit_ratio: float = 1.0
    """How many times the CPU that a broker takes for its limit the machine really has."""
    lost_ratio: float = 0.002
    """Share of reports that never arrive."""
    silent_ratio: float = 0.0
    """Share of minutes in which a broker does not answer."""
    late_ratio: float = 0.0
    """Share of reports that arrive late."""
    late_s: float = 90.0
    """Longest delay of a late report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What it takes to move a bundle."""

    order_s: float = 20.0
    """Longest time from a decision to the beginning of the move."""
    outage_s: float = 8.0
    """Longest time in which a bundle's clients are not served."""
    reconnect_ratio: float = 0.5
    """Extra CPU of a bundle at its new broker while clients come back, as a share of what it takes normally."""
    failed_ratio: float = 0.01
    """Share of moves that fail."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setup:
    """A fleet at its beginning, and what happens to it."""

    machines: Machines
    sources: Sources
    bundles: Bundles
    alive: Bools
    """Whether each broker is there at the beginning, (n,)."""
    hours: float
    happenings: tuple[Happening, ...] = ()
    disturbed_s: tuple[float, ...] = (0.0,)
    """When something happens that a balancer should answer."""
    measuring: Measuring = field(default_factory=Measuring)
    moving: Moving = field(default_factory=Moving)
    flapping: Bools | None = None
    """Sources whose bundles every second figure of their broker leaves out, (r,); None: none."""
    facts: Facts | None = None
    """What a collector finds out about the cluster besides its load."""
    other_balancer_s: float | None = None
    """How often another program moves the heaviest bundle of the busiest broker; None: there is none."""


Build = Callable[[np.random.Generator], Setup]
"""Makes a fleet; one that is recorded is the same for every seed."""
