"""Tables of a round's summary: brokers, what the policy looked at, and actions that were judged or are in flight."""

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


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
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
    bundles_count: int
    """Bundles it owns, system bundles left out."""
    excluded: bool
    """Whether it takes no part: excluded by the settings, under maintenance, or drained."""
    group: str | None
    """Isolation policy it is primary in; null: the default group."""


class ExaminedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pair or broker the policy looked at."""

    high_broker: str
    """Broker that would shed."""
    low_broker: str | None
    """The broker it is compared with; null where there is none."""
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
