"""Settings of guards: what may not be touched and how much may happen, spans of the week, and which actions need no approval.

A span is in UTC or in a zone whose offsets are given. No zone is looked up here: a decision must not depend on the zone files of
a machine. ``streaming.settings.zones`` resolves zones into spans of UTC with one offset each.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Ge, Le

from policies.bounds import OffAtZero, OffAtZeroInt, check_bounds

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = f"(?:{'|'.join(DAYS)})"
_SPAN = re.compile(
    rf"(?:({_DAY}(?:-{_DAY})?(?:,{_DAY}(?:-{_DAY})?)*) )?(\d\d):(\d\d)-(\d\d):(\d\d)"
    r"(?: (UTC|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+))?(?: (splits|unloads))?"
)
_DAY_MIN = 24 * 60
_MINUTE_MS = 60_000
_FIRST_WEEKDAY = 3
"""1970 began with a Thursday."""

UTC = "UTC"

Offsets = Sequence[tuple[int, int]]
"""Spans of UTC in which a zone has one offset, ascending: first millisecond, and minutes that the zone is ahead of UTC."""
Zones = Mapping[str, Offsets]
"""Offsets by the zone's name; UTC needs none."""
NO_ZONES: Zones = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietSpan:
    """A span of some days of the week."""

    text: str
    days: frozenset[int]
    """Days it begins on; Monday is 0."""
    start_min: int
    """Minute of the day it begins with."""
    end_min: int
    """Minute of the day it ends before; below ``start_min`` where it passes midnight."""
    zone: str
    """The zone of these days and minutes."""
    kinds: tuple[str, ...]
    """Kinds of actions that it holds: ``splits``, ``unloads`` or both."""

    @staticmethod
    def parse(text: str, *, name: str = "quiet_hours") -> "QuietSpan":
        """A span of the setting ``name``. Raises ``ValueError`` for anything else."""
        match = _SPAN.fullmatch(text)
        if match is not None:
            start_min = int(match[2]) * 60 + int(match[3])
            end_min = int(match[4]) * 60 + int(match[5])
            minutes_fit = int(match[3]) < 60 and int(match[5]) < 60  # noqa: PLR2004  an hour
            if minutes_fit and start_min < _DAY_MIN and end_min <= _DAY_MIN and start_min != end_min:
                return QuietSpan(
                    text=text,
                    days=_days(match[1]),
                    start_min=start_min,
                    end_min=end_min,
                    zone=match[6] or UTC,
                    kinds=(match[7],) if match[7] else ("splits", "unloads"),
                )
        raise ValueError(
            f"{name} has {text!r}; expected a span of the day such as '08:00-18:00', '22:00-02:00 splits', "
            f"'08:00-18:00 unloads' or 'Mon-Fri 08:00-18:00 Europe/Berlin'"
        )

    def holds(self, kind: str, time_ms: int, zones: Zones) -> bool:
        """Whether actions of ``kind`` rest at that moment; ``zones`` has the span's zone, unless that is UTC."""
        return kind in self.kinds and self.has(time_ms, zones)

    def has(self, time_ms: int, zones: Zones) -> bool:
        """Whether a moment is in it."""
        days, minute = divmod(time_ms // _MINUTE_MS + self._offset_min(time_ms, zones), _DAY_MIN)
        day = (days + _FIRST_WEEKDAY) % len(DAYS)
        if self.start_min < self.end_min:
            return day in self.days and self.start_min <= minute < self.end_min
        began_yesterday = minute < self.end_min and (day - 1) % len(DAYS) in self.days
        return began_yesterday or (minute >= self.start_min and day in self.days)

    def _offset_min(self, time_ms: int, zones: Zones) -> int:
        if self.zone == UTC:
            return 0
        offsets = zones[self.zone]
        return offsets[max(0, bisect_right(offsets, time_ms, key=lambda change: change[0]) - 1)][1]


def _days(text: str | None) -> frozenset[int]:
    """Days of a list such as ``Mon-Fri,Sun``; a range may pass the week's end."""
    days: set[int] = set()
    for part in text.split(",") if text else ("Mon-Sun",):
        first, _, last = part.partition("-")
        start, end = DAYS.index(first), DAYS.index(last or first)
        days.update(day % len(DAYS) for day in range(start, end + 1 + len(DAYS) * (end < start)))
    return frozenset(days)


def zones_named(texts: Iterable[str]) -> frozenset[str]:
    """Zones of these spans that have to be looked up."""
    return frozenset(span.zone for span in map(QuietSpan.parse, texts)) - {UTC}


Approval = Literal["none", "required"]
"""Whether unloads and splits wait for a person."""

_KINDS = ("unloads", "splits")

_NoLimitOrMore = Annotated[float, Ge(0), "0 or more (0: no limit)"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """A rule: an action that keeps within all of its limits goes out at once, although ``controller.approval`` is ``required``."""

    kinds: tuple[str, ...] = _KINDS
    """What it approves: ``unloads``, ``splits``, or both."""
    namespaces: tuple[str, ...] = ()
    """Namespaces (``tenant/namespace``), or patterns with ``*`` and ``?``, whose bundles it approves; empty: all."""
    max_messages_per_s: _NoLimitOrMore = 0.0
    """Message rate in + out of the largest bundle that it approves, in messages/s; 0: no limit."""
    max_bytes_per_s: _NoLimitOrMore = 0.0
    """Throughput in + out of the largest bundle that it approves, in bytes/s; 0: no limit."""
    hours: tuple[str, ...] = ()
    """When it approves, in spans as in ``quiet_hours``: ``Mon-Fri 08:00-18:00 Europe/Berlin``. Empty: at any time."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for kind in self.kinds:
            if kind not in _KINDS:
                raise ValueError(f"kinds has {kind!r}; expected {' or '.join(_KINDS)}")
        for text in self.hours:
            if QuietSpan.parse(text, name="hours").kinds != ("splits", "unloads"):
                raise ValueError(
                    f"hours has {text!r}; take `unloads` or `splits` out of it: kinds says which actions are approved"
                )

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
            and (not self.namespaces or any(fnmatchcase(namespace, pattern) for pattern in self.namespaces))
            and (not self.max_messages_per_s or messages_per_s <= self.max_messages_per_s)
            and (not self.max_bytes_per_s or bytes_per_s <= self.max_bytes_per_s)
            and (not self.hours or any(QuietSpan.parse(text).has(end_ms, zones) for text in self.hours))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """Standing approvals; ``controller.approval`` decides whether anything has to be approved at all."""

    standing: Mapping[str, StandingApproval] = field(default_factory=dict)
    """Rules, each under a name of your choice. An action goes out at once if one of them approves it."""


UNLOADS_PER_ROUND_COUNT = 20
UNLOADS_PER_HOUR_COUNT = 60
MOVED_PER_HOUR_RATIO = 0.4
JUDGED_ACTIONS_COUNT = 10
"""How many judged actions count: enough to tell a series of failures from a single one, few enough to forget last week's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What may not be touched, and how much may happen; 0, false and [] switch a guard off."""

    bundle_cooldown_s: OffAtZero = 1800.0
    """How long a bundle is not unloaded again after it was. With 0, actions in flight do not keep it from being touched either.
    Pulsar: ``loadBalancerSheddingGracePeriodMinutes``."""
    keep_sole_bundle: bool = True
    """Never unload the only bundle of a broker: that would only move the load to another broker. Heartbeat bundles are not
    counted, nor are bundles that were told to leave the broker and are not seen at another one yet."""
    excluded_brokers: tuple[str, ...] = ()
    """Broker ids that are neither paired nor averaged: draining, new, or under repair."""
    excluded_namespaces: tuple[str, ...] = ()
    """Namespaces (``tenant/namespace``) whose bundles never move. Pulsar 4.1:
    ``loadBalancerSheddingExcludedNamespaces`` (PIP-380)."""
    max_unloads_per_round_count: OffAtZeroInt | None = None
    """Largest number of unloads in one round, of every policy; each makes every client of a bundle reconnect. Unset = 20, and for the
    fleet planner 5 % of the cluster's bundles where that is more: it weighs what it moves, and a plan of small bundles has many moves."""
    max_unloads_per_broker_count: OffAtZeroInt = 0
    """Largest number of unloads from one broker in one round."""
    max_unloads_per_namespace_count: OffAtZeroInt = 0
    """Largest number of unloads of one namespace in one round."""
    max_unloads_per_hour_count: OffAtZeroInt | None = None
    """Largest number of unloads in the rounds that ended within the last hour, so that a faulty controller cannot move
    bundles all day. Unset = 60, and for the fleet planner 40 % of the cluster's bundles where that is more."""
    max_moved_per_hour_ratio: OffAtZero | None = None
    """Largest share of the fleet's traffic that the unloads of the last hour may carry, those that empty brokers left out. The first
    20 of an hour are free of it: the few bundles of a small fleet could not move else. A bundle's share is the mean of its shares
    of messages and bytes. Unset = 0.4, because a third has to move when five brokers join ten, and none where
    ``max_unloads_per_hour_count`` is switched off (0)."""
    max_drain_unloads_per_hour_count: OffAtZeroInt = 300
    """The same for the unloads that empty a drained broker, which are counted separately. With 300, a broker of 300 bundles
    is empty within an hour."""
    quiet_hours: tuple[str, ...] = ()
    """Spans when nothing is touched, such as the business peak: ``08:00-18:00`` holds everything, ``08:00-18:00 splits`` and
    ``08:00-18:00 unloads`` hold one kind of action. Days may stand before the span and a time zone after it: ``Mon-Fri
    08:00-18:00 Europe/Berlin unloads``; without them it holds every day, in UTC. A round is in the span if its end is. A span
    may pass midnight; it then belongs to the day it begins on."""
    ineffective_after_rounds: OffAtZeroInt = 3
    """After so many rounds in which the bundle's owner reported and a succeeded action still showed no effect, the action is
    ``ineffective``. Three, because load reports lag behind. 0: every succeeded action counts as effective."""
    ineffective_rest_s: OffAtZero = 7200.0
    """How long the bundle of an ineffective action is left alone; whatever undid the action would undo the next one."""
    hold_with_other_balancer: bool = True
    """While Pulsar's own shedding or splitting is on at a broker, nothing is done in mode ``act``: each balancer would undo
    what the other did. A dry-run goes on, so that its decisions can be compared with Pulsar's."""
    hold_unsettled_brokers: bool = False
    """Leave a broker alone, as source and as destination, while an unload it takes part in is not carried out yet or
    does not show in the reports: on loads from before a move, a policy wants the same move again, with other bundles. The
    hit counts prevent that as long as moves show within as many rounds. Switch it on for rounds about as long as
    ``statsUpdateFrequencyInSecs``, for hit counts of 1 or 2, or for unloads that take long. Only in mode ``act``."""
    failing_actions_count: Annotated[
        int,
        Ge(0),
        Le(JUDGED_ACTIONS_COUNT),
        f"0 or more (0 switches it off), and at most the {JUDGED_ACTIONS_COUNT} actions that are looked at",
    ] = 5
    """When so many of the last 10 judged unloads failed or were ineffective, all unloads of the cluster are held as ``failing``
    until a person resumes it; the same for splits, which are counted separately."""

    min_unload_benefit_points: OffAtZero = 0.0
    """Percentage points of usage that an unload must take from its broker to be worth the reconnects of its clients: the
    broker's usage times the bundle's share of its traffic. 0 holds nothing, as in Pulsar. It does not hold moves of the fleet
    planner, which weighs a plan as a whole (``min_gain_points``)."""
    calm_after_change_rounds: OffAtZeroInt = 0
    """Rounds in which nothing moves after a broker joined or left, except from brokers above ``threshold_points`` of
    ``[pulsar.overload_shedder]``: in a rolling restart the next restart undoes the move. 0 does not wait, as in Pulsar. For
    Pulsar's policies, 5 rounds of a minute are longer than the restart of one broker takes; the fleet planner does better without."""

    def __post_init__(self) -> None:
        check_bounds(self)
        for span in self.quiet_hours:
            QuietSpan.parse(span)
