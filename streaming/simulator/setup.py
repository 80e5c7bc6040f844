"""What a simulated fleet is made of: everything that a scenario decides."""

from dataclasses import dataclass, field
from typing import Literal

from policies.columns import Bools
from state.facts import Facts
from streaming.simulator.bundles import Bundles
from streaming.simulator.machines import Machines
from streaming.simulator.traffic import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """A broker comes or goes."""

    at_s: float
    kind: Literal["join", "leave", "die"]
    broker: int
    """Row of the broker. One that comes is empty; the bundles of one that goes are placed by Pulsar."""


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
