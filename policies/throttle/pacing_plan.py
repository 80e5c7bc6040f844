"""What pacing sees in a round, remembers, decides and explains."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policies.throttle.lists import ThrottledLists
from policies.throttle.moves import Moves
from policies.throttle.needs import Needs
from policies.throttle.progress import Eta, Inflow, Watch
from policies.throttle.rates import NO_CAPS, BrokerRole, Caps, RatePlan, rates_by_role

Trigger = Literal[
    "first-throttle",
    "moves-joined",
    "throttle-lost",
    "minimum-rose",
    "deadline-at-risk",
    "headroom",
    "over-cap",
    "reports-back",
    "moves-left",
    "stale-reports",
    "finished",
]
"""Why something is decided. ``finished``: nothing moves any more, whether completed or cancelled."""

Outcome = Literal["nothing-moves", "decided", "kept", "resting", "infeasible", "unknown", "stale"]
"""``kept``: the throttle is as it should be; ``resting``: it should change, but did so a moment ago; ``infeasible``: the
network leaves less than the minimum; ``unknown``: there is no throttle and not enough is known for one; ``stale``: reports
are missing and the throttle stays."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PacingSnapshot:
    """One cluster's reassignments at a round's end."""

    now_ms: int
    moves: Moves | None
    """What moves or is planned to; None: no report of it came in this round."""
    lists: ThrottledLists = field(default_factory=ThrottledLists)
    """Throttled replicas on the cluster, ours included; without ``moves`` they mean nothing."""
    lost: ThrottledLists = field(default_factory=ThrottledLists)
    """Our entries that are needed and that somebody removed."""
    is_rate_lost: bool = False
    """Whether somebody removed a rate of ours."""
    caps: Caps = NO_CAPS
    """Caps by ``network_limits``."""
    room: Caps = NO_CAPS
    planned_fingerprint: str | None = None
    """Fingerprint of the plan that somebody made; None: there is none."""
    down: frozenset[int] = frozenset()
    """Brokers of the move that are not alive."""
    is_broken: bool = False
    """Whether a copy cannot go on before a broker is back (``broken_copies``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingMemory:
    """What is remembered about the throttle in force; plain values, to be stored."""

    begun_ms: int | None = None
    """When the move was first seen; None: nothing is throttled."""
    changed_ms: int = 0
    """When rates were decided last."""
    added: ThrottledLists = field(default_factory=ThrottledLists)
    """Exactly the entries that were added, because only these are removed later."""
    leader_rates: Mapping[int, int] = field(default_factory=dict)
    """Bytes/s that were set, by broker."""
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    safe_leader_mins: Mapping[int, int] = field(default_factory=dict)
    """Failover-safe minimums of the last round in which everything was known; empty: none yet."""
    safe_follower_mins: Mapping[int, int] = field(default_factory=dict)
    stale_rounds: int = 0
    is_fallback: bool = False
    """Whether the failover-safe rates are in force."""
    differs_from_plan: bool = False
    watch: Watch = field(default_factory=Watch)
    inflow: Inflow = field(default_factory=Inflow)
    first_rate_bytes_per_s: int = 0
    """The largest rate of the first plan of this move."""

    @property
    def is_active(self) -> bool:
        """Whether a throttle of ours is in force."""
        return self.begun_ms is not None

    def rates(self) -> dict[BrokerRole, int]:
        """Rates in force by role."""
        return rates_by_role(self.leader_rates, self.follower_rates)


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
    differs_from_plan: bool = False
