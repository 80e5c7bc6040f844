"""What a look at one side's brokers and topics finds, whichever system they are on; a look changes nothing."""

from dataclasses import dataclass

from streaming.ports.topics import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersSeen:
    """Brokers that answer."""

    text: str
    """Their number or their version, in a few words."""
    version: str | None = None
    """Version of the brokers; None where they do not report it."""
    ahead_s: float | None = None
    """How far their clock is ahead of this machine's, to the second; None where they do not report their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A permission that the settings' user lacks."""

    what: str
    remedy: str
    tolerable: bool = False
    """Whether a controller that has no standby runs without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSeen:
    """The topics of a side, compared with those that ``trimtab topics create`` makes."""

    count: int
    """How many topics were looked at."""
    missing: tuple[str, ...] = ()
    """Missing topics without which no controller starts."""
    missing_optional: tuple[str, ...] = ()
    """Missing topics without which a controller still runs."""
    differences: tuple[Difference, ...] = ()
    """Settings that differ; a controller starts in spite of the tolerable ones."""
    unwell: tuple[Difference, ...] = ()
    """Partitions that their brokers do not serve as they should; the tolerable ones are still served."""
    denied: tuple[Denied, ...] = ()
    warnings: tuple[Denied, ...] = ()
    """Other things that will cause problems sooner or later."""
