"""What was published, decoded once for all that report it, what the log says about it, and which unloads repeat earlier ones.

The log has a line per action, a line when what is in force changes, and a line for each cluster and reason of refused records, at most
one a minute: the dead-letter topic has all of them. With ``-v`` there is a line per round, too.

No single round knows for longer than a cooldown which bundles were unloaded before, so ``FollowUp`` remembers them. Nothing here
influences a decision.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from policies.wording import counted
from state.outputs import RoundSummary, Split, Throttle, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.envelope import ReadEnvelope, read_envelope
from streaming.settings.reference import default_text, toml_value

Data = Unload | Split | Throttle | RoundSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An event as it is on its topic."""

    id: str
    type: str
    time_s: float
    """End of its round, Unix time."""
    data: Data


_THROTTLES: msgspec.json.Decoder[Data] = msgspec.json.Decoder(Throttle)
_DATA: dict[str, msgspec.json.Decoder[Data]] = {
    UNLOAD_TYPE: msgspec.json.Decoder(Unload),
    SPLIT_TYPE: msgspec.json.Decoder(Split),
    ROUND_TYPE: msgspec.json.Decoder(RoundSummary),
}


def decode(value: bytes) -> Published:
    """Decode the value of a record. Raises ``msgspec.MsgspecError`` for one that was not published by this version."""
    event = read_envelope(value)
    data = _DATA.get(event.type, _THROTTLES).decode(event.data)
    time_s = msgspec.convert(event.time, datetime).timestamp()
    return Published(id=event.id, type=event.type, time_s=time_s, data=data)


_OUTPUTS_LOG = logging.getLogger("trimtab.published")


class _InForce(NamedTuple):
    """What an operator may change for a cluster."""

    mode: str
    paused: bool
    policy: str
    settings: Mapping[str, Any]


_NEWS_ROUNDS = 10
"""A round that ended longer ago is no news: a start without a checkpoint goes through the rounds of the last hour again."""


class OutputLog:
    """Remembers what was in force in the last round of each cluster that was news."""

    def __init__(self) -> None:
        self._in_force: dict[str, _InForce] = {}

    def forget(self, cluster: str) -> None:
        """Forget a cluster that is gone."""
        self._in_force.pop(cluster, None)

    def log(self, event: Published, now_s: float) -> None:
        """Log one published output; ``now_s`` is Unix time."""
        data = event.data
        about = {"cluster": data.cluster, "round": data.round}
        if isinstance(data, RoundSummary):
            if now_s - event.time_s <= _NEWS_ROUNDS * _length_s(data):
                self._log_changes(data, about)
            text = "%s, round %d: %s, %s: %s"
            _OUTPUTS_LOG.debug(
                text,
                data.cluster,
                data.round,
                data.outcome,
                counted(data.actions_count, "action"),
                data.reason,
                extra=about,
            )
        else:
            about["action_id"] = event.id
            shown = " (dry-run)" if data.dry_run else ""
            if getattr(data, "proposal", False) is True:
                shown = " (a proposal: it waits for `trimtab approve`)"
            text = "%s, round %d: %s %s%s: %s"
            _OUTPUTS_LOG.info(
                text, data.cluster, data.round, event.type, event.id, shown, data.reason, extra=about
            )

    def _log_changes(self, data: RoundSummary, about: Mapping[str, Any]) -> None:
        now = _InForce(data.mode, data.paused, data.policy, data.settings_by_name())
        before = self._in_force.get(data.cluster)
        self._in_force[data.cluster] = now
        said = list(_set_by_control(data) if before is None else _changes(before, now))
        if said:
            since = "" if before is None else " from now on"
            who = "" if data.control is None else f". Last change by {data.control.who}: {data.control.why}"
            text = "%s, round %d: in force%s: %s%s"
            _OUTPUTS_LOG.info(text, data.cluster, data.round, since, ", ".join(said), who, extra=about)


def _length_s(data: RoundSummary) -> float:
    return (datetime.fromisoformat(data.end) - datetime.fromisoformat(data.start)).total_seconds()


def _set_by_control(data: RoundSummary) -> Iterator[str]:
    """What the control event sets; nothing where there is none."""
    if data.control is None:
        return
    yield f"mode {data.mode}"
    if data.paused:
        yield "paused"
    for name, value in sorted(data.overlay_by_name().items()):
        yield f"{name} = {toml_value(value)}"


def _changes(before: _InForce, now: _InForce) -> Iterator[str]:
    if now.mode != before.mode:
        yield f"mode {now.mode}, was {before.mode}"
    if now.paused != before.paused:
        yield "paused" if now.paused else "no pause"
    if now.policy != before.policy:
        yield f"policy {now.policy}, was {before.policy}"
    for name in sorted(before.settings.keys() | now.settings.keys()):
        old, new = _show_value(before.settings, name), _show_value(now.settings, name)
        if old != new:
            yield f"{name} = {new}, was {old}"


def _show_value(settings: Mapping[str, Any], name: str) -> str:
    return toml_value(settings[name]) if name in settings else default_text(name)


_REFUSED_LOG = logging.getLogger("trimtab.refused")
_REFUSED_WINDOW_S = 60.0
_KINDS_MAX = 10_000
"""Pairs of cluster and reason that are remembered; limited, because records may carry any cluster name."""
_DETAIL_CHARS = 500


class _Refused(msgspec.Struct, frozen=True):
    """The fields of a dead letter that a line needs."""

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int


_decoder = msgspec.json.Decoder(ReadEnvelope[_Refused])


@dataclass(slots=True)
class _Window:
    told_s: float
    untold_count: int = 0


class RefusalLog:
    """Remembers when a line was last written for each cluster and reason."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str], _Window] = {}

    def log(self, values: Iterable[bytes], now_s: float) -> None:
        """Log refused records, given as their published dead letters; ``now_s`` is monotonic."""
        first: dict[tuple[str, str], _Refused] = {}
        counts: dict[tuple[str, str], int] = {}
        for value in values:
            event = _decoder.decode(value)
            kind = (event.cluster, event.data.reason)
            first.setdefault(kind, event.data)
            counts[kind] = counts.get(kind, 0) + 1
        for kind, refused in first.items():
            self._log_kind(kind, refused, counts[kind], now_s)

    def _log_kind(self, kind: tuple[str, str], refused: _Refused, count: int, now_s: float) -> None:
        window = self._windows.pop(kind, None)
        if window is not None and now_s - window.told_s < _REFUSED_WINDOW_S:
            window.untold_count += count
            self._windows[kind] = window
            return
        self._windows[kind] = _Window(now_s)
        if len(self._windows) > _KINDS_MAX:
            del self._windows[next(iter(self._windows))]
        cluster, reason = kind
        _REFUSED_LOG.warning(
            "%s%s%s refused as %s%s, such as %s/%d@%d: %s (`trimtab rejected tail --from earliest --no-follow` shows all)",
            f"{cluster}: " if cluster else "",
            counted(count + (0 if window is None else window.untold_count), "record"),
            "" if cluster else " without a valid cluster",
            reason,
            "" if window is None else " since the last such line",
            refused.topic,
            refused.partition,
            refused.offset,
            refused.detail[:_DETAIL_CHARS],
            extra={"cluster": cluster} if cluster else {},
        )


UNLOADS_WINDOW_S = 6 * 3600
"""Far above the default cooldown of a bundle, 30 minutes, before which none is unloaded twice."""
KEPT_COUNT = 10_000
"""Bundles remembered for each cluster; the oldest are dropped first. About 2 MB."""

Source = Literal["same", "other"]
"""Whether a bundle that is unloaded again is at the broker it was to leave before, or at another."""


class FollowUp:
    """Takes what was published, event by event, those of a cluster in their order. Not thread-safe.

    Dry-run decisions are not followed, for nothing moves. Memory is bounded (bundles of the last ``UNLOADS_WINDOW_S`` of event
    time, at most ``KEPT_COUNT`` a cluster) and lost with the process, after which the next answer is about what was published since.
    """

    def __init__(self) -> None:
        self._unloaded: dict[str, dict[str, tuple[float, str]]] = {}
        """By cluster and bundle, time of the last unload and the broker it was to leave; the oldest first."""

    def forget(self, cluster: str) -> None:
        """Forget the unloads of a cluster: they are not followed up any more."""
        self._unloaded.pop(cluster, None)

    def observe(self, event: Published) -> Source | None:
        """Where the bundle of an unload was that had been unloaded within `UNLOADS_WINDOW_S` before; None for any other event."""
        data, now_s = event.data, event.time_s
        if not isinstance(data, Unload) or data.dry_run:
            return None
        unloaded = self._unloaded.setdefault(data.cluster, {})
        before = unloaded.pop(data.bundle, None)
        unloaded[data.bundle] = (now_s, data.source_broker)
        # the oldest are in front; the unload just noted is never dropped
        while len(unloaded) > KEPT_COUNT or now_s - next(iter(unloaded.values()))[0] > UNLOADS_WINDOW_S:
            del unloaded[next(iter(unloaded))]
        if before is None or now_s - before[0] > UNLOADS_WINDOW_S:
            return None
        return "same" if before[1] == data.source_broker else "other"
