"""A Pulsar cluster, as the engine sees it."""

import copy
from collections.abc import Mapping
from typing import Any

from state.closing import Closing
from state.events import BrokerLoad, ClusterFacts, Event, LoadReport, TopicStats
from state.memory import Header, OpenRound, Waiting, WaitingKey, WaitingKind
from state.outputs import Output
from state.pulsar import decide, groups
from state.pulsar.codec import (
    decode_fleet,
    decode_report,
    decode_topics,
    encode_fleet,
    encode_report,
    encode_topics,
)
from state.pulsar.groups import Groups
from state.pulsar.memory import Fleet, WaitingReport, WaitingTopics
from state.settings import ClusterSettings, RoundSettings
from state.system import HasSettings, System


class Pulsar(System[Fleet]):
    """The system of Pulsar clusters; the memory of one is its fleet."""

    name = "pulsar"
    report = "report"
    events = {"report": LoadReport, "topics": TopicStats}  # noqa: RUF012  a class variable by its base
    others = (ClusterFacts,)

    def rounds(self, settings: HasSettings) -> RoundSettings:
        return settings.pulsar.rounds

    def policy(self, settings: ClusterSettings) -> str:
        return settings.pulsar.shedding_policy

    def waiting_of(self, event: Event) -> tuple[WaitingKind, str, Waiting] | None:
        match event:
            case LoadReport():
                return "report", event.broker, WaitingReport(event.time_ms, event.id, event.report)
            case TopicStats():
                return "topics", event.broker, WaitingTopics(event.time_ms, event.id, event.traffic)
        return None

    def event_of(self, kind: WaitingKind, waiting: Waiting) -> type[Event]:
        has_published = isinstance(waiting, WaitingReport) and waiting.report.published is not None
        return BrokerLoad if has_published else self.events[kind]

    def encode_waiting(self, waiting: Any) -> bytes:
        return encode_report(waiting) if isinstance(waiting, WaitingReport) else encode_topics(waiting)

    def decode_waiting(self, kind: WaitingKind, value: bytes) -> Waiting:
        return decode_report(value) if kind == "report" else decode_topics(value)

    def encode(self, memory: Fleet) -> bytes:
        return encode_fleet(memory)

    def decode(self, value: bytes | None) -> Fleet:
        return Fleet() if value is None else decode_fleet(value)

    def forgotten(self, memory: Fleet) -> Fleet:  # noqa: ARG002  nothing of it stays
        return Fleet()

    def needs_memory(self, open_round: OpenRound) -> bool:
        return bool(open_round.spans) or open_round.facts is not None

    def observe(self, header: Header, memory: Fleet | None, open_round: OpenRound) -> Fleet | None:
        header.ledger.apply_results(
            (result.action_id, result.outcome, result.time_ms) for result in sorted(open_round.results)
        )
        if memory is None or open_round.facts is None:
            return memory
        before, after = Groups.from_facts(header.facts), Groups.from_facts(open_round.facts.facts)
        header.facts = open_round.facts.facts
        if before == after:
            return memory
        moved = copy.copy(memory)
        moved.policies = groups.forget_moved_brokers(memory.policies, before, after)
        return moved

    def has_summary(self, header: Header, open_round: OpenRound) -> bool:  # noqa: ARG002  Kafka's asks for it
        return bool(open_round.spans)

    def decide(
        self, closing: Closing, header: Header, memory: Fleet, waiting: Mapping[WaitingKey, Any]
    ) -> tuple[Fleet, list[Output]]:
        reports = {key.broker: report for key, report in waiting.items() if key.kind == "report"}
        topics = {key.broker: statistics for key, statistics in waiting.items() if key.kind == "topics"}
        return decide.decide(closing, header, copy.copy(memory), reports, topics)
