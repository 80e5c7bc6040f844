"""A Pulsar cluster, as the engine sees it."""

import copy
from collections.abc import Mapping
from typing import Any

from state.closing import Closing
from state.events import ClusterFacts, LoadReport, TopicStats
from state.memory import Header, OpenRound, WaitingKey
from state.outputs import Output
from state.pulsar import decide, groups
from state.pulsar.groups import Groups
from state.pulsar.memory import Fleet
from state.settings import ClusterSettings, RoundSettings
from state.system import HasSettings, System


class Pulsar(System[Fleet]):
    """The system of Pulsar clusters; the memory of one is its fleet."""

    name = "pulsar"
    report = "report"
    events = {"report": LoadReport, "topics": TopicStats}  # noqa: RUF012  a class variable by its base
    others = (ClusterFacts,)
    stored = "fleet"
    memory = Fleet

    def rounds(self, settings: HasSettings) -> RoundSettings:
        return settings.pulsar.rounds

    def policy(self, settings: ClusterSettings) -> str:
        return settings.pulsar.shedding_policy

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
