"""What is reported about trimtab's brokers and topics, whichever system they are on: what was made, what is missing or differs.

A look changes nothing. A start stops at the first kind of obstacle and only asks what keeps a controller from starting;
a person is shown everything at once, also settings that a new topic would have and an older one may lack.
"""

from dataclasses import dataclass
from enum import StrEnum

from streaming.transport.errors import TopicsWrong

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
INPUT_RETENTION_MS = _DAY_MS
"""Longer than any outage after which a restart goes on where it was; 1,000 brokers write 350 GB in this time."""
ACTIONS_RETENTION_MS = 7 * _DAY_MS
"""Actions expire within minutes; a week of them shows what was done, and why."""
AUDIT_RETENTION_MS = 30 * _DAY_MS
"""Round summaries answer questions asked weeks later; at most 256 KiB a round."""
BEATS_RETENTION_MS = _HOUR_MS
"""Only the newest beats say which controllers run; an hour of them shows which ones ran when something went wrong."""


class Outcome(StrEnum):
    """What `create` found or did."""

    CREATED = "created"
    CHANGED = "deduplication switched on"
    """Only on Pulsar, where exactly-once publishing needs it and no record is changed by it."""
    KEPT = "deletion while idle switched off"
    """Only on Pulsar, which deletes a topic without connected clients, with its records and settings."""
    ALREADY_RIGHT = "already right"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting of an existing topic that is not as needed; `tolerable` when it only deserves a warning."""

    topic: str
    setting: str
    found: str
    expected: str
    remedy: str
    tolerable: bool = False

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.found}, expected {self.expected}. {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """What became of one topic; `differences` is empty unless the outcome is `DIFFERS`."""

    topic: str
    outcome: Outcome
    differences: tuple[Difference, ...] = ()


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
    """A permission that the settings' user lacks, or a setting of a whole namespace that is wrong."""

    what: str
    remedy: str
    tolerable: bool = False
    """Whether a controller that has no standby runs without it."""

    def __str__(self) -> str:
        return f"{self.what.removesuffix('.')}. {self.remedy}"


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
    """Settings that differ; a controller starts in spite of the tolerable ones, and in spite of those of an optional topic."""
    unwell: tuple[Difference, ...] = ()
    """What a start does not ask: retentions that are shorter than those of new topics, and partitions that their brokers do not
    serve as they should; the tolerable ones are still served."""
    denied: tuple[Denied, ...] = ()
    warnings: tuple[Denied, ...] = ()
    """Other things that will cause problems sooner or later."""

    def warnings_at_start(self, *, address: str, beats: str) -> list[str]:
        """Warnings for a controller that starts; ``beats`` is the topic that it runs without. Raises ``TopicsWrong``.

        The error names every obstacle: missing topics and settings that would lose order, markers or exactly-once
        publishing; or, before anything else, the permissions that the controller lacks.
        """
        if refused := [str(denied) for denied in self.denied if not denied.tolerable]:
            raise TopicsWrong("\n".join(refused))
        run = "Run: trimtab topics create"
        problems = [f"topics missing at {address}: {', '.join(self.missing)}. {run}"] if self.missing else []
        wrong = [difference for difference in self.differences if not difference.tolerable]
        problems += [str(difference) for difference in wrong if difference.topic != beats]
        if problems:
            raise TopicsWrong("\n".join(problems))
        lost = "Until then `trimtab status` cannot say whether this controller runs."
        return [
            *(str(difference) for difference in self.differences if difference.tolerable),
            *(f"{denied} {lost}" for denied in self.denied),
            *(f"topic {topic} is missing at {address}. {run}. {lost}" for topic in self.missing_optional),
            *(f"{difference} {lost}" for difference in wrong),
            *map(str, self.warnings),
        ]
