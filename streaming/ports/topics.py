"""What is reported about trimtab's topics, whichever system they are on: what was made, what differs, and why a start is refused."""

from dataclasses import dataclass
from enum import StrEnum

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


class StartError(Exception):
    """The application cannot start; the text names everything found wrong, and the remedy of each."""


class Unreachable(StartError):
    """The brokers do not answer; they may answer later."""


class TopicsWrong(StartError):
    """The brokers answered, and topics are missing or not as they must be."""


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


def no_beats(problem: str) -> str:
    """The warning about a topic of beats that a controller cannot use; it runs all the same."""
    return f"{problem} Until then `trimtab status` cannot say whether this controller runs."
