"""What a round's summary says in tables: usage, what the policy looked at, what became of earlier actions, and findings."""

from typing import Generic, Literal, TypeVar

import msgspec

RowT = TypeVar("RowT")


class Section(msgspec.Struct, Generic[RowT], frozen=True, kw_only=True):
    """Rows with one outcome each, so that the counts add up; the heaviest are shown in full, the rest are only counted."""

    count: int
    """How many there were."""
    outcomes: dict[str, int]
    """How many ended with each outcome; they add up to `count`."""
    heaviest: list[RowT]
    """At most 100 of them in full; fewer where the summary would exceed 256 KiB."""


class UsageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the brokers that were averaged, in percentage points."""

    mean_points: float
    """Arithmetic mean."""
    max_points: float
    """Highest."""
    stdev_points: float
    """Standard deviation of the population."""


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


INFORMATION = frozenset(
    {"coordinators-at-one-broker", "gaps-in-reports", "idle-broker", "no-results", "uneven-bytes"}
)
"""Kinds of findings that ask nobody to act: they raise no alert."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that no action of trimtab can solve, or something that a person should know."""

    kind: Literal[
        "above-limit",
        "broken-copy",
        "coordinators-at-one-broker",
        "copy-stalled",
        "dominant-topic",
        "every-broker-hot",
        "forbidden",
        "gaps-in-reports",
        "hot-partition",
        "idle-broker",
        "ineffective",
        "kept-replica-down",
        "landed-elsewhere",
        "listed-twice",
        "no-results",
        "not-carried-out",
        "not-measured",
        "overlapping-ranges",
        "promises-failed",
        "put-back",
        "skipped-after-pause",
        "uneven-bytes",
        "unowned",
    ]
    """What it is."""
    subject: str
    """What it is about: the topic, the bundle of an action, the id of an action that was skipped, the resource or
    resources, the partitions that move and need a broker that is down or copies nothing, the broker, the isolation group, or the cluster; empty for many bundles at once."""
    broker: str
    """Where it was seen, or which broker is down or copies nothing; empty where it is about no single broker."""
    bytes_per_s: float | None
    """Throughput in + out of a topic; null for an action."""
    advice: str
    """What a person can do."""
