"""What pacing sees in a round, remembers, decides and explains.

A ``Round`` knows needs, loads, list steps, the end at the rates in force, and how rates are made. Rates for what is not measured
now are made here, too: for brokers that join while reports are missing, and for a failover, when any source may lead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from policies.throttle.copies import RECOVERY, UNKNOWN, Copies
from policies.throttle.lists import ListSteps, ThrottledLists
from policies.throttle.needs import Needs, bytes_left, capped_needs_of
from policies.throttle.progress import BROKEN_END, UNKNOWN_END, Eta, Inflow, Watch, eta_of, extend_watch
from policies.throttle.rates import (
    NO_CAPS,
    BrokerRole,
    Caps,
    Load,
    RatePlan,
    RateRule,
    ThrottleSettings,
    fraction_of,
    loads_of,
    per_broker_plan,
    plan_at,
    uniform_plan,
)

Trigger = Literal[
    "first-throttle",
    "moves-joined",
    "throttle-lost",
    "minimum-rose",
    "deadline-at-risk",
    "headroom",
    "over-cap",
    "under-min-isr",
    "traffic-fell",
    "reports-back",
    "moves-left",
    "stale-reports",
    "finished",
]
"""Why something is decided. ``finished``: nothing is copied any more, whether completed or cancelled."""

Outcome = Literal["nothing-moves", "decided", "unchanged", "resting", "infeasible", "unknown", "stale"]
"""``unchanged``: the throttle is as it should be; ``resting``: it should change, but did so a moment ago; ``infeasible``: the
network leaves less than the minimum; ``unknown``: there is no throttle and not enough is known for one; ``stale``: reports
are missing and the throttle stays."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PacingSnapshot:
    """What is copied in a cluster at a round's end."""

    now_ms: int
    copies: Copies | None
    """What is copied or will be; None: no report of it came in this round."""
    lists: ThrottledLists = field(default_factory=ThrottledLists)
    """Throttled replicas on the cluster, ours included; without ``moves`` they mean nothing."""
    lost: ThrottledLists = field(default_factory=ThrottledLists)
    """Our entries that are needed and that somebody removed."""
    is_rate_lost: bool = False
    """Whether somebody removed a rate of ours."""
    caps: Caps = NO_CAPS
    """Caps by ``capacity.limits_of``."""
    room: Caps = NO_CAPS
    down: frozenset[int] = frozenset()
    """Brokers of the copies that are not alive."""
    is_planned: bool = False
    """Whether nothing of the copies has begun, so that a lower rate holds nothing up."""
    broken: frozenset[str] = frozenset()
    """Partitions of which a copy cannot go on before a broker is back (``broken_copies``)."""
    is_pressed: bool = False
    """Whether copies make room for a partition that nobody can write to."""
    disk_threads: Mapping[int, int] = field(default_factory=dict)
    """How many replicas a broker copies between its disks at once, as far as it is known."""

    @property
    def is_broken(self) -> bool:
        """Whether nobody knows the end, because a copy cannot go on."""
        return bool(self.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingMemory:
    """What is remembered about the throttle in force; plain values, to be stored."""

    begun_ms: int | None = None
    """When the move was first seen; None: nothing is throttled."""
    changed_ms: int = 0
    """When rates were decided last."""
    added: ThrottledLists = field(default_factory=ThrottledLists)
    """Exactly the entries that were added, because only these are removed later."""
    rates: Mapping[BrokerRole, int] = field(default_factory=dict)
    """Bytes/s that were set."""
    safe_mins: Mapping[BrokerRole, int] = field(default_factory=dict)
    """Failover-safe minimum of each role in the last round in which it was known; empty: none yet."""
    stale_rounds: int = 0
    is_fallback: bool = False
    """Whether the failover-safe rates are in force."""
    watch: Watch = field(default_factory=Watch)
    inflow: Inflow = field(default_factory=Inflow)
    recovers: bool = False
    """Whether a recovery is among what is throttled."""
    first_rate_bytes_per_s: int = 0
    """The largest rate of the first plan of this move."""

    @property
    def is_active(self) -> bool:
        """Whether a throttle of ours is in force."""
        return self.begun_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleDecision:
    """What is to be changed on the cluster; everything not named stays."""

    trigger: Trigger
    add: ThrottledLists = field(default_factory=ThrottledLists)
    """Entries to add."""
    remove: ThrottledLists = field(default_factory=ThrottledLists)
    """Entries of ours to remove."""
    set_rates: Mapping[BrokerRole, int] = field(default_factory=dict)
    """All rates as they should be, 1 byte/s or more each."""
    clear_rates: tuple[BrokerRole, ...] = ()
    """Our rates to remove, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingExplanation:
    """Why something was decided, or why nothing was."""

    outcome: Outcome
    wanted_trigger: Trigger | None = None
    """What would be decided, were it not for ``outcome``."""
    needs: Needs | None = None
    """None: nothing moves, or no report of it came."""
    plan: RatePlan | None = None
    """What follows from the rates in force after this round; where it is infeasible, from the wanted rates."""
    eta: Eta | None = None
    unfit: tuple[str, ...] = ()
    """Partitions that are left without a throttle: none that their brokers are declared to carry would let them end."""


def stretch_rates(rates: Mapping[BrokerRole, int], lists: ListSteps) -> dict[BrokerRole, int]:
    """The same rates; brokers that join get the highest of their kind, because it is not known what they need."""
    return {**{role: highest_like(role, rates) for role in lists.roles()}, **rates}


def highest_like(role: BrokerRole, rates: Mapping[BrokerRole, int | None]) -> int:
    """The highest rate of disks for a disk, and of the network for others; of all, where there is none of its kind."""
    known = {other: rate for other, rate in rates.items() if rate is not None}
    alike = [rate for other, rate in known.items() if other.is_disk == role.is_disk]
    return max(alike or known.values(), default=0)


def fallback_rates(
    memory: PacingMemory, settings: ThrottleSettings, rates: Mapping[BrokerRole, int]
) -> dict[BrokerRole, int]:
    """Rates for the failover-safe minimums; no cap, because the network is not measured now."""
    rule = RateRule(
        headroom_ratio=fraction_of(settings.headroom_ratio), floor_bytes_per_s=settings.floor_bytes_per_s
    )
    loads = safe_loads(memory)
    if settings.rates == "per-broker":
        return {role: rate for role, rate in per_broker_plan(loads, rule).rates.items() if rate is not None}
    plan = uniform_plan(loads, rule)
    if plan.rate_bytes_per_s is None or not loads:
        return {}
    return {
        role: plan.plan.rates.get(role) or rate if role.is_disk else plan.rate_bytes_per_s
        for role, rate in rates.items()
    }


def safe_loads(memory: PacingMemory) -> tuple[Load, ...]:
    """What each role has to do if any source may lead."""
    return tuple(
        Load(role=role, bytes_left=None, min_bytes_per_s=minimum)
        for role, minimum in memory.safe_mins.items()
    )


def safe_minimums(memory: PacingMemory, needs: Needs) -> dict[BrokerRole, int]:
    """Failover-safe minimums; what a role needed before a partition of it lost its leader, or its write rate was lost, still counts."""
    now, before = needs.failover_safe_min_bytes_per_s, memory.safe_mins
    known = {role: before.get(role) if need is None else need for role, need in now.items()}
    least = before if needs.without_leader else {}
    return {role: max(need, least.get(role, 0)) for role, need in known.items() if need is not None}


_MS_PER_S = 1000
_DEADLINE_INFLOWS = 4
"""A raise for the deadline asks for at most so many times what a broker was seen to carry. Two doublings: enough for a first rate
that was far too low, and what it leads to is measured before the next one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A round in which it is known of some partitions at least what a minimum is made of."""

    snapshot: PacingSnapshot
    memory: PacingMemory
    settings: ThrottleSettings
    needs: Needs
    loads: tuple[Load, ...]
    known_loads: tuple[Load, ...]
    """``loads`` without the partitions that have no leader or whose write rate is unknown, and without the bytes of copies that are broken
    or whose bytes are unknown; rates are computed from these loads."""
    can_go_on: bool
    """Whether a copy is not broken."""
    lists: ListSteps
    eta: Eta
    """The end of the move at the rates in force."""

    @classmethod
    def observe(
        cls,
        snapshot: PacingSnapshot,
        memory: PacingMemory,
        settings: ThrottleSettings,
        copies: Copies,
        needs: Needs,
    ) -> "Round":
        loads = loads_of(needs)
        in_force = plan_in_force(memory.rates, loads) if memory.is_active else None
        recovers = memory.recovers or bool((copies.kind == RECOVERY).any())
        memory = replace(
            memory,
            recovers=recovers,
            safe_mins=safe_minimums(memory, needs),
            stale_rounds=memory.stale_rounds if needs.lacks_minimums else 0,
            watch=Watch()
            if snapshot.is_broken
            else extend_watch(
                memory.watch,
                at_ms=snapshot.now_ms,
                loads=loads,
                plan=in_force,
                is_changed=False,
            ),
            inflow=memory.inflow.measure(copies, at_ms=snapshot.now_ms),
        )
        lists = ListSteps.from_lists(
            snapshot.lists, memory.added, copies, lost=snapshot.lost, down=snapshot.down
        )
        whole = copies
        if snapshot.is_broken:
            whole = copies.take(
                np.array([name not in snapshot.broken for name in copies.names()], dtype=np.bool_)
            )
        return cls(
            snapshot=snapshot,
            memory=memory,
            settings=settings,
            needs=needs,
            loads=loads,
            known_loads=loads
            if needs.is_whole and not snapshot.is_broken and None not in needs.bytes_left.values()
            else _known_loads(copies, whole, loads, snapshot.disk_threads),
            can_go_on=len(whole) > 0,
            lists=lists,
            eta=eta_in(snapshot, memory.watch, in_force, loads),
        )

    @property
    def left_ms(self) -> float | None:
        """Milliseconds until the deadline; None without one, or when it has passed."""
        if self.settings.deadline_s == 0:
            return None
        begun_ms = self.snapshot.now_ms if self.memory.begun_ms is None else self.memory.begun_ms
        left_ms = begun_ms + self.settings.deadline_s * _MS_PER_S - self.snapshot.now_ms
        return left_ms if left_ms > 0 else None

    @property
    def frees_leaders(self) -> bool:
        """Whether entries of leaders are to go, so that a partition that nobody can write to gets its replicas back."""
        return self.snapshot.is_pressed and bool(self.lists.remove.leader)

    @property
    def is_resting(self) -> bool:
        """Whether a change that can wait has to wait."""
        return self.snapshot.now_ms - self.memory.changed_ms < self.settings.min_change_interval_s * _MS_PER_S

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether a follower falls behind although each rate is above its minimum: another rate does not help it, say, on a full disk."""
        rates = self.memory.rates
        return (
            self.needs.is_whole
            and len(stalled_followers(self.eta)) > 0
            and all(
                load.role not in rates or rates[load.role] > (load.min_bytes_per_s or 0)
                for load in self.loads
            )
        )

    def rule(self) -> RateRule:
        """How rates are made in this round: of minimums alone while every copy is broken, or others need the room.

        No deadline asks for more where something else than the throttle holds a copy.
        """
        is_least = not self.can_go_on or self.snapshot.is_pressed
        left_ms = None if is_least or self.is_held_elsewhere else self.left_ms
        most = max(
            self.memory.first_rate_bytes_per_s, _DEADLINE_INFLOWS * self.memory.inflow.largest_bytes_per_s
        )
        return RateRule(
            headroom_ratio=fraction_of(self.settings.headroom_ratio),
            floor_bytes_per_s=self.settings.floor_bytes_per_s,
            deadline_s=None if left_ms is None else Fraction(left_ms) / _MS_PER_S,
            deadline_most_bytes_per_s=most if self.memory.is_active else None,
            caps=self.snapshot.caps,
            room=NO_CAPS if is_least else self.snapshot.room,
        )


def known_copies(copies: Copies) -> Copies:
    """The partitions with a leader and a known write rate."""
    return copies.take(copies.is_led() & (copies.write_bytes_per_s != UNKNOWN))


def _known_loads(
    copies: Copies, whole: Copies, loads: tuple[Load, ...], disk_threads: Mapping[int, int]
) -> tuple[Load, ...]:
    """Roles that only other partitions need have nothing to do as far as is known, but their caps count; ``whole`` are not broken."""
    told = whole.take_copies(bytes_left(whole, counts_whole_logs=False) != UNKNOWN)
    minimums, left = (
        capped_needs_of(known_copies(each), disk_threads=disk_threads) for each in (copies, told)
    )
    return tuple(
        Load(
            role=load.role,
            bytes_left=left.bytes_left.get(load.role, 0),
            min_bytes_per_s=minimums.min_bytes_per_s.get(load.role, 0),
        )
        for load in loads
    )


def eta_in(snapshot: PacingSnapshot, watch: Watch, plan: RatePlan | None, loads: tuple[Load, ...]) -> Eta:
    """The end as a round sees it; unknown where bytes are: it gave no sample, and earlier ones do not show all that is left."""
    if snapshot.is_broken:
        return BROKEN_END
    return UNKNOWN_END if any(load.bytes_left is None for load in loads) else eta_of(watch, plan)


def explain(
    snapshot: PacingSnapshot,
    memory: PacingMemory,
    needs: Needs,
    outcome: Outcome,
    trigger: Trigger | None,
    plan: RatePlan | None = None,
) -> PacingExplanation:
    """Why a round decides, or does not; without a ``plan``, with what follows from the rates in force."""
    loads = loads_of(needs)
    plan = plan_in_force(memory.rates, loads) if plan is None else plan
    if not needs.is_whole and plan.feasible:  # it is not known what they will need
        plan = replace(plan, feasible=None)
    if snapshot.is_broken:
        plan = replace(plan, total_s=None, bottleneck=None)
    return PacingExplanation(
        outcome=outcome,
        wanted_trigger=trigger,
        needs=needs,
        plan=plan,
        eta=eta_in(snapshot, memory.watch, plan, loads),
    )


def stalled_followers(eta: Eta) -> list[BrokerRole]:
    """Those that lack as much as before, or more, where progress was observed; on disks, replicas that wait for a thread grow meanwhile."""
    if eta.basis != "not-catching-up":
        return []
    return [role for role, slope in eta.slopes_bytes_per_s.items() if slope <= 0 and role.role == "follower"]


def are_in_force(rates: Mapping[BrokerRole, int], before: Mapping[BrokerRole, int]) -> bool:
    """Whether each of the rates was in force before; others may have gone."""
    return rates.items() <= before.items()


def plan_in_force(rates: Mapping[BrokerRole, int], loads: tuple[Load, ...]) -> RatePlan:
    """What follows from the rates that are set."""
    return plan_at({load.role: rates.get(load.role) for load in loads}, loads)
