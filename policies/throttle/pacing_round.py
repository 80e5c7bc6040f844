"""What pacing knows in one round: needs, loads, list steps, the end at the rates in force, and how rates are made."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from policies.throttle.failover_rates import safe_minimums
from policies.throttle.moves import UNKNOWN, Moves
from policies.throttle.needs import Needs, capped_needs_of
from policies.throttle.pacing_lists import ListSteps
from policies.throttle.pacing_plan import PacingMemory, PacingSnapshot
from policies.throttle.progress import BROKEN_END, UNKNOWN_END, Eta, Watch, eta_of, extend_watch
from policies.throttle.rates import (
    NO_CAPS,
    BrokerRole,
    Load,
    RatePlan,
    RateRule,
    fraction_of,
    loads_of,
    plan_at,
)
from policies.throttle.settings import ThrottleSettings

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
    """``loads`` without the partitions that have no leader or whose write rate is unknown; rates are computed from these loads."""
    lists: ListSteps
    eta: Eta
    """The end of the move at the rates in force."""

    @classmethod
    def of(
        cls,
        snapshot: PacingSnapshot,
        memory: PacingMemory,
        settings: ThrottleSettings,
        moves: Moves,
        needs: Needs,
    ) -> "Round":
        loads = loads_of(needs)
        in_force = plan_in_force(memory.rates(), loads) if memory.is_active else None
        safe_leader_mins, safe_follower_mins = safe_minimums(memory, needs)
        memory = replace(
            memory,
            safe_leader_mins=safe_leader_mins,
            safe_follower_mins=safe_follower_mins,
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
            inflow=memory.inflow.measure(moves, at_ms=snapshot.now_ms),
        )
        lists = ListSteps.of(snapshot.lists, memory.added, moves, lost=snapshot.lost, down=snapshot.down)
        return cls(
            snapshot=snapshot,
            memory=replace(memory, differs_from_plan=_differs(snapshot, memory, moves, lists)),
            settings=settings,
            needs=needs,
            loads=loads,
            known_loads=loads if needs.is_whole else _known_loads(moves, loads),
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
    def is_resting(self) -> bool:
        """Whether a change that can wait has to wait."""
        return self.snapshot.now_ms - self.memory.changed_ms < self.settings.min_change_interval_s * _MS_PER_S

    def rule(self) -> RateRule:
        """How rates are made in this round; while a copy is broken, of minimums alone."""
        left_ms = None if self.snapshot.is_broken else self.left_ms
        knows_sizes = all(load.bytes_left is not None for load in self.known_loads)
        most = max(
            self.memory.first_rate_bytes_per_s, _DEADLINE_INFLOWS * self.memory.inflow.largest_bytes_per_s
        )
        return RateRule(
            headroom_ratio=fraction_of(self.settings.headroom_ratio),
            floor_bytes_per_s=self.settings.floor_bytes_per_s,
            deadline_s=Fraction(left_ms) / _MS_PER_S if left_ms is not None and knows_sizes else None,
            deadline_most_bytes_per_s=most if self.memory.is_active else None,
            caps=self.snapshot.caps,
            room=NO_CAPS if self.snapshot.is_broken else self.snapshot.room,
        )


def known_moves(moves: Moves) -> Moves:
    """The partitions with a leader and a known write rate."""
    return moves.take(moves.is_led() & (moves.write_bytes_per_s != UNKNOWN))


def _known_loads(moves: Moves, loads: tuple[Load, ...]) -> tuple[Load, ...]:
    """Roles that only other partitions need have nothing to do as far as is known, but their caps count."""
    known = {load.role: load for load in loads_of(capped_needs_of(known_moves(moves)))}
    return tuple(
        known.get(load.role, Load(role=load.role, bytes_left=0, min_bytes_per_s=0)) for load in loads
    )


def eta_in(snapshot: PacingSnapshot, watch: Watch, plan: RatePlan | None, loads: tuple[Load, ...]) -> Eta:
    """The end as a round sees it; unknown where bytes are: it gave no sample, and earlier ones do not show all that is left."""
    if snapshot.is_broken:
        return BROKEN_END
    return UNKNOWN_END if any(load.bytes_left is None for load in loads) else eta_of(watch, plan)


def plan_in_force(rates: Mapping[BrokerRole, int], loads: tuple[Load, ...]) -> RatePlan:
    """What follows from the rates that are set."""
    return plan_at({load.role: rates.get(load.role) for load in loads}, loads)


def _differs(snapshot: PacingSnapshot, memory: PacingMemory, moves: Moves, lists: ListSteps) -> bool:
    """Whether what moves is not what was planned: at first by the fingerprint, later by whether moves joined."""
    if snapshot.planned_fingerprint is None:
        return False
    if memory.is_active:
        return memory.differs_from_plan or lists.is_joined
    return moves.fingerprint() != snapshot.planned_fingerprint
