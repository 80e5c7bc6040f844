"""To which system a cluster belongs, and the change to Kafka's rounds when its first report says so.

A cluster belongs to the system of its first accepted report or statistics; until then its clock is a Pulsar cluster's, because ticks and
control events do not say. A first report of Kafka is judged by Kafka's rounds, and what came before it is sorted into
them, so that the order within the lateness changes nothing.
"""

from typing import Protocol

from state.engine import control
from state.engine.memory import Header, OpenRound, TickRecord
from state.engine.round_settings import RoundSettings
from state.events import (
    ClusterFacts,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    System,
    Tick,
    TopicStats,
)
from state.settings import ClusterSettings, KafkaSettings, PulsarSettings

_SYSTEMS: dict[type[Event], System] = {
    LoadReport: "pulsar",
    TopicStats: "pulsar",
    ClusterFacts: "pulsar",
    KafkaLoadReport: "kafka",
    Reassignment: "kafka",
}


class _OfBoth(Protocol):
    """Settings of both systems: of a cluster, or of the whole."""

    @property
    def pulsar(self) -> PulsarSettings: ...

    @property
    def kafka(self) -> KafkaSettings: ...


def rounds_of(system: System | None, base: _OfBoth) -> RoundSettings:
    """The rounds of a cluster; of one that nobody reported on, Pulsar's."""
    return base.kafka.rounds if system == "kafka" else base.pulsar.rounds


def limits_for(event: Event, known: System | None, base: ClusterSettings) -> RoundSettings:
    """The rounds an event is judged by."""
    return rounds_of(known or _SYSTEMS.get(type(event)), base)


def wrong_system(event: Event, known: System | None) -> Rejection | None:
    """Why a report of the other system is refused."""
    system = _SYSTEMS.get(type(event))
    if system is None or known is None or system == known:
        return None
    return Rejection(
        reason="wrong-system",
        detail=f"a report of a {system.capitalize()} cluster, and this name belongs to a {known.capitalize()} cluster: "
        f"give each cluster a name of its own, or start over with --fresh",
    )


def remember_tick(header: Header, event: Tick, base: ClusterSettings) -> None:
    """Keep the newest tick of each round that would be open for Kafka, while nobody knows whether they are."""
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


def adopt(header: Header, base: ClusterSettings) -> None:
    """Sort what is known of a cluster into Kafka's rounds."""
    rounds = base.kafka.rounds
    results = [result for open_round in header.rounds.values() for result in open_round.results]
    header.system, header.is_known, header.length_ms = "kafka", True, rounds.length_ms
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
    header.control = [control.moved(record, rounds, first_open=first_open) for record in header.control]
