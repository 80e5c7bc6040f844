"""What a cluster's controller says: actions and round summaries, as data with a canonical form.

Canonical: JSON in UTF-8 without white space, keys sorted. The id of an output is the hash of that form, so the same
decision has the same id and the same bytes wherever and whenever it is computed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

import msgspec

from state.events import System
from state.settings import Mode
from state.throttle_outputs import ThrottleSummary

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  naive on purpose: isoformat then leaves the offset to us
_MS = timedelta(milliseconds=1)
_FIRST_MS = (datetime(1, 1, 1) - _EPOCH) // _MS  # noqa: DTZ001  the calendar's, as naive as the epoch
_LAST_MS = (datetime(9999, 12, 31) - _EPOCH) // _MS  # noqa: DTZ001


class Unload(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.unload.v1`: move one bundle to another broker."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """The policy that wants it, e.g. `avg-shedder`."""
    trigger: str
    """Which of the policy's rules fired."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """Load of `source` and, where it is known, `destination` after it and the actions before it in the round."""
    precondition: dict[str, str]
    """What must still hold: `owner` of the bundle and its `range`."""
    expires_at: str
    """RFC 3339; not to be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors obey none of `trimtab.actions.dry-run`."""
    bundle: str
    """Full name of the bundle to move."""
    source_broker: str
    """Broker that owns it."""
    destination_broker: str | None
    """Broker to move it to; null where Pulsar's placement chooses."""
    proposal: bool | msgspec.UnsetType = msgspec.UNSET
    """True for one that waits for approval, on the topic of the dry-run; left out otherwise."""
    proposal_id: str | msgspec.UnsetType = msgspec.UNSET
    """Id of the proposal that was approved; left out where none was needed."""


class SplitChild(msgspec.Struct, frozen=True, kw_only=True):
    """What one child takes over, as the topic statistics of the round have it."""

    range: str
    """Its range."""
    topics_count: int | None
    """Topics; null where they are not known; so for the loads."""
    messages_per_s: float | None
    """Message rate in + out."""
    bytes_per_s: float | None
    """Throughput in + out."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.split.v1`: cut one bundle; it cannot be undone."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """`bundle-split`."""
    trigger: str
    """Which limit the bundle is above, or that it alone overloads its broker."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """Load of each child by its range; empty where topics are not known."""
    precondition: dict[str, str]
    """What must still hold: `owner` of the bundle and its `range`."""
    expires_at: str
    """RFC 3339; not to be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors obey none of `trimtab.actions.dry-run`."""
    bundle: str
    """Full name of the bundle to cut."""
    broker: str
    """Broker that owns it."""
    algorithm: str
    """The algorithm that found the boundaries."""
    boundaries: list[int]
    """Where to cut, ascending, strictly inside the range; Pulsar takes them as `specified_positions_divide`."""
    children: list[SplitChild]
    """One more than boundaries, ascending."""
    proposal: bool | msgspec.UnsetType = msgspec.UNSET
    """True for one that waits for approval, on the topic of the dry-run; left out otherwise."""
    proposal_id: str | msgspec.UnsetType = msgspec.UNSET
    """Id of the proposal that was approved; left out where none was needed."""


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One broker in a round summary."""

    broker: str
    """Broker id."""
    usage_points: float
    """Weighted maximum, 100 = the whole."""
    resources: dict[str, float | Literal["not-measured"]]
    """Percent of each resource."""
    messages_per_s: float
    """Message rate in + out."""
    bytes_per_s: float
    """Throughput in + out."""
    bundles_count: int
    """Bundles it owns, system bundles left out; 0 for an excluded broker."""
    excluded: bool
    """Whether it takes no part: excluded by the settings, under maintenance, or drained."""
    group: str | None
    """Isolation policy it is primary in; null: of the default group."""


class ExaminedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pair or broker the policy looked at."""

    high_broker: str
    """Broker that would shed."""
    low_broker: str | None
    """The broker it is compared with; null where it is with none."""
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
    """Why it is split or not, e.g. `one-topic`."""
    detail: str
    """The outcome with what caused it, e.g. `hit-count 3/4` or the topic that carries the load."""
    trigger: str
    """Which limit it is above, or that it alone overloads its broker."""
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
    outcome: Literal["good", "failed", "ineffective"]
    """How it ended."""
    brokers: dict[Literal["source", "destination"], str]
    """The brokers of an unload; no destination where Pulsar chose. Empty for a split."""
    before: dict[Literal["source", "destination"], BrokerTraffic]
    """Load of these brokers in the round that decided it."""
    expected: dict[Literal["source", "destination"], BrokerTraffic]
    """Load they should have now: that of then, moved by this and later unloads that were carried out. Empty where it failed."""
    seen: dict[Literal["source", "destination"], BrokerTraffic]
    """Load they report now; a broker that has not reported since the action's result is left out."""


class InFlightRow(msgspec.Struct, frozen=True, kw_only=True):
    """An action that was published and whose result has not come."""

    id: str
    """Id of the action."""
    kind: Literal["unload", "split", "throttle"]
    """What it does."""
    target: str
    """Full name of its bundle; `reassignments` of a throttle."""
    expires_at: str
    """RFC 3339; it is not carried out later."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that no action of ours can help."""

    kind: Literal[
        "failed-promises",
        "hot-partition",
        "ineffective",
        "landed-elsewhere",
        "put-back",
        "skipped-after-pause",
    ]
    """What it is."""
    subject: str
    """What it is about: the topic, the bundle of an action, the id of an action that was skipped, or the policy."""
    broker: str
    """Where it was seen; empty for an action that was skipped, and for failed promises."""
    bytes_per_s: float | None
    """Throughput in + out of a topic; null for an action."""
    advice: str
    """What a person can do."""


RowT = TypeVar("RowT")


class Section(msgspec.Struct, Generic[RowT], frozen=True, kw_only=True):
    """A sum that adds up: every row has one outcome; the heaviest are shown in full, the rest only counted."""

    count: int
    """How many there were."""
    outcomes: dict[str, int]
    """How many ended with each outcome; they add up to `count`."""
    heaviest: list[RowT]
    """At most 100 of them in full; fewer where the summary would exceed 256 KiB."""


class PromiseRow(msgspec.Struct, frozen=True, kw_only=True):
    """An unload whose move has settled, so that it shows whether it helped."""

    id: str
    """Id of the action."""
    bundle: str
    """Full name of its bundle."""
    brokers: dict[Literal["source", "destination"], str]
    """Its brokers; no destination where Pulsar chose."""
    before_points: dict[Literal["source", "destination"], float]
    """Their usage in the round that decided it."""
    expected_points: dict[Literal["source", "destination"], float]
    """The usage they should have now: that of then, changed by this and later unloads that were carried out."""
    seen_points: dict[Literal["source", "destination"], float]
    """The usage they have now."""
    outcome: Literal["kept", "failed"]
    """`kept`: they came at least half as much closer as they should have."""


class PromisesSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the unloads helped."""

    kept_count: int
    """Of the promises checked within the hour, of the last 10 judged unloads, those that were kept."""
    failed_count: int
    """The others."""
    expected_gain_points: float
    """By how much the more used of an unload's two brokers should have fallen, the mean of those."""
    gain_points: float
    """By how much it fell, their mean; below 0 where it rose."""
    error_points: float
    """How far from what was expected the brokers are, their mean."""
    checked: Section[PromiseRow]
    """Those that were checked in this round, in the order in which they were decided."""


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
    """The broker that has it."""
    counts_at: str
    """The broker at which its load counts."""


class ShadowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry-run counts as if its unloads had been carried out; everything else in the summary is as it was measured."""

    count: int
    """Bundles that count at another broker."""
    usage: UsageSummary
    """Usage of the brokers with these moves, as the policy saw it."""
    heaviest: list[ShadowRow]
    """The first 100 by name."""


class OtherBalancers(msgspec.Struct, frozen=True, kw_only=True):
    """Who else balances the cluster, as its collector found out."""

    shedding_brokers: list[str]
    """Brokers at which Pulsar's own shedding is on."""
    splitting_brokers: list[str]
    """Brokers at which Pulsar's own splitting of bundles is on."""
    unknown_brokers: list[str]
    """Brokers that could not be asked about one of the two."""


class SpellRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker or namespace under maintenance."""

    name: str
    """Broker id, or `tenant/namespace`."""
    since: str
    """When it was asked for."""
    until: str | None = None
    """When it ends by itself; left out where a person ends it."""
    who: str
    """Who asked for it."""
    why: str
    """For which reason."""


class DrainRow(SpellRow, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that is drained."""

    state: Literal["draining", "empty", "silent"]
    """`empty`: only Pulsar's own bundles are left, and it is as under maintenance; `silent`: it sent no report in the round."""
    bundles_at_start_count: int | None = None
    """Bundles it had in the first round of the drain; left out before its first report."""
    bundles_left_count: int | None = None
    """Bundles it has now; left out while it is silent."""


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


class UpkeepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What operators have taken out of balancing."""

    brokers: list[SpellRow]
    """Brokers under maintenance; at most 100, so for each of these lists."""
    namespaces: list[SpellRow]
    """Namespaces under maintenance."""
    drains: list[DrainRow]
    """Brokers that are drained."""
    left: Section[LeftRow]
    """Bundles that are still at drained brokers; those that do not leave in this round come first."""


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that waits for a person."""

    id: str
    """Its id, which an approval names."""
    kind: Literal["unload", "split"]
    """What it would do."""
    bundle: str
    """Full name of its bundle."""
    source: str
    """Owner of the bundle."""
    destination: str | None
    """Broker it would go to; null for a split, and where Pulsar chooses."""
    round: int
    """The round that proposed it."""
    expires_at: str
    """RFC 3339; it is dropped then."""


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word on a proposal, and what became of it."""

    id: str
    """Id of the event."""
    proposal_id: str
    """The proposal it names."""
    kind: Literal["unload", "split"] | None
    """What the proposal would do; null where no open one has this id."""
    verdict: Literal["approved", "rejected"]
    """What was said."""
    who: str
    """By whom."""
    why: str
    """For which reason."""
    outcome: str
    """`acted`: the action went out in this round; `rejected`; `unknown`: no open proposal has this id; or why an approved
    one did not go out. It is not open any more then."""
    detail: str
    """The outcome with its numbers."""
    action_id: str | None
    """Id of the action; null where none went out."""


class ApprovalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for approval and what was said of it."""

    open_count: int
    """Proposals that are open after the round, those of the round included."""
    open: list[ProposalRow]
    """The oldest of them; at most 100, so for each of these lists."""
    expired: list[str]
    """Ids of those that expired, or were dropped because no approval is required any more."""
    answers: list[ApprovalRow]
    """What persons have said since the round before, in the order of the log."""


class ControlInForce(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control event a round obeyed."""

    id: str
    """Its id."""
    time: str
    """Its time."""
    who: str
    """Who asked for it."""
    why: str
    """For which reason."""
    arrived_late: bool
    """Whether it came after the round it was meant for had closed."""
    resumed_at: str | None
    """When a person said that what made actions fail is mended; null: the event does not say."""
    problem: str | None
    """Why its settings are not in force, where they are not."""
    until: str | None = None
    """When its pause ends by itself; left out where it has no pause, or a person has to end it."""


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
    """Rounds before it that nobody reported in."""
    restarted: bool
    """Whether the cluster was silent for so long that hit counts, history and warm-up started again."""
    outcome: Literal["decided", "warm-up", "no-quorum", "internal-error"]
    """Whether the policies ran, or why not; `internal-error`: a fault of trimtab's, the round changed nothing."""
    reason: str
    """Why the policies did not run, or what they decided, in one sentence; of an error its class and place."""
    policy: str
    """The policy in force."""
    mode: Mode
    """The mode in force."""
    paused: bool
    """Whether a control event holds all actions."""
    failing_since: str | None
    """Since when all unloads are held because too many of the last ones failed, or three rounds in a row ended in an
    internal error; null: they are not."""
    splits_failing_since: str | None = None
    """The same for splits; left out while they are not."""
    other_balancers: OtherBalancers | None
    """Null where no collector said anything of it."""
    last_actions: dict[str, int]
    """How the last actions that were judged ended, at most 10: `good`, `failed` or `ineffective`."""
    control: ControlInForce | None
    """Null without one."""
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
    """Their names, at most 100; so for every list of names."""
    brokers_missing_count: int
    """Live brokers that did not report in the round."""
    brokers_missing: list[str]
    """Their names."""
    brokers_excluded: list[str]
    """Brokers in the snapshot that take no part in balancing: excluded by the settings, under maintenance, or drained."""
    brokers_asked: list[str]
    """Brokers the collector asked, from the round's newest tick."""
    brokers_failed: dict[str, str]
    """Brokers that did not answer the collector, to reason."""
    reports_used_count: int
    """Newest reports the snapshot is made of."""
    oldest_report_age_s: float
    """From the oldest report of the snapshot to the round's end."""
    usage: UsageSummary | None
    """Null where no broker takes part."""
    resources: dict[str, UsageSummary]
    """The same for each resource that at least one broker measured."""
    brokers: list[BrokerLoad]
    """The heaviest."""
    examined: Section[ExaminedRow]
    """Pairs or brokers the policy looked at."""
    candidates: Section[CandidateRow]
    """Bundles of those that fired."""
    splits: Section[SplitRow]
    """Bundles that stand out for a split."""
    judged: Section[JudgedRow] | None = None
    """Earlier actions whose effect became known in this round; left out where there is none."""
    promises: PromisesSummary | None = None
    """Whether the last unloads helped; left out where nothing was checked within the hour."""
    findings: Section[Finding]
    """What no action can help, by kind."""
    shadow: ShadowSummary | None = None
    """Bundles that a dry-run has moved and what the policy saw for it; left out where there is none."""
    upkeep: UpkeepSummary | None = None
    """What is under maintenance and drained; left out where nothing is."""
    approval: ApprovalSummary | None = None
    """Proposals and approvals; left out where no approval is required and nobody gave one."""
    actions_count: int
    """How many actions were decided."""
    actions: list[str]
    """Ids of the round's actions, in order."""
    in_flight: list[InFlightRow] = []
    """Actions whose result has not come, those of this round included; at most 100, left out where there are none."""
    throttle: ThrottleSummary | None
    """Reassignments of a Kafka cluster, whose tables of bundles are empty; null for Pulsar, and where nothing was judged."""

    def settings_by_name(self) -> dict[str, Any]:
        """The settings in force that differ from the defaults, by their names in ``trimtab.toml``, in order."""
        return dict(_named_values(self.settings, self.system))


def _named_values(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(tree.items()):
        if isinstance(value, Mapping):
            yield from _named_values(value, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", value


def canonical(data: Any) -> bytes:
    """Canonical JSON of a struct."""
    return msgspec.json.encode(data, order="sorted")


def content_id(data: bytes) -> str:
    """Id of an output: the first 128 bits of the SHA-256 of its canonical data, in hex."""
    return hashlib.sha256(data).hexdigest()[:32]


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One event to publish; ``data`` is canonical and already encoded."""

    kind: Literal["action", "round"]
    type: str
    subject: str
    cluster: str
    round: int
    place: int
    """Place in the round: actions in the policy's order, the summary last."""
    time_ms: int
    """End of the round."""
    id: str
    data: bytes
    dry_run: bool


def output(
    *,
    kind: Literal["action", "round"],
    type_: str,
    subject: str,
    cluster: str,
    number: int,
    place: int,
    time_ms: int,
    data: Any,
    dry_run: bool,
) -> Output:
    """An output of ``data``, encoded once."""
    encoded = canonical(data)
    return Output(
        kind=kind,
        type=type_,
        subject=subject,
        cluster=cluster,
        round=number,
        place=place,
        time_ms=time_ms,
        id=content_id(encoded),
        data=encoded,
        dry_run=dry_run,
    )


def rfc3339(time_ms: int) -> str:
    """UTC with milliseconds, e.g. ``2026-11-21T13:21:25.206Z``; what is outside the calendar is its first or last moment."""
    moment = _EPOCH + timedelta(milliseconds=min(max(time_ms, _FIRST_MS), _LAST_MS))
    return moment.isoformat(timespec="milliseconds") + "Z"
