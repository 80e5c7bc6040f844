"""The rate to use, whether a move can ever finish at it, and how long that takes.

A role of a broker finishes in bytes left ÷ (rate - minimum), and only if its rate is above its minimum. That is an
estimate: at the start the quota window is full of credit, and disks, retention and restarts lengthen a move. One rate for
all brokers (*uniform*) is quicker than each broker's own minimum plus headroom, which leaves every broker its headroom only.
Rates are whole numbers, because Kafka takes no others; durations are unrounded quotients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from policies.bounds import Count, NotNegative, check_bounds
from policies.throttle.copies import LARGEST_NUMBER
from policies.throttle.needs import Needs
from policies.throttle.roles import BrokerRole

MIB = 1048576

_RatioAboveZero = Annotated[float, Gt(0), Le(1)]
_Cap = Annotated[int, Ge(1), Le(LARGEST_NUMBER), "1 or more, or unset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most that a rate may be; None: no limit."""

    default_bytes_per_s: int | None = None
    roles: Mapping[BrokerRole, int] = field(default_factory=dict)
    """Caps that differ from the default, bytes/s."""

    def cap_of(self, role: BrokerRole) -> int | None:
        """The cap of one role of one broker."""
        return self.roles.get(role, self.default_bytes_per_s)


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRule:
    """How a rate is made from a minimum."""

    headroom_ratio: Fraction = Fraction(1, 5)
    """A rate is at least minimum * (1 + this)."""
    floor_bytes_per_s: int = MIB
    """A rate is at least this; Kafka's own advice, because a fetch overshoots by up to as much."""
    deadline_s: Fraction | None = None
    """The move has to be done within this time: a rate is at least minimum + bytes left ÷ deadline."""
    deadline_most_bytes_per_s: int | None = None
    """The most that the deadline may ask for where no cap says how much there is; None: no limit. A minimum may ask for more."""
    caps: Caps = NO_CAPS
    """They override all of the above; with a cap at or below the minimum nothing ever finishes."""
    room: Caps = NO_CAPS
    """What the network has free: a rate goes up to it even if less would be enough; None: it does not."""
    fixed_bytes_per_s: int | None = None
    """This rate and no other."""

    def is_in_time(self, total_s: float | None, *, ends: bool | None) -> bool | None:
        """Whether copies that take so long keep the deadline; None if that is unknown, or there is none."""
        if self.deadline_s is None or ends is None or (ends and total_s is None):
            return None
        if total_s is None:
            return False
        return total_s <= self.deadline_s or total_s == float(self.deadline_s)  # the quotient was rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one role of one broker has to do; None is unknown."""

    role: BrokerRole
    bytes_left: int | None
    min_bytes_per_s: int | None
    known_bytes_left: int = 0
    """The part of unknown bytes that is known."""
    known_min_bytes_per_s: int | None = None
    """The part of an unknown minimum that is known; None: no part of it is."""

    @property
    def least_bytes_left(self) -> int:
        """What is left at least."""
        return self.known_bytes_left if self.bytes_left is None else self.bytes_left

    @property
    def least_min_bytes_per_s(self) -> int | None:
        """What the minimum is at least; None if nothing is known of it."""
        return self.known_min_bytes_per_s if self.min_bytes_per_s is None else self.min_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A role that can never finish at its rate."""

    role: BrokerRole
    rate_bytes_per_s: int
    min_bytes_per_s: int
    """Where a write rate is unknown, what the minimum is at least."""

    @property
    def deficit_bytes_per_s(self) -> int:
        """How far the rate is below the minimum; it must be above it."""
        return self.min_bytes_per_s - self.rate_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePlan:
    """Rates with what follows from them."""

    rates: Mapping[BrokerRole, int | None]
    """In the order of ``ROLES``, ids ascending; made of what is known, None where that is nothing."""
    feasible: bool | None
    """None: unknown, and no violation is known."""
    violations: tuple[Violation, ...]
    durations_s: Mapping[BrokerRole, float | None]
    """Duration of each role that finishes, in the order of ``rates``; None: unknown."""
    total_s: float | None
    """The longest of them; None when infeasible or unknown."""
    bottleneck: BrokerRole | None
    """The role that takes that long; if there are several, a leader first, then the smallest id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPlan:
    """One rate for all brokers as leaders and as followers; disks get what each of them needs."""

    min_bytes_per_s: int | None
    """The largest minimum of a leader or follower."""
    rate_bytes_per_s: int | None
    plan: RatePlan


def loads_of(needs: Needs, known: Needs | None = None) -> tuple[Load, ...]:
    """Every role of every broker, in the order of ``ROLES``, ids ascending; ``known`` is the part of ``needs`` that is known."""
    known = needs if known is None else known
    return tuple(
        Load(
            role=role,
            bytes_left=needs.bytes_left.get(role, 0),
            min_bytes_per_s=minimum,
            known_bytes_left=known.bytes_left.get(role) or 0,
            known_min_bytes_per_s=known.min_bytes_per_s.get(role),
        )
        for role, minimum in needs.min_bytes_per_s.items()
    )


def uniform_plan(loads: tuple[Load, ...], rule: RateRule) -> UniformPlan:
    """The largest of what each role needs, at most the smallest of their caps and the largest number Kafka takes."""
    shared = [load for load in loads if not load.role.is_disk]
    wanted = [rate for load in shared if (rate := _wanted_rate(load, rule)) is not None]
    caps = [cap for load in shared if (cap := rule.caps.cap_of(load.role)) is not None]
    rate = rule.fixed_bytes_per_s
    if rate is None and (wanted or not shared):
        rooms = [rule.room.cap_of(load.role) or 0 for load in shared]
        rate = min([max([*wanted, rule.floor_bytes_per_s, min(rooms, default=0)]), LARGEST_NUMBER, *caps])
    rates = {load.role: _own_rate(load, rule) if load.role.is_disk else rate for load in loads}
    return UniformPlan(
        min_bytes_per_s=_largest(load.min_bytes_per_s for load in shared),
        rate_bytes_per_s=rate,
        plan=plan_at(rates, loads),
    )


def per_broker_plan(loads: tuple[Load, ...], rule: RateRule) -> RatePlan:
    """A rate for each role: what it needs, at most its cap."""
    return plan_at({load.role: _own_rate(load, rule) for load in loads}, loads)


def share_cluster(
    rates: Mapping[BrokerRole, int], loads: Iterable[Load], cluster_bytes_per_s: int | None
) -> dict[BrokerRole, int]:
    """The rates with those of followers lowered so far that they are within the cluster's together.

    Each gets its minimum and a part of the rest by its bytes left, so that all are done at the same time. Where the minimums alone are
    too much each gets no more than its minimum, with which nothing ends.
    """
    shared = [load for load in loads if load.role.role == "follower" and load.role in rates]
    if cluster_bytes_per_s is None or sum(rates[load.role] for load in shared) <= cluster_bytes_per_s:
        return dict(rates)
    spare = max(cluster_bytes_per_s - sum(load.min_bytes_per_s or 0 for load in shared), 0)
    parts = {load.role: load.bytes_left or 1 for load in shared}
    whole = sum(parts.values())
    lowered = {
        load.role: max((load.min_bytes_per_s or 0) + spare * parts[load.role] // whole, 1) for load in shared
    }
    return {role: min(rate, lowered.get(role, rate)) for role, rate in rates.items()}


def plan_at(rates: Mapping[BrokerRole, int | None], loads: Iterable[Load]) -> RatePlan:
    """What follows from given rates; every load's role must have one."""
    loads = tuple(loads)
    violations = tuple(
        violation for load in loads if (violation := _violation(load, rates[load.role])) is not None
    )
    failing = {violation.role for violation in violations}
    durations = {load.role: _duration_s(load, rates[load.role]) for load in loads if load.role not in failing}
    is_known = all(rates[load.role] is not None and load.min_bytes_per_s is not None for load in loads)
    total_s, bottleneck = _longest(durations) if not violations and is_known else (None, None)
    return RatePlan(
        rates=dict(rates),
        feasible=False if violations else True if is_known else None,
        violations=violations,
        durations_s=durations,
        total_s=total_s,
        bottleneck=bottleneck,
    )


def least_time_s(rates: Mapping[BrokerRole, int | None], loads: Iterable[Load]) -> float | None:
    """How long copies take at least, by all that is known of them; None if they never end."""
    known = [
        Load(
            role=load.role,
            bytes_left=load.least_bytes_left,
            min_bytes_per_s=load.least_min_bytes_per_s or 0,
        )
        for load in loads
        if rates[load.role] is not None
    ]
    return plan_at(rates, known).total_s


def ceil_ratio(value: int, ratio: Fraction) -> int:
    """``value * ratio`` rounded up, in integers."""
    return -(-value * ratio.numerator // ratio.denominator)


def fraction_of(ratio: float) -> Fraction:
    """The decimal number a person wrote: 0.2 is one fifth, and 1.2 * 3 then 3.6."""
    return Fraction(repr(ratio))


def _wanted_rate(load: Load, rule: RateRule) -> int | None:
    """The rate that a role needs by what is known of it, before floor and cap; None if nothing is."""
    minimum = load.least_min_bytes_per_s
    if minimum is None:
        return None
    wanted = ceil_ratio(minimum, 1 + rule.headroom_ratio)
    if rule.deadline_s is None:
        return wanted
    in_time = minimum + ceil_ratio(load.least_bytes_left, 1 / rule.deadline_s)
    if rule.deadline_most_bytes_per_s is not None and rule.caps.cap_of(load.role) is None:
        in_time = min(in_time, rule.deadline_most_bytes_per_s)
    return max(wanted, in_time)


def _own_rate(load: Load, rule: RateRule) -> int | None:
    if rule.fixed_bytes_per_s is not None:
        return rule.fixed_bytes_per_s
    wanted, cap = _wanted_rate(load, rule), rule.caps.cap_of(load.role)
    if wanted is None:
        return None
    rate = max(wanted, rule.floor_bytes_per_s, rule.room.cap_of(load.role) or 0)
    return min(rate, LARGEST_NUMBER) if cap is None else min(rate, LARGEST_NUMBER, cap)


def _violation(load: Load, rate: int | None) -> Violation | None:
    """A role without bytes to move is done, whatever its rate; if the bytes are unknown, there may be some."""
    minimum = load.least_min_bytes_per_s
    if rate is None or minimum is None or load.bytes_left == 0 or rate > minimum:
        return None
    return Violation(role=load.role, rate_bytes_per_s=rate, min_bytes_per_s=minimum)


def _duration_s(load: Load, rate: int | None) -> float | None:
    if load.bytes_left == 0:
        return 0.0
    if load.bytes_left is None or load.min_bytes_per_s is None or rate is None:
        return None
    return load.bytes_left / (rate - load.min_bytes_per_s)


def _longest(durations: Mapping[BrokerRole, float | None]) -> tuple[float | None, BrokerRole | None]:
    if not durations:
        return 0.0, None
    known = {role: seconds for role, seconds in durations.items() if seconds is not None}
    if len(known) < len(durations):
        return None, None
    bottleneck = max(
        known, key=lambda role: known[role]
    )  # the first of equals: leaders come first, then by id
    return known[bottleneck], bottleneck


def _largest(values: Iterable[int | None]) -> int | None:
    """The largest value; 0 if there are none, None if one is unknown."""
    largest = 0
    for value in values:
        if value is None:
            return None
        largest = max(largest, value)
    return largest


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """Which rate copies get, and when it is changed."""

    enabled: bool = True
    """Whether throttles are decided. Off: copies are watched, and nothing is decided about them."""
    reassignments: bool = True
    """Whether reassignments are throttled. Off: they are left out, and what trimtab has set for them is taken off."""
    recoveries: bool = True
    """Whether brokers that come back after a while are: their replicas fetch all that they missed."""
    disks: bool = True
    """Whether moves between the disks of a broker are."""
    recovery_after_s: NotNegative = 300.0
    """How long a broker has to be away until its return is a recovery: a rolling restart changes no topic's settings. Where trimtab
    sees a replica behind at its first look, it does not know since when, and takes the broker for one that was away long enough."""
    recovery_min_bytes: Annotated[int, Ge(0), Le(LARGEST_NUMBER), "0 or more"] = 100 * 10**6
    """What a broker that is back has to miss at least, all its replicas together. As long as it is away, this is not known."""
    yield_under_min_isr: bool = True
    """Whether other copies make room while a partition has fewer in-sync replicas than ``min.insync.replicas``, so that nobody can
    write to it: its missing replicas leave the lists, and everything else runs at its minimum with headroom."""
    cluster_bytes_per_s: _Cap | None = None
    """The most that all brokers together may receive; unset = no limit. Where the minimums are above it, copy less at a time."""
    rates: Literal["uniform", "per-broker"] = "uniform"
    """``uniform``: one rate for every broker and both roles, which is quicker; ``per-broker``: each gets what it needs, for
    fleets whose brokers differ much."""
    headroom_ratio: Annotated[float, Gt(0), Le(100)] = 0.2
    """How far a rate is above the minimum: with 0.2, a fifth. At 0 nothing would ever finish."""
    floor_bytes_per_s: Annotated[int, Ge(1), Le(LARGEST_NUMBER), "1 or more"] = MIB
    """No rate is below it, unless a declared capacity leaves less. A fetch passes whole, one in ten seconds whatever the rate, so
    set a tenth of the brokers' ``replica.fetch.response.max.bytes`` where that is above 10 MiB. Kafka: the advice for
    ``leader.replication.throttled.rate``."""
    deadline_s: NotNegative = 0.0
    """Time within which copies must be done, from when the newest of them begins; 0: no deadline."""
    raise_at_ratio: _RatioAboveZero = 0.9
    """The rate is raised when a minimum is above this share of it, because the leader moved or traffic grew. If the
    minimum reached the rate, the move would never end."""
    change_threshold_ratio: NotNegative = 0.2
    """A rate is changed only by at least this share of it: every change is a write to every broker of the move."""
    min_change_interval_s: NotNegative = 60.0
    """Shortest time between two changes, unless the minimum or a new move demands one at once. Kafka's quota window is 10 s."""
    stale_after_rounds: Count = 3
    """Rounds in a row without the reports that a minimum needs, after which the failover-safe rate is set: high enough
    whichever source leads. It is never zero and never below what is known to be needed."""
    network_share_ratio: _RatioAboveZero = 0.9
    """Share of a broker's declared network capacity up to which replication may fill it, beside all other traffic."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if fraction_of(self.raise_at_ratio) * (1 + fraction_of(self.headroom_ratio)) <= 1:
            raise ValueError(
                f"raise_at_ratio is {self.raise_at_ratio}; it must be above 1 / (1 + headroom_ratio {self.headroom_ratio}), "
                f"or a rate just set would be raised again"
            )
