"""What a look at one side's brokers and topics finds, whichever system they are; a look changes nothing."""

from dataclasses import dataclass

from streaming.ports.topics import Difference

__all__ = ["BrokersSeen", "Denied", "TopicsSeen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersSeen:
    """Brokers that answer."""

    text: str
    """How many there are or which version they say, in a few words."""
    version: str | None = None
    """None where they do not say it."""
    ahead_s: float | None = None
    """How far their clock is ahead of this machine's, to the second; None where they do not say what time it is."""


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
    """How many were looked at."""
    missing: tuple[str, ...] = ()
    """No controller starts without them."""
    missing_optional: tuple[str, ...] = ()
    """A controller runs without them."""
    differences: tuple[Difference, ...] = ()
    """The tolerable ones keep no controller from starting."""
    unwell: tuple[Difference, ...] = ()
    """Partitions that their brokers do not serve as they should; the tolerable ones are served."""
    denied: tuple[Denied, ...] = ()
    warnings: tuple[Denied, ...] = ()
    """What else stands in the way sooner or later."""
