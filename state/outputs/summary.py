"""The summary of a round with all of its tables and sections, and a Kafka cluster's throttle actions.

It shows usage, what the policy looked at, how earlier unloads changed the cluster, and what people asked for: maintenance,
drains, approvals and the control event in force.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from state.events import System
from state.guard_settings import Approval
from state.settings import Mode

RowT = TypeVar("RowT")


class Section(msgspec.Struct, Generic[RowT], frozen=True, kw_only=True):
    """Rows with one outcome each, so that the counts add up; the heaviest are shown in full, the rest are only counted."""

    count: int
    """How many there were."""
    outcomes: dict[str, int]
    """How many ended with each outcome; they add up to `count`."""
    heaviest: list[RowT]
    """At most 100 of them in full; fewer where the summary would exceed 256 KiB."""


class PromiseRow(msgspec.Struct, frozen=True, kw_only=True):
    """An unload whose move has settled, so that the reports show whether it helped."""

    id: str
    """Id of the action."""
    bundle: str
    """Full name of its bundle."""
    brokers: dict[Literal["source", "destination"], str]
    """Its brokers; no destination where Pulsar chose."""
    before_points: dict[Literal["source", "destination"], float]
    """Their usage in the round that decided it."""
    expected_points: dict[Literal["source", "destination"], float]
    """The usage they should have now: the usage before, changed by this and later unloads that were carried out."""
    seen_points: dict[Literal["source", "destination"], float]
    """The usage they have now."""
    outcome: Literal["kept", "failed"]
    """`kept`: their usages came closer by at least half as much as they should have."""


class PromisesSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the unloads helped."""

    kept_count: int
    """How many promises were kept, of those of the last 10 judged unloads that were checked within the last hour."""
    failed_count: int
    """Promises among these that were not kept."""
    expected_gain_points: float
    """By how much the higher usage of an unload's two brokers should have fallen; the mean over these promises."""
    gain_points: float
    """By how much it fell; the mean over these promises, below 0 where it rose."""
    error_points: float
    """How far the usage of the broker that was predicted worse is from its expected usage; the mean over these promises."""
    checked: Section[PromiseRow]
    """Unloads whose promises were checked in this round, in the order in which they were decided."""


class UsageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the brokers that were averaged, in percentage points."""

    mean_points: float
    """Arithmetic mean."""
    max_points: float
    """Highest."""
    stdev_points: float
    """Standard deviation of the population."""


class ShadowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that the dry-run has moved."""

    bundle: str
    """Its full name."""
    broker: str
    """The broker that really has it."""
    shadow_broker: str
    """The broker at which its load counts."""


class ShadowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry-run counts as if its unloads had been carried out; everything else in the summary is as it was measured."""

    count: int
    """Bundles that count at another broker."""
    usage: UsageSummary
    """Usage of the brokers with these moves, as the policy saw it."""
    heaviest: list[ShadowRow]
    """The first 100 by name."""


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One broker in a round summary."""

    broker: str
    """Broker id."""
    usage_points: float
    """Usage: the largest of the weighted resource percentages, 100 = fully used."""
    resources: dict[str, float | Literal["not-measured"]]
    """Percent of each resource."""
    messages_per_s: float
    """Message rate in + out."""
    bytes_per_s: float
    """Throughput in + out."""
    in_messages_per_s: float | None = None
    """How much of the message rate comes in, by the rates of its bundles; left out where they show no traffic."""
    in_bytes_per_s: float | None = None
    """The same of the throughput."""
    bundles_count: int
    """Bundles it owns, system bundles left out."""
    resting_count: int = 0
    """How many of them rest after an action (`cooldown`, `not-confirmed`)."""
    excluded: bool
    """Whether it takes no part: excluded by the settings, under maintenance, or drained."""
    group: str | None
    """Isolation policy it is primary in; null: the default group."""
    gives_none_reason: str | None = None
    """Why balancing moves no bundle away from it now, for a person; left out where nothing but a hold of the whole round would keep it."""
    receives_none_reason: str | None = None
    """Why balancing moves no bundle to it now, for a person; left out likewise."""


class KafkaBrokerLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One broker of a Kafka cluster in a round summary, as far as its reports say; what is left out is not known."""

    broker: str
    """Broker id."""
    usage_points: float | None = None
    """Traffic in or out, whichever is more, of the network capacity that `[kafka.capacity]` declares, 100 = fully used."""
    in_bytes_per_s: int | None = None
    """Network traffic in."""
    out_bytes_per_s: int | None = None
    """Network traffic out."""
    leading_count: int | None = None
    """Partitions it leads of those of which something is copied, or will be."""
    gaining_count: int | None = None
    """Copies that it gets: replicas that it gains, brings up to date, or moves between its disks."""


class ExaminedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pair or broker the policy looked at."""

    high_broker: str
    """Broker that would shed."""
    low_broker: str | None
    """The broker it is compared with; null where there is none, itself for the one in the middle of an odd number (avg-shedder)."""
    group: str | None
    """Isolation policy of both; null: the default group. Brokers are only compared within their group."""
    outcome: str
    """Why it fired or not, e.g. `below-threshold`."""
    detail: str
    """The outcome with its numbers, e.g. `hit-count 3/8`."""
    trigger: str
    """Which of the policy's rules it is judged by; empty for none."""
    evidence: dict[str, float | int]
    """The numbers it was judged on, units in their names."""


class CandidateRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle of a broker that fired."""

    bundle: str
    """Full name."""
    broker: str
    """Its owner."""
    outcome: str
    """Why it is moved or not, e.g. `too-big`."""
    detail: str
    """The outcome with what caused it, e.g. which budget is spent."""
    messages_per_s: float
    """Averaged message rate in + out."""
    bytes_per_s: float
    """Averaged throughput in + out."""


class SplitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that stands out for a split."""

    bundle: str
    """Full name."""
    broker: str
    """Its owner."""
    outcome: str
    """Why it is split or not, e.g. `dominant-topic`."""
    detail: str
    """The outcome with what caused it, e.g. `hit-count 3/4` or the topic that carries the load."""
    trigger: str
    """Which limit it is above, or in which measure it puts its broker above average."""
    evidence: dict[str, float | int]
    """The numbers it was judged on, units in their names."""


class BrokerTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a broker."""

    messages_per_s: float
    """Message rate in + out."""
    bytes_per_s: float
    """Throughput in + out."""


class JudgedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An action whose effect became known."""

    id: str
    """Id of the action."""
    kind: Literal["unload", "split"]
    """What it did."""
    bundle: str
    """Full name of its bundle."""
    outcome: Literal["effective", "failed", "ineffective"]
    """How it ended."""
    brokers: dict[Literal["source", "destination"], str]
    """The brokers of an unload; no destination where Pulsar chose. Empty for a split."""
    before: dict[Literal["source", "destination"], BrokerTraffic]
    """Load of these brokers in the round that decided it."""
    expected: dict[Literal["source", "destination"], BrokerTraffic]
    """Load they should have now: the load before, changed by this and later unloads that were carried out. Empty for a failed one."""
    seen: dict[Literal["source", "destination"], BrokerTraffic]
    """Load they report now; a broker that has not reported since the action's result is left out."""


class InFlightRow(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was published and whose result has not come."""

    id: str
    """Id of the action."""
    kind: Literal["unload", "split", "throttle"]
    """What it does."""
    target: str
    """Full name of its bundle; `reassignments` for a throttle."""
    expires_at: str
    """RFC 3339; it is not carried out later."""


class MaintenanceRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker or namespace under maintenance."""

    name: str
    """Broker id, or `tenant/namespace`."""
    bundles_count: int | None = None
    """Bundles of the namespace that brokers report; left out for a broker."""
    since: str
    """When it was asked for."""
    until: str | None = None
    """When it ends by itself; left out where a person ends it."""
    who: str
    """Who asked for it."""
    why: str
    """The reason."""


class DrainRow(MaintenanceRow, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that is drained."""

    state: Literal["draining", "only-system-bundles", "empty", "silent"]
    """`only-system-bundles`: empty but for bundles of `pulsar/system`, which serve the whole cluster, such as transaction coordinators;
    its heartbeats do not count, because they end with it. `silent`: it sent no report in the round. In the middle two it is treated
    as under maintenance."""
    bundles_at_start_count: int | None = None
    """Bundles it had in the first round of the drain; left out before its first report."""
    bundles_left_count: int | None = None
    """Bundles it has now, Pulsar's own left out; left out while it is silent."""
    system_bundles_count: int | None = None
    """Bundles of `pulsar/system` that it has now; left out while it is silent."""
    system_bundles: list[str] = []
    """Their full names, at most 100."""


class LeftRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that is still at a drained broker."""

    bundle: str
    """Its full name."""
    broker: str
    """The drained broker."""
    outcome: str
    """`acted`: it is told to leave in this round; or why it stays."""
    detail: str
    """The outcome with its numbers."""
    messages_per_s: float
    """Average message rate in + out."""
    bytes_per_s: float
    """Average throughput in + out."""


class MaintenanceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What operators have taken out of balancing."""

    brokers: list[MaintenanceRow]
    """Brokers under maintenance; at most 100, as in each of these lists."""
    namespaces: list[MaintenanceRow]
    """Namespaces under maintenance."""
    drains: list[DrainRow]
    """Brokers that are drained."""
    bundles_left: Section[LeftRow]
    """Bundles that are still at drained brokers; those that do not leave in this round come first."""


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that waits for a person."""

    id: str
    """Its id, which an approval names."""
    kind: Literal["unload", "split"]
    """What it would do."""
    bundle: str
    """Full name of its bundle."""
    source_broker: str
    """Owner of the bundle."""
    destination_broker: str | None
    """Broker it would go to; null for a split, and where Pulsar chooses."""
    round: int
    """The round that proposed it."""
    expires_at: str
    """RFC 3339; the proposal is dropped then."""


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to a proposal, and what became of it."""

    id: str
    """Id of the event."""
    proposal_id: str
    """The proposal it names."""
    kind: Literal["unload", "split"] | None
    """What the proposal would do; null where no open proposal has this id."""
    verdict: Literal["approved", "rejected"]
    """The answer."""
    who: str
    """Who gave it."""
    why: str
    """The reason."""
    outcome: str
    """`acted`: the action went out in this round; `rejected`; `unknown`: no open proposal has this id; or why an
    approved action did not go out. The proposal is no longer open in any of these cases."""
    detail: str
    """The outcome with its numbers."""
    action_id: str | None
    """Id of the action; null where none went out."""


class ApprovalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for approval, and which answers came."""

    open_count: int
    """Proposals that are open after the round, those of the round included."""
    open: list[ProposalRow]
    """The oldest of them; at most 100, as in each of these lists."""
    expired: list[str]
    """Ids of proposals that expired, or were dropped because no approval is required any more."""
    answers: list[ApprovalRow]
    """Answers that came since the previous round, in the order of the log."""


class ControlInForce(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control event a round obeyed."""

    id: str
    """Its id."""
    time: str
    """Its time."""
    who: str
    """Who asked for it."""
    why: str
    """The reason."""
    arrived_late: bool
    """Whether it came after the round it was meant for had closed."""
    resumed_at: str | None
    """When a person said that the cause of failing actions is repaired; null: the event does not say so."""
    problem: str | None
    """Why its settings are not in force; null where they are."""
    until: str | None = None
    """When its pause ends by itself; left out where it has no pause, or a person has to end it."""
    settings: dict[str, Any] | None = {}
    """The settings that it lays over those of the file, as a tree of their names; left out where it has none, null above 32 KiB."""


class Configured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the controller is configured with, by its settings file, environment and flags: what holds without a control event."""

    mode: Mode
    """Its `controller.mode`."""
    approval: Approval
    """Its `controller.approval`."""
    settings_digest: str
    """Hash of its decision settings for the cluster."""
    settings: dict[str, Any] | None = {}
    """Those that differ from the defaults, as a tree of their names below `pulsar` or `kafka`, with every broker of a table; left out
    where there are none, null above 32 KiB."""


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.throttle.v1`: pace what a cluster copies; settings that it does not name stay."""

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
    """What must still hold: `reassignments` is `running` (something is copied) or `none` (nothing is reassigned); `planned` and
    `unknown` require nothing."""
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
    disk_rate_bytes_per_s: dict[str, int]
    """By broker, the `replica.alter.log.dirs.io.max.bytes.per.second` to set, 1 or more."""
    clear_disk_rates: list[int]
    """Brokers whose rate for moves between disks is taken off: the rate that was there before ours comes back."""
    leader_min_bytes_per_s: dict[str, int | None]
    """By broker that leads, the minimum that its rate must be above. Null: unknown; empty: nothing moves, or no report says what
    moves."""
    follower_min_bytes_per_s: dict[str, int | None]
    """The same by broker that fetches."""
    disk_min_bytes_per_s: dict[str, int | None]
    """The same by broker that copies between its disks."""
    copies: dict[str, int]
    """Number of copies by kind: `reassignment`, `recovery`, `disk`; without those of which there are none."""
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
            self.disk_rate_bytes_per_s,
            self.clear_disk_rates,
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
    min_bytes_per_s: int
    """Its minimum, which the rate must be above."""


class ThrottleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a Kafka cluster copies, in a round summary."""

    outcome: str
    """`decided`, or why nothing was decided: `nothing-moves`, `unchanged`, `resting`, `infeasible`, `unknown`, `stale`, `held`
    (paused, failing, off, retrying or too large; the round's `reason` says which)."""
    trigger: str | None
    """What called for a decision, whether it was held or not."""
    as_of: str
    """Time of the newest report, from which the ETA counts."""
    partitions_moving_count: int | None
    """Partitions of which something is copied; null: no report says what."""
    copies: dict[str, int] = {}
    """Number of copies by kind: `reassignment`, `recovery`, `disk`; without those of which there are none."""
    recovering: dict[str, str | None] = {}
    """Brokers that come back or will, by id, each with the time of its return; null: it is still away, so its copies are planned."""
    under_min_isr: list[str] = []
    """Partitions that nobody can write to with `acks=all`, for which other copies make room; the first 100."""
    planned: bool = False
    """Whether all is only planned, and nothing is copied yet: the ETA is what it would take."""
    fingerprint: str | None
    """Fingerprint of what moves where."""
    differs_from_plan: bool
    """Whether this is another move than that of `planned_fingerprint`."""
    bytes_left: int | None
    """Sum over all copies; null: unknown."""
    rates_bytes_per_s: dict[str, int]
    """Rates after this round, by role as in `leader:101`; in dry-run, what they would be."""
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
    `stale_after_rounds` rounds."""
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


INFORMATION = frozenset({"coordinators-at-one-broker", "gaps-in-reports", "idle-broker", "no-results"})
"""Kinds of findings that ask nobody to act: they raise no alert."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that no action of trimtab can solve, or something that a person should know."""

    kind: Literal[
        "above-limit",
        "broken-copy",
        "coordinators-at-one-broker",
        "dominant-topic",
        "forbidden",
        "gaps-in-reports",
        "hot-partition",
        "idle-broker",
        "ineffective",
        "kept-replica-down",
        "landed-elsewhere",
        "no-results",
        "not-carried-out",
        "not-measured",
        "overlapping-ranges",
        "promises-failed",
        "put-back",
        "skipped-after-pause",
        "unowned",
    ]
    """What it is."""
    subject: str
    """What it is about: the topic, the bundle of an action, the id of an action that was skipped, the policy, the resource or
    resources, the partitions that move and need a broker that is down, the broker, or the cluster; empty for many bundles at once."""
    broker: str
    """Where it was seen, or which broker is down; empty where it is about no single broker."""
    bytes_per_s: float | None
    """Throughput in + out of a topic; null for an action."""
    advice: str
    """What a person can do."""


class OtherBalancers(msgspec.Struct, frozen=True, kw_only=True):
    """Other balancers that are on in the cluster, as its collector found out."""

    shedding_brokers: list[str]
    """Brokers at which Pulsar's own shedding is on."""
    splitting_brokers: list[str]
    """Brokers at which Pulsar's own splitting of bundles is on."""
    unknown_brokers: list[str]
    """Brokers that could not be asked about one of the two."""


class RoundSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`data` of a `trimtab.round.v1`: what was seen, decided, held back, and why."""

    cluster: str
    """Cluster, as in the envelope."""
    system: System
    """What kind of cluster it is."""
    round: int
    """Its number: start divided by `length_s`."""
    start: str
    """First moment of the round."""
    end: str
    """First moment after it."""
    gap_rounds: int
    """Rounds just before it in which no report came."""
    restarted: bool
    """Whether the cluster was silent for so long that hit counts, history and warm-up started again."""
    outcome: Literal["decided", "warm-up", "no-quorum", "internal-error"]
    """Whether the policies ran, or why not; `internal-error`: a fault in trimtab; the round changed nothing."""
    reason: str
    """Why the policies did not run, or what they decided, in one sentence; for an internal error, its class and place."""
    policy: str
    """The policy in force."""
    mode: Mode
    """The mode in force."""
    paused: bool
    """Whether a control event holds all actions."""
    failing_since: str | None
    """Since when all unloads are held because too many of the last ones failed, or three rounds in a row ended in an
    internal error; null: they are not held."""
    splits_failing_since: str | None = None
    """The same for splits; left out while they are not held."""
    other_balancers: OtherBalancers | None
    """Other balancers of the cluster; null where no collector reported on them."""
    last_actions: dict[str, int]
    """How the last actions that were judged ended, at most 10: `effective`, `failed` or `ineffective`."""
    control: ControlInForce | None
    """The control event in force; null without one."""
    settings_digest: str
    """Hash of the decision settings in force; equal digests, equal settings."""
    settings: dict[str, Any] = {}
    """Decision settings in force that differ from the defaults, as a tree of their names below `pulsar` or `kafka`; left out
    where there are none."""
    configured: Configured | None = None
    """What the controller is configured with, whatever the control event says."""
    brokers_reporting_count: int
    """Brokers in the snapshot."""
    brokers_live_count: int
    """Brokers whose newest report is young enough to count for the quorum; one under maintenance counts while it reports."""
    brokers_reporting: list[str]
    """Their names, at most 100, as in every list of names."""
    brokers_missing_count: int
    """Live brokers that did not report in the round."""
    brokers_missing: list[str]
    """Their names."""
    brokers_excluded: list[str]
    """Brokers in the snapshot that take no part in balancing: excluded by the settings, under maintenance, or drained."""
    brokers_asked: list[str]
    """Brokers the collector asked, from the round's newest tick."""
    brokers_failed: dict[str, str]
    """Brokers that did not answer the collector, each with the reason."""
    reports_used_count: int
    """Reports that the snapshot is made of, the newest of each broker."""
    oldest_report_age_s: float
    """Seconds from the oldest report of the snapshot to the round's end."""
    usage: UsageSummary | None
    """Usage of the brokers that take part in balancing; null where there is none."""
    resources: dict[str, UsageSummary]
    """The same for each resource that at least one broker measured."""
    brokers: list[BrokerLoad]
    """The brokers with the highest usage, at most 100."""
    kafka_brokers: list[KafkaBrokerLoad] = []
    """The brokers of a Kafka cluster with the most traffic, at most 100; left out where none reported."""
    examined: Section[ExaminedRow]
    """Pairs or brokers the policy looked at."""
    candidates: Section[CandidateRow]
    """Bundles of the brokers that fired."""
    splits: Section[SplitRow]
    """Bundles that stand out for a split."""
    judged: Section[JudgedRow] | None = None
    """Earlier actions whose effect became known in this round; left out where there is none."""
    promises: PromisesSummary | None = None
    """Whether the last unloads helped; left out where nothing was checked within the hour."""
    findings: Section[Finding]
    """Problems that no action can solve, by kind."""
    shadow: ShadowSummary | None = None
    """Bundles that a dry-run has moved, and the usage that the policy saw with these moves; left out where there is none."""
    maintenance: MaintenanceSummary | None = None
    """What is under maintenance and drained; left out where nothing is."""
    approval: ApprovalSummary | None = None
    """Proposals and answers; left out where no approval is required, no answer came and no proposal was dropped."""
    actions_count: int
    """How many actions were decided."""
    actions: list[str]
    """Ids of the round's actions, in order."""
    in_flight: list[InFlightRow] = []
    """Actions whose result has not come, those of this round included; at most 100, left out where there are none."""
    throttle: ThrottleSummary | None
    """Reassignments of a Kafka cluster, whose tables of bundles are empty; null for Pulsar, and where nothing was judged."""

    def identity(self) -> tuple[object, ...]:
        """See ``Identified``: a round has one summary."""
        return ()

    def settings_by_name(self) -> dict[str, Any]:
        """The settings in force that differ from the defaults, by their names in ``trimtab.toml``, in order."""
        return dict(_named_values(self.settings, self.system))

    def configured_by_name(self) -> dict[str, Any] | None:
        """Those that the controller is configured with and that differ from the defaults; None where the summary does not show them."""
        configured = None if self.configured is None else self.configured.settings
        return None if configured is None else dict(_named_values(configured, self.system))

    def overlay_by_name(self) -> dict[str, Any]:
        """Those of the control event; empty where they are not in force, or not shown."""
        overlay = None if self.control is None or self.control.problem else self.control.settings
        return dict(_named_values((overlay or {}).get(self.system, {}), self.system))


def _named_values(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(tree.items()):
        if isinstance(value, Mapping):
            yield from _named_values(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value
