"""Time zones as spans of UTC with one offset each, from the ``tzdata`` package and never from a machine's own files.

The package is pinned with the others, so every process of a deployment, and a replay of what it recorded, decide by the same zones.
"""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

from state.guard_settings import Offsets, Zones, zones_named
from state.settings import PulsarSettings
from streaming.settings.catalog import suggest_nearest

_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Before the first and after the last, a zone keeps the offset that it has then."""


class UnknownZone(ValueError):
    """There is no such zone; the text names it and the nearest one."""


def resolve_zones(pulsar: PulsarSettings) -> Zones:
    """The zones that settings name. Raises ``UnknownZone``."""
    hours = [text for rule in pulsar.approval.standing.values() for text in rule.hours]
    return {name: offsets_of(name) for name in sorted(zones_named([*pulsar.guards.quiet_hours, *hours]))}


@cache
def offsets_of(name: str) -> Offsets:
    """Spans with one offset of a zone, from 2000 to 2100. Raises ``UnknownZone``."""
    zone = _zone(name)
    spans = [(_ms(_FIRST), _offset_min(zone, _FIRST))]
    day = timedelta(days=1)
    moment = _FIRST
    while moment < _LAST:
        after = _offset_min(zone, moment + day)
        if after != spans[-1][1]:
            spans.append((_ms(_change(zone, moment, after)), after))
        moment += day
    return tuple(spans)


def _zone(name: str) -> ZoneInfo:
    known = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    if name not in known:
        raise UnknownZone(f"{name!r} is no time zone; {suggest_nearest(name, known)}")
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _change(zone: ZoneInfo, begin: datetime, after: int) -> datetime:
    """The minute of the day from ``begin`` on from which the offset is ``after``."""
    minutes = range(24 * 60 + 1)
    at = bisect_left(
        minutes, 1, key=lambda minute: _offset_min(zone, begin + timedelta(minutes=minute)) == after
    )
    return begin + timedelta(minutes=at)


def _offset_min(zone: ZoneInfo, moment: datetime) -> int:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds() / 60)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1000
