"""Which brokers of a move are not alive, what cannot go on because of that, and what a person is told about it.

The collector reports which brokers are alive. A broker that is alive and that no report came from counts as good as down only
after ``stale_rounds_count`` rounds: a client may know nothing of a broker that has just come back. Where reports do not say
who is alive, silence for as long means that a broker is down; so does its failure to answer if it never did.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from policies.throttle.moves import PartitionsByBroker, broken_copies, kept_replicas_down
from state.engine.summary import join_names
from state.kafka.memory import KafkaMemory
from state.kafka.snapshot import Observation
from state.outputs import Finding

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What a round shows of brokers that are not there."""

    down: frozenset[int] = frozenset()
    """Brokers of the move that are not alive."""
    copies: PartitionsByBroker = field(default_factory=dict)
    """Partitions whose copies wait for a broker that is down or silent."""
    kept: PartitionsByBroker = field(default_factory=dict)
    """Partitions that keep a replica on a broker that is down, and wait for nothing else."""

    @property
    def partitions_count(self) -> int:
        """Number of partitions whose copies wait."""
        return len({name for names in self.copies.values() for name in names})

    def __str__(self) -> str:
        """Who waits for whom; empty where nobody does."""
        return "; ".join(
            f"{join_names(names, _NAMES_SHOWN)} wait{'s' * (len(names) == 1)} for broker {broker}"
            for broker, names in self.copies.items()
        )

    def findings(self) -> Iterator[Finding]:
        """One for each broker that something waits for, and for each that is down and stays a replica."""
        for broker, names in self.copies.items():
            if broker in self.down:
                why = "is down: start it"
            else:
                why = "is alive, but no report of it comes: look for it under brokers_failed"
            yield _finding(
                "broken-copy",
                broker,
                names,
                f"broker {broker} {why}. Until then {join_names(names, _NAMES_SHOWN)} cannot be copied, nobody knows when the move is done, "
                "and rates go up for minimums only. If it is gone for good, cancel these moves",
            )
        for broker, names in self.kept.items():
            yield _finding(
                "kept-replica-down",
                broker,
                names,
                f"broker {broker} is down and has a replica of {join_names(names, _NAMES_SHOWN)} that stays. Kafka with KAFKA-19975 (4.3.1) completes "
                "the move without it, an older one only once the broker is back",
            )


def observe_broken(
    memory: KafkaMemory, observation: Observation, failed: Collection[str], *, stale_rounds_count: int
) -> Broken:
    """What the round shows; ``failed`` are the brokers that did not answer the collector. Counts silent rounds in ``memory``."""
    moves = observation.moves
    if moves is None:
        return Broken()
    involved = {*moves.sources.brokers.tolist(), *moves.added.brokers.tolist()}
    memory.silent_rounds = _silent_rounds(memory.silent_rounds, observation, involved)
    silent = {
        broker for broker, rounds_count in memory.silent_rounds.items() if rounds_count >= stale_rounds_count
    }
    if observation.live_brokers is None:
        never = {broker for broker in memory.silent_rounds if str(broker) not in memory.last_ms}
        down = silent | {broker for broker in never if str(broker) in failed}
    else:
        down = involved - observation.live_brokers
    copies = broken_copies(moves, down | silent)
    kept = _leave_out(kept_replicas_down(moves, down), copies)
    return Broken(down=frozenset(down), copies=copies, kept=kept)


def _silent_rounds(
    before: Mapping[int, int], observation: Observation, involved: Collection[int]
) -> dict[int, int]:
    """Rounds in a row without a report of each broker of the move. A round without any report says nothing of a single broker."""
    more = 1 if observation.brokers else 0
    return {
        broker: before.get(broker, 0) + more
        for broker in sorted(involved)
        if broker not in observation.brokers
    }


def _leave_out(kept: PartitionsByBroker, copies: PartitionsByBroker) -> PartitionsByBroker:
    left = {
        broker: [name for name in names if name not in copies.get(broker, ())]
        for broker, names in kept.items()
    }
    return {broker: names for broker, names in left.items() if names}


def _finding(
    kind: Literal["broken-copy", "kept-replica-down"], broker: int, names: list[str], advice: str
) -> Finding:
    return Finding(
        kind=kind,
        subject=join_names(names, _NAMES_SHOWN),
        broker=str(broker),
        bytes_per_s=None,
        advice=advice,
    )
