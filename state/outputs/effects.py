"""What a round says of the usage of the cluster and of what earlier unloads did to it."""

from typing import Literal

import msgspec

from state.outputs.rows import Section


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
