"""The two systems: which one a cluster belongs to, and what of an event depends on it.

A cluster belongs to the system of its first accepted report or statistics. What comes before is kept (``state.control``).
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.msgpack import Decoder

from state.events import BrokerLoad, Control, Event, LoadReport, Rejection
from state.events import System as SystemName
from state.kafka.system import Kafka
from state.layouts import FRESH, body_decoder, unseal
from state.memory import Waiting, WaitingKey, WaitingKind
from state.pulsar.system import Pulsar
from state.settings import ClusterSettings, RoundSettings
from state.system import HasSettings, System

SYSTEMS: Mapping[SystemName, System[Any]] = {system.name: system for system in (Pulsar(), Kafka())}
_OF_EVENT = {
    type_: system
    for system in SYSTEMS.values()
    for kind in (*system.events.values(), *system.others)
    for type_ in (kind, *kind.__subclasses__())
}
_EVENTS = {kind: event for system in SYSTEMS.values() for kind, event in system.events.items()}
_KINDS = {type_: kind for kind, event in _EVENTS.items() for type_ in (event, *event.__subclasses__())}
_WAITING: Mapping[WaitingKind, Decoder[Any]] = {kind: body_decoder(event) for kind, event in _EVENTS.items()}
_MEMORIES = {name: body_decoder(system.memory) for name, system in SYSTEMS.items()}


def system_of(name: SystemName | None) -> System[Any]:
    """The system of a cluster; Pulsar as long as none is known."""
    return SYSTEMS[name or "pulsar"]


def rounds_of(name: SystemName | None, base: HasSettings) -> RoundSettings:
    """The rounds of a cluster; Pulsar's as long as no system is known."""
    return system_of(name).rounds(base)


def all_rounds(base: HasSettings) -> list[RoundSettings]:
    """The rounds that a cluster may have whose system is not known."""
    return [system.rounds(base) for system in SYSTEMS.values()]


def waiting_of(event: Event, number: int) -> tuple[WaitingKey, Waiting] | None:
    """What waits of an event until its round closes, which is all of it; None for an event that goes into the header."""
    kind = _KINDS.get(type(event))
    if kind is None:
        return None
    return WaitingKey(number, kind, getattr(event, "broker", "")), cast("Waiting", event)


def event_of(kind: WaitingKind, waiting: Waiting) -> type[Event]:
    """The type of a waiting event, which one from the store no longer has by itself: ``BrokerLoad`` waits as a ``LoadReport``."""
    has_published = isinstance(waiting, LoadReport) and waiting.report.published is not None
    return BrokerLoad if has_published else _EVENTS[kind]


def decode_waiting(key: WaitingKey, value: bytes) -> Waiting:
    """A waiting event from bytes. Raises what ``state.layouts.unseal`` does."""
    waiting: Waiting = _WAITING[key.kind].decode(unseal(key.kind, value))
    return waiting


def decode_memory(name: SystemName | None, value: bytes | None) -> Any:
    """The memory of a cluster from bytes, an empty one for None. Raises what ``state.layouts.unseal`` does."""
    system = system_of(name)
    return system.memory() if value is None else _MEMORIES[system.name].decode(unseal(system.stored, value))


def shown_by(type_: type[Event]) -> SystemName | None:
    """The system that an event of this type shows; None where clusters of both have such events, and for facts alone."""
    system = _OF_EVENT.get(type_)
    return None if system is None or type_ in system.others else system.name


def limits_for(event: Event, known: SystemName | None, base: ClusterSettings) -> RoundSettings:
    """The rounds an event is judged by."""
    system = _OF_EVENT.get(type(event))
    return rounds_of(known or (None if system is None else system.name), base)


def wrong_system(event: Event, known: SystemName | None) -> Rejection | None:
    """Why a report of the other system is refused."""
    system = _OF_EVENT.get(type(event))
    if system is None or known is None or system.name == known:
        return None
    return Rejection(
        reason="wrong-system",
        detail=f"a report of a {system.name.capitalize()} cluster, and this name belongs to a {known.capitalize()} cluster: "
        f"give each cluster a name of its own, or start over with {FRESH}",
    )


def refuse_maintenance(event: Control, known: SystemName | None) -> Rejection | None:
    """Why a control event that asks for maintenance or drains in a Kafka cluster is refused."""
    if known != "kafka" or not event.data.has_maintenance:
        return None
    return Rejection(
        reason="wrong-system",
        detail="maintenance and drains are for Pulsar clusters, and this name belongs to a Kafka cluster, on which trimtab moves "
        "nothing: leave them out of the event",
    )
