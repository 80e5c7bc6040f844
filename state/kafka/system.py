"""A Kafka cluster, as the engine sees it."""

import copy
from collections.abc import Mapping
from typing import Any

from state.closing import Closing
from state.events import KafkaLoadReport, Reassignment
from state.kafka import decide, reconcile
from state.kafka.actions import NAME
from state.kafka.memory import KafkaMemory
from state.memory import Header, OpenRound, WaitingKey
from state.outputs import Output
from state.settings import ClusterSettings, RoundSettings
from state.system import HasSettings, System


class Kafka(System[KafkaMemory]):
    """The system of Kafka clusters; the memory of one is that of its throttle."""

    name = "kafka"
    report = "logs"
    events = {"logs": KafkaLoadReport, "moves": Reassignment}  # noqa: RUF012  a class variable by its base
    others = ()
    stored = "kafka"
    memory = KafkaMemory

    def rounds(self, settings: HasSettings) -> RoundSettings:
        return settings.kafka.rounds

    def policy(self, settings: ClusterSettings) -> str:  # noqa: ARG002  there is one
        return NAME

    def forgotten(self, memory: KafkaMemory) -> KafkaMemory:
        """A throttle of ours that is or may be in force stays in the memory: otherwise nothing would take it off the brokers."""
        return KafkaMemory(
            pacing=memory.pacing,
            is_shadow=memory.is_shadow,
            asked=memory.asked,
            confirmed=memory.confirmed,
            attempted=memory.attempted,
            failures_count=memory.failures_count,
        )

    def needs_memory(self, open_round: OpenRound) -> bool:  # noqa: ARG002  a result changes it, too
        return True

    def observe(
        self,
        header: Header,
        memory: KafkaMemory | None,
        open_round: OpenRound,
    ) -> KafkaMemory:
        after = KafkaMemory() if memory is None else copy.copy(memory)
        if open_round.results:
            header.ledger.unanswered = None  # somebody answers
        for result in sorted(open_round.results):
            reconcile.apply_result(after, result.action_id, result.outcome, at_ms=result.time_ms)
        return after

    def has_summary(self, header: Header, open_round: OpenRound) -> bool:
        """A round with only ticks has one too, after the first round with a report: a throttle may have to be made safe."""
        return bool(open_round.spans) or (open_round.tick is not None and header.last_summary is not None)

    def decide(
        self, closing: Closing, header: Header, memory: KafkaMemory, waiting: Mapping[WaitingKey, Any]
    ) -> tuple[KafkaMemory, list[Output]]:
        reports = {key.broker: report for key, report in waiting.items() if key.kind == "logs"}
        copies = next((value for key, value in waiting.items() if key.kind == "moves"), None)
        return memory, decide.decide(closing, header, memory, reports, copies)
