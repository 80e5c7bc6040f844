"""The newest control event of a cluster, what a change makes of it, and the topic that both are on.

A control event replaces the whole overlay of its cluster, so a change begins with the newest event that the controller
takes, by the controller's own rules: greatest (time, id), settings that fit, not ahead of its log. The topic is on the input's
side, whichever system that is. Two operators who write at once can still overwrite each other; a second read finds that out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import msgspec

from policies.wording import time_text
from state.control import first_round
from state.events import Control, System
from state.outputs import Configured, rfc3339
from state.overlay import ControlData, MaintenanceWindow, epoch_ms, moment_at
from state.settings import ClusterSettings, OverlayError, SettingsSource
from state.systems import refuse_maintenance, rounds_of
from streaming.contract.decode import decode
from streaming.contract.messages import ControlMessage, type_of
from streaming.process.exits import Refused, WrongUse
from streaming.settings import ClusterSettingsSource, Settings
from streaming.settings.catalog import dotted, values
from streaming.settings.reference import toml_value, value_or_default_text
from streaming.settings.sections import leaves
from streaming.systems import input_side
from streaming.transport.side import TopicRecord

Edit = Callable[[ControlData], ControlData]
"""A change of one cluster's overlay; raises ``WrongUse``, naming the key or cluster, the value and what to do, where it makes no sense."""


OWN_SETTINGS = "settings read here, because no recent round shows those of the controller"
"""Whose settings a command has used that does not know the controller's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The newest control event of a cluster that the controller takes, and why a newer one was refused."""

    event: Control | None = None
    refused: str | None = None

    @property
    def overlay(self) -> ControlData:
        """The overlay of the event, from which a change begins; empty without an event. What is forgotten is forgotten once."""
        return ControlData() if self.event is None else msgspec.structs.replace(self.event.data, forget=False)

    def at(self, moment: datetime) -> "Standing":
        """What of it holds then: without what has ended by itself."""
        if self.event is None:
            return self
        event = msgspec.structs.replace(self.event, data=self.event.data.at(moment))
        return Standing(event=event, refused=self.refused)


def find_standings(
    records: Iterable[TopicRecord],
    settings: ClusterSettingsSource,
    systems: Mapping[str, System] = MappingProxyType({}),
) -> dict[str, Standing]:
    """The newest control event of every cluster on the control topic; ``systems`` has the systems that are known."""
    found: dict[str, list[tuple[Control, str | None]]] = {}
    for record in records:
        cluster, event, _ = decode(record.value, key=_key(record))
        if isinstance(event, Control):
            found.setdefault(cluster, []).append(
                (event, _refusal(cluster, event, record.timestamp, settings, systems.get(cluster)))
            )
    stands = {}
    for cluster, events in found.items():
        newest_first = sorted(events, key=lambda item: item[0].age_key, reverse=True)
        taken = next((event for event, refused in newest_first if refused is None), None)
        stands[cluster] = Standing(event=taken, refused=newest_first[0][1])
    return stands


def _key(record: TopicRecord) -> str | None:
    return None if record.key is None else record.key.decode(errors="replace")


def _refusal(
    cluster: str, event: Control, appended_ms: int, settings: ClusterSettingsSource, system: System | None
) -> str | None:
    """Why the controller does not take an event; None where it does."""
    whose = "" if settings.configured(cluster) else f", by the {OWN_SETTINGS}"
    if rounds_of(system, settings.base(cluster)).is_ahead(event.time_ms, appended_ms):
        return f"{event.id} of {time_text(rfc3339(event.time_ms))} has a time ahead of its log{whose}"
    try:
        settings.overlaid(cluster, event.data.settings_json)
    except OverlayError as error:
        return (
            f"{event.id} of {time_text(rfc3339(event.time_ms))} has settings that do not fit{whose}: {error}"
        )
    wrong = refuse_maintenance(event, system)
    return None if wrong is None else f"{event.id} of {time_text(rfc3339(event.time_ms))}: {wrong.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A control event ready to be written, and what it changes."""

    cluster: str
    id: str
    time_ms: int
    value: bytes
    before: ControlData
    after: ControlData
    changes: tuple[str, ...]
    """Settings in force that change, each as ``key: old -> new``."""
    first_round: int
    """The first round it holds for, unless that has closed by the time the event arrives."""
    first_round_ms: int
    first_close_ms: int
    """When that round closes at the earliest."""
    configured: Configured | None
    """What the controller is configured with; None where that is not known, and changes and rounds are those of the settings read here."""


def plan(
    cluster: str,
    *,
    edit: Edit,
    who: str,
    why: str,
    stands: Standing,
    settings: ClusterSettingsSource,
    now_ms: int,
    nonce: str,
    system: System | None = None,
) -> Planned:
    """The event that makes a change; ``who`` asks for it and ``why`` are shown in the round summaries. Raises ``WrongUse``.

    ``nonce`` makes its id unique.

    ``system`` decides how long the cluster's rounds are; None: not known yet, and the controller takes it for Pulsar's.

    The event's time is after that of the event in ``stands``, so that it is the newer one whatever clock wrote the other.
    """
    before = stands.at(moment_at(now_ms)).overlay
    try:
        after = msgspec.structs.replace(edit(before), who=who, why=why)
    except WrongUse as error:
        raise WrongUse(f"{cluster}: {error}") from error
    _require_own_settings(cluster, system, before, after)
    _require_pulsar(cluster, system, after)
    old = _settings_in_force(cluster, before, settings)
    new = _settings_in_force(cluster, after, settings)
    time_ms = now_ms if stands.event is None else max(now_ms, stands.event.time_ms + 1)
    rounds = rounds_of(system, settings.base(cluster))
    number = first_round(time_ms, lateness_ms=rounds.lateness_ms, length_ms=rounds.length_ms)
    _require_lasting(cluster, before, after, since_ms=number * rounds.length_ms)
    event_id = f"control/{rfc3339(time_ms)}/{nonce}"
    return Planned(
        cluster=cluster,
        id=event_id,
        time_ms=time_ms,
        value=_encode(cluster, after, id_=event_id, time_ms=time_ms),
        before=before,
        after=after,
        changes=tuple(differences(old, new)),
        first_round=number,
        first_round_ms=number * rounds.length_ms,
        first_close_ms=(number + 1) * rounds.length_ms + rounds.lateness_ms,
        configured=settings.configured(cluster),
    )


def _require_own_settings(
    cluster: str, system: System | None, before: ControlData, after: ControlData
) -> None:
    """Raises ``WrongUse`` for settings of the other kind of cluster: they would change nothing here."""
    for other, section in after.settings.items():
        if system is not None and other != system and section != before.settings.get(other):
            raise WrongUse(
                f"{cluster} is a {system.capitalize()} cluster, and {other}.* does nothing there: name the clusters that it "
                "is for with --cluster"
            )


def _require_pulsar(cluster: str, system: System | None, after: ControlData) -> None:
    """Trimtab moves nothing on a Kafka cluster, so nothing there can be under maintenance or drained."""
    found = dict(maintenance_of(after))
    if system == "kafka" and found:
        names = ", ".join(f"{what} {name}" for what, name in found)
        raise WrongUse(
            f"{cluster} is a Kafka cluster, where trimtab paces reassignments and moves nothing: {names} cannot be put under "
            "maintenance or drained; use kafka-reassign-partitions"
        )


def maintenance_of(data: ControlData) -> Iterator[tuple[tuple[str, str], MaintenanceWindow]]:
    """All that is under maintenance or drained: what it is and its name, since when and why."""
    for what, windows in (
        ("maintenance of broker", data.maintenance_brokers),
        ("maintenance of namespace", data.maintenance_namespaces),
        ("drain of broker", data.drained_brokers),
    ):
        for name, window in sorted(windows.items()):
            yield (what, name), window


def window_text(key: tuple[str, str]) -> str:
    """What ``maintenance_of`` yields as a person says it: the id of a broker shows that it is one."""
    what, name = key
    return f"{what.removesuffix(' broker')} {name}"


def _require_lasting(cluster: str, before: ControlData, after: ControlData, *, since_ms: int) -> None:
    """Raises ``WrongUse`` for an end before the first round that can obey it: it would hold nothing."""
    known = dict(maintenance_of(before))
    ends = {} if after.until == before.until else {"pause": after.until}
    ends |= {window_text(key): each.until for key, each in maintenance_of(after) if each != known.get(key)}
    for what, until in ends.items():
        if until is not None and epoch_ms(until) <= since_ms:
            raise WrongUse(
                f"{cluster}: the {what} would end at {time_text(rfc3339(epoch_ms(until)))}, and the first round that can obey it begins at "
                f"{time_text(rfc3339(since_ms), is_exact=True)}: let it last longer"
            )


def _settings_in_force(cluster: str, data: ControlData, settings: SettingsSource) -> ClusterSettings:
    try:
        return settings.overlaid(cluster, data.settings_json)
    except OverlayError as error:
        raise WrongUse(f"{cluster}: {error} ({error.reason})") from error


_LEFT_OUT = (
    "forget",
    "until",
    "maintenance_brokers",
    "maintenance_namespaces",
    "drained_brokers",
    "approval",
)
"""Fields that are left out of an event while they are empty: a program that reads it may not know them."""


def _encode(cluster: str, data: ControlData, *, id_: str, time_ms: int) -> bytes:
    message = ControlMessage(
        specversion="1.0",
        id=id_,
        source=f"/operator/{quote(data.who or '', safe='')}",
        subject="control",
        time=moment_at(time_ms),
        cluster=cluster,
        data=data,
    )
    event = msgspec.to_builtins(message) | {"time": rfc3339(time_ms)}
    for name in _LEFT_OUT:
        if not event["data"][name]:
            del event["data"][name]
    assert event["type"] == type_of(ControlMessage)
    return msgspec.json.encode({name: value for name, value in event.items() if value is not None})


def differences(old: ClusterSettings, new: ClusterSettings) -> Iterator[str]:
    """Settings that differ, each as ``key: old -> new``."""
    before, after = by_key(old), by_key(new)
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"{key}: {value_or_default_text(key, before.get(key))} -> {value_or_default_text(key, after.get(key))}"


def by_key(settings: ClusterSettings) -> dict[str, object]:
    """Every setting by its dotted key."""
    return {
        dotted((system, *path)): value
        for system, section in (("pulsar", settings.pulsar), ("kafka", settings.kafka))
        for path, value in values(section)
    }


def overlay_lines(settings: Mapping[str, Any], configured: ClusterSettings | None = None) -> Iterator[str]:
    """Every value of an overlay as a line of TOML, with the one that the controller is configured with where that is known."""
    usual = {} if configured is None else by_key(configured)
    for path, value in leaves(settings):
        key = dotted(path)
        beside = "" if configured is None else f"  # configured: {value_or_default_text(key, usual.get(key))}"
        yield f"{key} = {toml_value(value)}{beside}"


def read_control(settings: Settings) -> list[TopicRecord]:
    """The newest record of each cluster, and older ones that are not compacted yet, in order. Raises ``exits.Refused``."""
    with input_side(settings).reader(settings.topics.control, compacted=True) as reader:
        return list(reader.read_to_end())


def check_written(
    events: Iterable[Planned], before: Sequence[TopicRecord], after: Sequence[TopicRecord]
) -> None:
    """Raise ``Refused`` unless each event is there and nobody else wrote for its cluster since ``before`` was read."""
    newest = max((record.offset for record in before), default=-1)
    for event in events:
        since = [record for record in after if record.offset > newest and _key(record) == event.cluster]
        if not any(record.value == event.value for record in since):
            raise Refused(
                f"{event.cluster}: the event {event.id} was acknowledged, but is not on the topic: run the command again"
            )
        if any(record.value != event.value for record in since):
            raise Refused(
                f"{event.cluster}: somebody else wrote a control event at the same moment, and the newer one replaces the "
                f"other completely: see the result with `trimtab control list --cluster {event.cluster}`, then run the command "
                "again if something is missing"
            )


def check_taken(events: Iterable[Planned], stands: Mapping[str, Standing]) -> None:
    """Raise ``Refused`` if the controller refuses an event that was written; ``stands`` is read from the topic after that."""
    for event in events:
        stand = stands.get(event.cluster, Standing())
        if stand.refused is not None and (stand.event is None or stand.event.id != event.id):
            raise Refused(
                f"{event.cluster}: the event is written, and executors obey a pause in it, but the controller refuses it: "
                f"{stand.refused}. If its time is ahead, set the clock of this computer, then run the command again"
            )
