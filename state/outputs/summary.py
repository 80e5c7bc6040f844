"""The summary of a round: what was seen, decided and held back, and what a Kafka cluster copies."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from state.events import System
from state.outputs.requests import ApprovalSummary, Configured, ControlInForce, MaintenanceSummary
from state.outputs.sections import (
    BrokerLoad,
    CandidateRow,
    ExaminedRow,
    Finding,
    InFlightRow,
    JudgedRow,
    KafkaBrokerLoad,
    PromisesSummary,
    Section,
    ShadowSummary,
    SplitRow,
    UsageSummary,
)
from state.settings import Mode


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
    where there are none. Tables of brokers have at most 100 rows, and lists are cut where the summary would be above 256 KiB."""
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
