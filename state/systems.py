"""The two systems: which one a cluster belongs to, and the change to Kafka's rounds when its first report is from Kafka.

A cluster belongs to the system of its first accepted report or statistics; until then its clock is a Pulsar cluster's, because ticks and
control events do not show the system. A first report of Kafka is judged by Kafka's rounds, and earlier events are sorted into
them, so that the order within the lateness changes nothing.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from state.engine import control
from state.engine.memory import Header, OpenRound, TickRecord
from state.engine.store import WaitingKey, WaitingKind
from state.engine.system import HasSettings, System, Waiting
from state.events import Control, Event, Rejection, Tick
from state.events import System as SystemName
from state.kafka import restoring
from state.kafka.system import Kafka
from state.outputs import Output
from state.outputs.types import THROTTLE_TYPE
from state.pulsar.system import Pulsar
from state.round_settings import RoundSettings
from state.settings import ClusterSettings

SYSTEMS: Mapping[SystemName, System[Any]] = {each.name: each for each in (Pulsar(), Kafka())}
_OF_EVENT = {
    type_: each
    for each in SYSTEMS.values()
    for kind in (*each.events.values(), *each.others)
    for type_ in (kind, *kind.__subclasses__())
}
_OF_KIND = {kind: each for each in SYSTEMS.values() for kind in each.events}


def system_of(name: SystemName | None) -> System[Any]:
    """The system of a cluster; Pulsar as long as no report has come."""
    return SYSTEMS[name or "pulsar"]


def rounds_of(name: SystemName | None, base: HasSettings) -> RoundSettings:
    """The rounds of a cluster; Pulsar's as long as no report has come."""
    return system_of(name).rounds(base)


def waiting_of(event: Event, number: int) -> tuple[WaitingKey, Waiting] | None:
    """The part of an event that waits until its round closes; None for an event that goes into the header."""
    system = _OF_EVENT.get(type(event))
    found = None if system is None else system.waiting_of(event)
    return None if found is None else (WaitingKey(number, found[0], found[1]), found[2])


def event_of(kind: WaitingKind, waiting: Waiting) -> type[Event]:
    """The type of a waiting event."""
    return _OF_KIND[kind].event_of(kind, waiting)


def encode_waiting(key: WaitingKey, waiting: Waiting) -> bytes:
    """Bytes of a waiting event."""
    return _OF_KIND[key.kind].encode_waiting(waiting)


def decode_waiting(key: WaitingKey, value: bytes) -> Waiting:
    """A waiting event from bytes. Raises what ``state.engine.layouts.unseal`` does."""
    return _OF_KIND[key.kind].decode_waiting(key.kind, value)


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
        f"give each cluster a name of its own, or start over with --fresh",
    )


def refuse_upkeep(event: Control, known: SystemName | None) -> Rejection | None:
    """Why a control event that asks for maintenance or drains in a Kafka cluster is refused."""
    if known != "kafka" or not event.upkeep:
        return None
    return Rejection(
        reason="wrong-system",
        detail="maintenance and drains are for Pulsar clusters, and this name belongs to a Kafka cluster, on which trimtab moves "
        "nothing: leave them out of the event",
    )


def remember_tick(header: Header, event: Tick, base: ClusterSettings) -> None:
    """Keep the newest tick of each round that would be open for Kafka, as long as the cluster's system is not known."""
    if header.system is not None:
        header.early_ticks = []
        return
    rounds = base.kafka.rounds
    newest_ms = max(event.time_ms, header.newest_ms or event.time_ms)
    oldest_ms = newest_ms - rounds.lateness_ms - rounds.length_ms
    tick = TickRecord(event.time_ms, event.id, event.asked, event.failed)
    newest: dict[int, TickRecord] = {}
    for each in [*header.early_ticks, tick]:
        number = each.time_ms // rounds.length_ms
        known = newest.get(number)
        is_newer = known is None or (known.time_ms, known.id) < (each.time_ms, each.id)
        if is_newer and oldest_ms <= each.time_ms <= newest_ms:
            newest[number] = each
    header.early_ticks = list(newest.values())


def is_late(event: Event, header: Header, base: ClusterSettings) -> bool:
    """Whether a Kafka cluster's first report is too late for Kafka's rounds."""
    if header.newest_ms is None:
        return False
    rounds = base.kafka.rounds
    return event.time_ms // rounds.length_ms < (header.newest_ms - rounds.lateness_ms) // rounds.length_ms


def throttles_of(actions: Iterable[Output]) -> list[Output]:
    """The throttles among ``actions``, which only a Kafka cluster has: what one sets lasts until another one takes it off."""
    return [each for each in actions if each.type == THROTTLE_TYPE]


def with_throttles(memory: Any, published: Iterable[Output]) -> Any:
    """A Kafka cluster's memory, with the published throttles of rounds that no event closed."""
    after = copy.copy(memory)
    restoring.restore(after, published)
    return after


def adopt(header: Header, type_: type[Event], base: ClusterSettings) -> bool:
    """Note the system of a cluster from its first report; False if events of this type do not show it, or if it is known."""
    system = _OF_EVENT.get(type_)
    if header.system is not None or system is None or type_ in system.others:
        return False
    if system.name == "kafka":
        _adopt_kafka(header, base)
    header.system = system.name
    header.control = control.needed_records(header.control)
    return True


def _adopt_kafka(header: Header, base: ClusterSettings) -> None:
    """Sort what is known about a cluster into Kafka's rounds."""
    rounds = base.kafka.rounds
    results = [result for open_round in header.rounds.values() for result in open_round.results]
    header.is_known, header.length_ms = True, rounds.length_ms
    header.rounds = {}
    if header.newest_ms is not None:
        header.next_round = (header.newest_ms - rounds.lateness_ms) // rounds.length_ms
    first_open = header.next_round
    for tick in header.early_ticks:
        number = tick.time_ms // rounds.length_ms
        if first_open is None or number >= first_open:
            header.rounds.setdefault(number, OpenRound()).tick = tick
    for result in results:
        number = result.time_ms // rounds.length_ms
        if first_open is None or number >= first_open:
            header.rounds.setdefault(number, OpenRound()).results.append(result)
    header.early_ticks = []
    header.control = [
        control.move_to_round(record, rounds, first_open=first_open) for record in header.control
    ]
