"""What a Kafka cluster's controller says: throttle actions, and the section of a round's summary about them."""

import msgspec


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.throttle.v1`: pace the reassignments of a cluster; what is not named stays."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """`reassignment-throttle`."""
    trigger: str
    """What called for it, e.g. `first-throttle`, `minimum-rose` or `finished`."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """Of each role, as in `leader:101`: bytes left, and seconds it then takes."""
    precondition: dict[str, str]
    """What must still hold: `reassignments` are `running`, or `none` of them; `planned` and `unknown` ask for nothing."""
    expires_at: str
    """RFC 3339; not to be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors obey none of `trimtab.actions.dry-run`."""
    add_leader_throttled_replicas: dict[str, str]
    """By topic, entries to add to `leader.replication.throttled.replicas`."""
    add_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    remove_leader_throttled_replicas: dict[str, str]
    """Entries of ours to remove; never anybody else's."""
    remove_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    leader_rate_bytes_per_s: dict[str, int]
    """By broker, `leader.replication.throttled.rate` as it shall be, 1 or more."""
    follower_rate_bytes_per_s: dict[str, int]
    """The same for followers."""
    clear_leader_rates: list[int]
    """Brokers whose rate is taken off: what was there before us comes back."""
    clear_follower_rates: list[int]
    """The same for followers."""
    leader_min_bytes_per_s: dict[str, int | None]
    """By broker that leads; a rate must be above it. Null: unknown; empty: nothing moves, or nobody said what."""
    follower_min_bytes_per_s: dict[str, int | None]
    """By broker that gains a replica."""
    eta_s: float | None
    """From the newest report; null: unknown, or never as it goes."""
    bottleneck: str | None
    """The role that is done last, as in `leader:101`."""
    fingerprint: str | None
    """Of what moves where, as `trimtab throttle plan` prints it; null: nothing moves, or nobody said what."""


class UnknownNumber(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that lacks what a minimum takes."""

    partition: str
    """Topic and partition."""
    lacks: list[str]
    """`write_bytes_per_s`, `log_size_bytes`."""
    why: str
    """For a person."""


class RateViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A role that can never finish."""

    role: str
    """As in `leader:101`."""
    rate_bytes_per_s: int
    """The most that it may have."""
    required_more_than_bytes_per_s: int
    """Its minimum."""


class ThrottleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The reassignments of a Kafka cluster in a round summary."""

    outcome: str
    """What was decided: `decided`, or why not: `nothing-moves`, `kept`, `resting`, `infeasible`, `unknown`, `stale`, `held`
    (paused, off, or a decision in flight)."""
    trigger: str | None
    """What called for a decision, held or not."""
    as_of: str
    """Time of the newest report, from which the ETA counts."""
    partitions_moving_count: int | None
    """Partitions that gain a replica; null: nobody said what moves."""
    fingerprint: str | None
    """Of what moves where."""
    differs_from_plan: bool
    """Whether that is another move than `planned_fingerprint` says."""
    bytes_left: int | None
    """Sum over all replicas that are added; null: unknown."""
    rates_bytes_per_s: dict[str, int]
    """Rates in force after this round, by role as in `leader:101`."""
    min_bytes_per_s: dict[str, int | None]
    """Of each role that has something to do; a rate must be above it."""
    feasible: bool | None
    """Whether it ends at these rates; null: unknown."""
    violations: list[RateViolation]
    """Roles that can never finish."""
    eta_s: float | None
    """Seconds until all is copied; null: unknown, or never as it goes."""
    eta_basis: str | None
    """`predicted` from rates, `observed` from progress, `blended` of both, the more of progress the longer it was seen;
    `not-catching-up`, `unknown`, or `done`."""
    eta_predicted_s: float | None
    """From rates alone."""
    eta_observed_low_s: float | None
    """What the quickest stretch of progress promises; with the next one, how sure it is."""
    eta_observed_high_s: float | None
    """What the slowest stretch promises."""
    bottleneck: str | None
    """The role that is done last."""
    late: bool
    """Whether it will miss the deadline."""
    held_over_count: int
    """Partitions whose write rate is one of a round before, because another broker leads or the log shrank; for at most
    `stale_rounds_count` rounds."""
    unknown_count: int
    """Partitions that lack a number."""
    unknown: list[UnknownNumber]
    """At most 100 of them."""
    others_leader_throttled_replicas: dict[str, str]
    """Entries that somebody else set on topics that move; kept."""
    others_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    others_rates_bytes_per_s: dict[str, int]
    """Rates that were found on brokers and are not ours, `leader:default` and `follower:default` being those of all brokers
    that have none; a rate of ours goes before them, and they come back afterwards."""
    lost_leader_throttled_replicas: dict[str, str]
    """Entries of ours that are needed and that somebody took off; they are added again once two rounds have seen it."""
    lost_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    changed_rates_bytes_per_s: dict[str, int | None]
    """Rates that somebody set in place of ours, which are kept until the rules ask for more; null: taken off, set again once
    two rounds have seen it."""
    failures_count: int
    """Decisions in a row that were not carried out."""
    retry_at: str | None
    """Nothing is decided before; null: the last decision was carried out."""
