"""Which actions go out at once while actions have to be approved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from state.quiet_hours import QuietSpan, Zones

Approval = Literal["none", "required"]
"""Whether unloads and splits wait for a person."""

_KINDS = ("unloads", "splits")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """A rule: an action that keeps within all of its limits goes out at once, although ``controller.approval`` is ``required``."""

    kinds: tuple[str, ...] = _KINDS
    """What it approves: ``unloads``, ``splits``, or both."""
    namespaces: tuple[str, ...] = ()
    """Namespaces (``tenant/namespace``), or patterns with ``*`` and ``?``, whose bundles it approves; empty: all."""
    max_messages_per_s: float = 0.0
    """Message rate in + out of the largest bundle that it approves, in messages/s; 0: no limit."""
    max_bytes_per_s: float = 0.0
    """Throughput in + out of the largest bundle that it approves, in bytes/s; 0: no limit."""
    hours: tuple[str, ...] = ()
    """When it approves, in spans as in ``quiet_hours``: ``Mon-Fri 08:00-18:00 Europe/Berlin``. Empty: at any time."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in _KINDS:
                raise ValueError(f"kinds has {kind!r}; expected {' or '.join(_KINDS)}")
        for text in self.hours:
            if QuietSpan.parse(text, name="hours").kinds != ("splits", "unloads"):
                raise ValueError(
                    f"hours has {text!r}; take `unloads` or `splits` out of it: kinds says which actions are approved"
                )
        for name in ("max_messages_per_s", "max_bytes_per_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more (0: no limit)")

    def approves(
        self,
        kind: str,
        namespace: str,
        *,
        messages_per_s: float,
        bytes_per_s: float,
        end_ms: int,
        zones: Zones,
    ) -> bool:
        """Whether an action of ``kind`` (``splits``, ``unloads``) on a bundle with this traffic goes out at once."""
        return (
            kind in self.kinds
            and (not self.namespaces or any(fnmatchcase(namespace, each) for each in self.namespaces))
            and (not self.max_messages_per_s or messages_per_s <= self.max_messages_per_s)
            and (not self.max_bytes_per_s or bytes_per_s <= self.max_bytes_per_s)
            and (not self.hours or any(QuietSpan.parse(each).has(end_ms, zones) for each in self.hours))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """Standing approvals; ``controller.approval`` decides whether anything has to be approved at all."""

    standing: Mapping[str, StandingApproval] = field(default_factory=dict)
    """Rules, each under a name of your choice. An action goes out at once if one of them approves it."""
