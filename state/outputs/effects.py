"""What a round summary shows about the cluster's usage, and how earlier unloads changed it."""

from typing import Literal

import msgspec

from state.outputs.rows import Section


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
