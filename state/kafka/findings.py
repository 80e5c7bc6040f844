"""What no throttle can help: copies that wait for a broker which is not there, and copies that stand still.

The collector reports which brokers are alive. A broker that is alive and that no report came from counts as good as down only
after ``stale_after_rounds`` rounds: a client may know nothing of a broker that has just come back. Where reports do not say who
is alive, silence for as long means that a broker is down; so does its failure to answer if it never did.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from policies.throttle.copies import DISK, Copies, PartitionsByBroker, broken_copies, kept_replicas_down
from policies.throttle.needs import Needs, bytes_left, total_by_broker
from policies.throttle.pacing_round import PacingExplanation, stalled_followers
from policies.throttle.progress import Eta
from state.kafka.memory import KafkaMemory
from state.kafka.snapshot import Observation
from state.outputs import Finding
from state.summary import join_names

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What a round shows of brokers that are not there."""

    down: frozenset[int] = frozenset()
    """Brokers of the move that are not alive."""
    copies: PartitionsByBroker = field(default_factory=dict)
    """Partitions whose copies wait for a broker that is down or silent."""
    planned: PartitionsByBroker = field(default_factory=dict)
    """Partitions whose copies have not begun, and cannot while a broker is down or silent."""
    kept: PartitionsByBroker = field(default_factory=dict)
    """Partitions that keep a replica on a broker that is down, and wait for nothing else."""
    stalled: PartitionsByBroker = field(default_factory=dict)
    """Partitions of which nothing more arrives, by the broker that lacks it (``state.kafka.standstill``)."""

    @property
    def partitions_count(self) -> int:
        """Number of partitions whose copies wait."""
        return len({name for names in self.copies.values() for name in names})

    def __str__(self) -> str:
        """Who waits for whom, and what stands still; empty where nothing does."""
        said = (
            (" waits for", " wait for", self.copies),
            (
                ", which is planned, cannot begin without",
                ", which are planned, cannot begin without",
                self.planned,
            ),
            (" stands still at", " stand still at", self.stalled),
        )
        return "; ".join(
            f"{join_names(names, _NAMES_SHOWN)}{one if len(names) == 1 else several} broker {broker}"
            for one, several, found in said
            for broker, names in found.items()
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
                "and rates go up for minimums only. If it is gone for good, cancel these moves or move what it holds",
            )
        for broker, names in self.stalled.items():
            yield _finding(
                "copy-stalled",
                broker,
                names,
                f"nothing more of {join_names(names, _NAMES_SHOWN)} arrives at broker {broker}, although its other copies go on. No deadline and no ETA "
                "counts what it lacks. Look at its log and at the disk of that replica: the disk may be full, or have failed",
            )
        for broker, names in self.kept.items():
            yield _finding(
                "kept-replica-down",
                broker,
                names,
                f"broker {broker} is down and has a replica of {join_names(names, _NAMES_SHOWN)} that stays. Kafka with KAFKA-19975 (4.3.1) completes "
                "the move without it, an older one only once the broker is back",
            )


NOTHING_BROKEN = Broken()


def observe_broken(
    memory: KafkaMemory, observation: Observation, failed: Collection[str], *, stale_after_rounds: int
) -> Broken:
    """What the round shows; ``failed`` are the brokers that did not answer the collector. Counts silent rounds in ``memory``."""
    copies = observation.copies
    if copies is None:
        return NOTHING_BROKEN
    involved = copies.brokers()
    more = 1 if observation.brokers else 0  # a round without any report says nothing of a single broker
    memory.silent_rounds = {
        broker: memory.silent_rounds.get(broker, 0) + more
        for broker in sorted(involved)
        if broker not in observation.brokers
    }
    silent = {
        broker for broker, rounds_count in memory.silent_rounds.items() if rounds_count >= stale_after_rounds
    }
    if observation.live_brokers is None:
        never = {broker for broker in memory.silent_rounds if str(broker) not in memory.last_ms}
        down = silent | {broker for broker in never if str(broker) in failed}
    else:
        down = involved - observation.live_brokers
    begun = [broker for broker, absence in memory.absences.items() if absence.is_large]
    broken = broken_copies(copies.take_copies(observation.begun), down | silent, begun=begun)
    planned = broken_copies(copies.take_copies(~observation.begun), down | silent)
    kept = {  # what waits for nothing else
        broker: left
        for broker, names in kept_replicas_down(copies, down).items()
        if (left := [name for name in names if name not in broken.get(broker, ())])
    }
    return Broken(down=frozenset(down), copies=broken, planned=planned, kept=kept)


def find_stalled(copies: Copies, explanation: PacingExplanation) -> Iterator[Finding]:
    """One for each broker that falls behind in what it copies although the rates in force are above their minimums."""
    if explanation.eta is None or explanation.plan is None or not explanation.plan.feasible:
        return
    lacks = bytes_left(copies, counts_whole_logs=False) != 0
    for role in stalled_followers(explanation.eta):
        rows = copies.destinations.rows[
            lacks & copies.is_between_brokers() & (copies.destinations.brokers == role.broker)
        ]
        names = [copies.name(row) for row in np.unique(rows).tolist()]
        if names:
            yield _finding(
                "copy-stalled",
                role.broker,
                names,
                f"what broker {role.broker} lacks of {join_names(names, _NAMES_SHOWN)} does not shrink although its rate is above the minimum, so "
                "the throttle does not hold it up, and no rate is raised for the deadline. Look at its log and at its disks: they may be full, or "
                "have failed",
            )
    for broker in _stalled_disks(copies, explanation.needs, explanation.eta):
        moved = (copies.kind == DISK) & (copies.destinations.brokers == broker)
        names = [copies.name(row) for row in copies.destinations.rows[moved].tolist()]
        yield _finding(
            "copy-stalled",
            broker,
            names,
            f"none of what broker {broker} moves between its disks, {join_names(names, _NAMES_SHOWN)}, gets on although its rate is above the "
            "minimum, so the throttle does not hold it up. Look at its log and at its disks: they may be full, or have failed",
        )


def _stalled_disks(copies: Copies, needs: Needs | None, eta: Eta) -> Iterator[int]:
    """Brokers whose disk moves grow by what is written: those that wait for a thread do, the others get more than half their minimum."""
    if needs is None or eta.basis != "not-catching-up":
        return
    disks = copies.of_kind(DISK)
    written = total_by_broker(disks.brokers, copies.write_bytes_per_s[disks.rows])
    for role, shrinks in eta.slopes_bytes_per_s.items():
        grows, least = written.get(role.broker), needs.min_bytes_per_s.get(role)
        if not role.is_disk or shrinks > 0 or grows is None or least is None:
            continue
        if shrinks + grows <= least / 2:
            yield role.broker


def _finding(
    kind: Literal["broken-copy", "copy-stalled", "kept-replica-down"],
    broker: int,
    names: list[str],
    advice: str,
) -> Finding:
    return Finding(
        kind=kind,
        subject=join_names(names, _NAMES_SHOWN),
        broker=str(broker),
        bytes_per_s=None,
        advice=advice,
    )
