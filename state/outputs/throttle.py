"""What a Kafka cluster's controller publishes: throttle actions, and the section of a round's summary about them."""

import msgspec


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.throttle.v1`: pace the reassignments of a cluster; settings that it does not name stay."""

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
    """By role, as in `leader:101`: bytes left to copy, and the seconds needed for that at these rates."""
    precondition: dict[str, str]
    """What must still hold: `reassignments` is `running` (some run) or `none` (none runs); `planned` and `unknown` require nothing."""
    expires_at: str
    """RFC 3339; it must not be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors carry out no action of `trimtab.actions.dry-run`."""
    add_leader_throttled_replicas: dict[str, str]
    """By topic, entries to add to `leader.replication.throttled.replicas`."""
    add_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    remove_leader_throttled_replicas: dict[str, str]
    """Entries to remove; only those that trimtab added, never those of others."""
    remove_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    leader_rate_bytes_per_s: dict[str, int]
    """By broker, the `leader.replication.throttled.rate` to set, 1 or more."""
    follower_rate_bytes_per_s: dict[str, int]
    """The same for followers."""
    clear_leader_rates: list[int]
    """Brokers whose rate is taken off: the rate that was there before ours comes back."""
    clear_follower_rates: list[int]
    """The same for followers."""
    leader_min_bytes_per_s: dict[str, int | None]
    """By broker that leads, the minimum that its rate must be above. Null: unknown; empty: nothing moves, or no report says what
    moves."""
    follower_min_bytes_per_s: dict[str, int | None]
    """The same by broker that gains a replica."""
    eta_s: float | None
    """Seconds from the newest report until all is copied; null: unknown, or never at the present pace."""
    bottleneck: str | None
    """The role that finishes last, as in `leader:101`."""
    fingerprint: str | None
    """Fingerprint of what moves where, as `trimtab throttle plan` prints it; null: nothing moves, or no report says what moves."""

    def identity(self) -> tuple[object, ...]:
        """See ``Identified``."""
        return (
            self.precondition,
            self.dry_run,
            self.add_leader_throttled_replicas,
            self.add_follower_throttled_replicas,
            self.remove_leader_throttled_replicas,
            self.remove_follower_throttled_replicas,
            self.leader_rate_bytes_per_s,
            self.follower_rate_bytes_per_s,
            self.clear_leader_rates,
            self.clear_follower_rates,
        )


class UnknownNumber(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that lacks a number that a minimum needs."""

    partition: str
    """Topic and partition."""
    lacks: list[str]
    """The missing numbers: `write_bytes_per_s`, `log_size_bytes` or both."""
    why: str
    """The reason, for a person."""


class RateViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A role that can never finish."""

    role: str
    """The role, as in `leader:101`."""
    rate_bytes_per_s: int
    """The highest rate that it may have."""
    required_more_than_bytes_per_s: int
    """Its minimum, which the rate must be above."""


class ThrottleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The reassignments of a Kafka cluster in a round summary."""

    outcome: str
    """`decided`, or why nothing was decided: `nothing-moves`, `kept`, `resting`, `infeasible`, `unknown`, `stale`, `held`
    (paused, failing, off, retrying or too large; the round's `reason` says which)."""
    trigger: str | None
    """What called for a decision, whether it was held or not."""
    as_of: str
    """Time of the newest report, from which the ETA counts."""
    partitions_moving_count: int | None
    """Partitions that gain a replica; null: no report says what moves."""
    fingerprint: str | None
    """Fingerprint of what moves where."""
    differs_from_plan: bool
    """Whether this is another move than that of `planned_fingerprint`."""
    bytes_left: int | None
    """Sum over all replicas that are added; null: unknown."""
    rates_bytes_per_s: dict[str, int]
    """Rates in force after this round, by role as in `leader:101`."""
    min_bytes_per_s: dict[str, int | None]
    """The minimum of each role that has something to do; its rate must be above it."""
    feasible: bool | None
    """Whether the reassignments end at these rates; null: unknown."""
    violations: list[RateViolation]
    """Roles that can never finish."""
    eta_s: float | None
    """Seconds until all is copied; null: unknown, or never at the present pace."""
    eta_basis: str | None
    """`predicted` from rates, `observed` from progress, `blended` from both, where progress counts more the longer it was seen;
    `not-catching-up`, `broken` (see `broken_count`), `unknown`, or `done`."""
    eta_predicted_s: float | None
    """Seconds until all is copied, predicted from rates alone."""
    eta_observed_low_s: float | None
    """Seconds until all is copied at the pace of the quickest stretch of progress; with the next field it shows how sure the ETA is."""
    eta_observed_high_s: float | None
    """The same at the pace of the slowest stretch."""
    bottleneck: str | None
    """The role that finishes last."""
    late: bool
    """Whether the reassignments will miss the deadline, or do not catch up. Once they are late, only observed progress ends it, not the
    prediction that a raise begins with."""
    broken_count: int | None
    """Partitions whose copy cannot go on before a broker is back: it gains the replica, or nothing else is left to copy from. While
    there are any, there is no ETA, and only minimums raise rates. Null: no report says what moves."""
    held_over_count: int
    """Partitions whose write rate is from an earlier round, because another broker leads or the log shrank; for at most
    `stale_rounds_count` rounds."""
    unknown_count: int
    """Partitions that lack a number."""
    unknown: list[UnknownNumber]
    """At most 100 of them."""
    others_leader_throttled_replicas: dict[str, str]
    """Entries that somebody else set on topics that move; they are kept."""
    others_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    others_rates_bytes_per_s: dict[str, int]
    """Rates that were found on brokers and are not ours; `leader:default` and `follower:default` are those of all brokers without
    a rate of their own. A rate of ours takes precedence over them, and they come back afterwards."""
    lost_leader_throttled_replicas: dict[str, str]
    """Entries of ours that are needed and that somebody took off; they are added again once two rounds have shown that."""
    lost_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    changed_rates_bytes_per_s: dict[str, int | None]
    """Rates that somebody set in place of ours, which are kept until the rules require a higher rate; null: the rate was taken
    off, and is set again once two rounds have shown that."""
    failures_count: int
    """Decisions in a row that were not carried out."""
    retry_at: str | None
    """Nothing is decided before this time; null: the last decision was carried out."""
