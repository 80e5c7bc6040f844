"""What a check finds. Pure."""

from typing import Literal

import msgspec

Outcome = Literal["problem", "warning", "not checked", "ok"]
OUTCOMES: tuple[Outcome, ...] = ("problem", "warning", "not checked", "ok")
"""The worst first."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str
    """Name of the check."""
    outcome: Outcome
    about: str
    """Which side, topic, cluster or process; empty where there is only one."""
    finding: str
    """One sentence: what is wrong, why it was not checked, or what is well."""
    remedy: str | None
    """What to do; null where nothing is to be done."""
    is_unreachable: bool = False
    """Whether brokers do not answer, which may pass."""


class Missed(msgspec.Struct, frozen=True):
    """Something that could not be looked at."""

    why: str
    is_unreachable: bool = False


def good(check: str, finding: str, *, about: str = "") -> Finding:
    """There is nothing to do."""
    return Finding(check=check, outcome="ok", about=about, finding=finding, remedy=None)


def warning(check: str, finding: str, remedy: str, *, about: str = "") -> Finding:
    """A person should look at it, but not at night."""
    return Finding(check=check, outcome="warning", about=about, finding=finding, remedy=remedy)


def problem(
    check: str, finding: str, remedy: str, *, about: str = "", is_unreachable: bool = False
) -> Finding:
    """Trimtab does not do its work, or would not start."""
    return Finding(
        check=check,
        outcome="problem",
        about=about,
        finding=finding,
        remedy=remedy,
        is_unreachable=is_unreachable,
    )


def not_checked(check: str, why: str, remedy: str | None = None, *, about: str = "") -> Finding:
    """Nothing is known about it."""
    return Finding(check=check, outcome="not checked", about=about, finding=why, remedy=remedy)
