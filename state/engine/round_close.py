"""A round closes on a copy of the cluster's memory, which takes its place only when the close succeeds.

So an error of ours ends one round and not the query, and what the round left half done is gone: its summary has the
outcome ``internal-error`` with class and place of the error, the memory is as before but for its clock, and the result
does not depend on where batches are cut. All that is stored has been read before, and is written after.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

from state import systems as adoption
from state.engine import control, forgetting, holds
from state.engine.bulkhead import PASSES_THROUGH, count_error, draft_of, place_of
from state.engine.memory import Fleet, Header, OpenRound, WaitingReport, WaitingTopics
from state.engine.store import WaitingKey
from state.engine.waiting import Waiting, silence_ms
from state.facts import Facts
from state.kafka import actions as throttles
from state.kafka import pursuit
from state.kafka import rounds as kafka_rounds
from state.kafka.memory import KafkaMemory, WaitingLogs, WaitingMoves
from state.outputs import Output, RoundSummary, output, rfc3339
from state.pulsar import effects, policy_memory, rounds, summary
from state.pulsar.groups import Groups
from state.pulsar.round_summary import control_in_force
from state.pulsar.rounds import ROUND_TYPE, Identity
from state.settings import MS_PER_S, ClusterSettings, RoundSettings, SettingsSource


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """What a close reads and replaces; of a Pulsar cluster no ``kafka``, of a Kafka cluster no ``fleet``."""

    header: Header
    fleet: Fleet | None = None
    """None also where the close has no use for it."""
    kafka: KafkaMemory | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round:
    """A round at its end."""

    cluster: str
    number: int
    waiting: Mapping[WaitingKey, Waiting]
    identity: Identity
    settings: SettingsSource


def needs_fleet(open_round: OpenRound) -> bool:
    """Whether the close of a Pulsar cluster's round looks at brokers and bundles."""
    return bool(open_round.spans) or open_round.facts is not None


def close(ended: Round, memory: Memory) -> tuple[Memory, list[Output]]:
    """The memory after the round, and what the round says; ``memory`` stays as it is."""
    draft = replace(memory, header=draft_of(memory.header))
    try:
        if forgetting.is_due(draft.header, ended.number, _rounds(ended, draft.header)):
            draft = _forgotten(draft, ended.number)
        if draft.kafka is not None:
            after, outputs = _close_kafka(ended, draft, draft.kafka)
        else:
            after, outputs = _close_pulsar(ended, draft)
        if outputs:
            after.header.error_rounds_count = 0
    except PASSES_THROUGH:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it must not end everyone's query
        after, outputs = _fail(ended, memory, error)
    del after.header.rounds[ended.number]
    after.header.next_round = ended.number + 1
    return after, outputs


def _rounds(ended: Round, header: Header) -> RoundSettings:
    return adoption.rounds_of(header.system, ended.settings.base(ended.cluster))


def _forgotten(draft: Memory, number: int) -> Memory:
    header = forgetting.emptied(draft.header, number)
    if draft.kafka is not None:
        return Memory(header=header, kafka=forgetting.emptied_throttle(draft.kafka))
    return Memory(header=header, fleet=Fleet() if header.is_known else None)


def _close_kafka(ended: Round, draft: Memory, kafka: KafkaMemory) -> tuple[Memory, list[Output]]:
    """A round of ticks alone counts too: nobody could be read, and a throttle may have to be made safe."""
    header, memory = draft.header, copy.copy(kafka)
    open_round = header.rounds[ended.number]
    for result in sorted(open_round.results):
        pursuit.hear(memory, result.action_id, result.outcome, at_ms=result.time_ms)
    after = Memory(header=header, kafka=memory)
    if not open_round.spans and open_round.tick is None:
        return after, []
    return after, kafka_rounds.close(
        ended.cluster,
        header,
        memory,
        {key.broker: each for key, each in ended.waiting.items() if isinstance(each, WaitingLogs)},
        next((each for each in ended.waiting.values() if isinstance(each, WaitingMoves)), None),
        number=ended.number,
        identity=ended.identity,
        settings=ended.settings,
    )


def _close_pulsar(ended: Round, draft: Memory) -> tuple[Memory, list[Output]]:
    header, fleet = draft.header, draft.fleet
    open_round = header.rounds[ended.number]
    header.ledger.apply_results(
        (each.action_id, each.outcome, each.time_ms) for each in sorted(open_round.results)
    )
    if fleet is not None and open_round.facts is not None:
        fleet = _obey(header, fleet, open_round.facts.facts)
    if fleet is None or not open_round.spans:
        return Memory(header=header, fleet=fleet), []
    fleet, outputs = rounds.close(
        ended.cluster,
        header,
        copy.copy(fleet),
        {key.broker: each for key, each in ended.waiting.items() if isinstance(each, WaitingReport)},
        {key.broker: each for key, each in ended.waiting.items() if isinstance(each, WaitingTopics)},
        number=ended.number,
        identity=ended.identity,
        settings=ended.settings,
    )
    return Memory(header=header, fleet=fleet), outputs


def _obey(header: Header, fleet: Fleet, facts: Facts) -> Fleet:
    before, after = Groups.of(header.facts), Groups.of(facts)
    header.facts = facts
    if before == after:
        return fleet
    moved = copy.copy(fleet)
    moved.policies = policy_memory.forget_moved(fleet.policies, before, after)
    return moved


def _fail(ended: Round, memory: Memory, error: Exception) -> tuple[Memory, list[Output]]:
    """The memory as before with its clock moved on, and a summary that says what happened."""
    header = draft_of(memory.header)
    end_ms = (ended.number + 1) * header.length_ms
    count_error(header, error, end_ms=end_ms)
    spoken = summary.fit(_summary(ended, header, error))
    spans = header.rounds[ended.number].spans
    # After a long silence the next round has to find it, too: to begin anew is part of what this one did not do.
    is_silence_over = silence_ms(header, ended.number) <= _rounds(ended, header).max_report_age_ms
    header.last_summary = ended.number
    if spans and is_silence_over:
        header.last_report_ms = spans[-1][1]
    said = output(
        kind="round",
        type_=ROUND_TYPE,
        subject="round",
        cluster=ended.cluster,
        number=ended.number,
        place=0,
        time_ms=end_ms,
        data=spoken,
        dry_run=spoken.mode == "dry-run",
        summary=spoken,
    )
    return replace(memory, header=header), [said]


def _summary(ended: Round, header: Header, error: Exception) -> RoundSummary:
    """What is known of the round without looking into what it was decided on."""
    number, tick = ended.number, header.rounds[ended.number].tick
    record = control.in_force(header, number)
    in_force = _settings(ended, record.overlay if record is not None else None)
    is_kafka = header.system == "kafka"
    reports = {
        key.broker: each.time_ms
        for key, each in ended.waiting.items()
        if isinstance(each, WaitingReport | WaitingLogs)
    }
    end_ms = (number + 1) * header.length_ms
    failing = holds.failing_since(header, in_force.pulsar.guards)
    return RoundSummary(
        cluster=ended.cluster,
        system="kafka" if is_kafka else "pulsar",
        round=number,
        start=rfc3339(number * header.length_ms),
        end=rfc3339(end_ms),
        gap_rounds=0 if header.last_summary is None else number - header.last_summary - 1,
        restarted=False,
        outcome="internal-error",
        reason=f"{place_of(error)}: a fault of trimtab; the round changed nothing but the clock. Please report it",
        policy=throttles.NAME if is_kafka else in_force.pulsar.shedding_policy,
        mode=ended.identity.mode if record is None or record.mode is None else record.mode,
        paused=record is not None and record.paused,
        failing_since=failing.get("unload"),
        splits_failing_since=None if is_kafka else failing.get("split"),
        other_balancers=None,
        last_actions=effects.counts(header.ledger),
        control=control_in_force(record, None),
        settings_digest=in_force.kafka_digest if is_kafka else in_force.digest,
        brokers_reporting_count=len(reports),
        brokers_live_count=len(reports),
        brokers_reporting=sorted(reports),
        brokers_missing_count=0,
        brokers_missing=[],
        brokers_excluded=[],
        brokers_asked=[] if tick is None else sorted(tick.asked),
        brokers_failed={} if tick is None else dict(tick.failed),
        reports_used_count=0,
        oldest_report_age_s=(end_ms - min(reports.values(), default=end_ms)) / MS_PER_S,
        usage=None,
        resources={},
        brokers=[],
        examined=summary.empty_section(),
        candidates=summary.empty_section(),
        splits=summary.empty_section(),
        findings=summary.empty_section(),
        actions_count=0,
        actions=[],
        throttle=None,
    )


def _settings(ended: Round, overlay: bytes | None) -> ClusterSettings:
    """Settings in force; those of the start where to read the overlay may be the very thing that failed."""
    base = ended.settings.base(ended.cluster)
    if overlay is None:
        return base
    try:
        return ended.settings.overlaid(ended.cluster, overlay)
    except PASSES_THROUGH:
        raise
    except Exception:  # noqa: BLE001  the error of the close is what is told
        return base
