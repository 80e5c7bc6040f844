"""The summary of a round."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from state.events import System
from state.outputs.effects import PromisesSummary, ShadowSummary, UsageSummary
from state.outputs.rows import (
    BrokerLoad,
    CandidateRow,
    ExaminedRow,
    InFlightRow,
    JudgedRow,
    Section,
    SplitRow,
)
from state.outputs.throttle import ThrottleSummary
from state.outputs.upkeep import ApprovalSummary, ControlInForce, UpkeepSummary
from state.settings import Mode

INFORMATION = frozenset({"coordinators-at-one-broker", "gaps-in-reports", "idle-broker", "no-results"})
"""Kinds of findings that ask nobody to act: they raise no alert."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that no action of trimtab can solve, or something that a person should know."""

    kind: Literal[
        "above-limit",
        "broken-copy",
        "coordinators-at-one-broker",
        "failed-promises",
        "forbidden",
        "gaps-in-reports",
        "hot-partition",
        "idle-broker",
        "ineffective",
        "kept-replica-down",
        "landed-elsewhere",
        "no-results",
        "nobody-obeys",
        "not-measured",
        "one-topic",
        "overlapping-ranges",
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
    """How the last actions that were judged ended, at most 10: `good`, `failed` or `ineffective`."""
    control: ControlInForce | None
    """The control event in force; null without one."""
    settings_digest: str
    """Hash of the decision settings in force; equal digests, equal settings."""
    settings: dict[str, Any] = {}
    """Decision settings in force that differ from the defaults, as a tree of their names below `pulsar` or `kafka`; left out
    where there are none."""
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
    upkeep: UpkeepSummary | None = None
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


def _named_values(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(tree.items()):
        if isinstance(value, Mapping):
            yield from _named_values(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value
