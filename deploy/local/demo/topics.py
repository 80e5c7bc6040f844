"""What goes over the topics: the fleet's messages, and what the demo shows, which is all read back from the topics.

The reader keeps the consumer's part of the contract: it reads only committed records, and after a record of a newer
controller it drops records of an older one of the same source (header `trimtab-epoch`). A sweep is complete with its
tick; loads are those the brokers themselves report. Threads must not share it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from kafka import KafkaConsumer, TopicPartition

from deploy.local.demo.fleet import CLUSTER, BrokerNow, Result, Sweep
from state.events import Control, is_system_bundle
from state.outputs import RoundSummary, Split, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.decode import decode
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.contract.messages import (
    ActionResultData,
    ActionResultMessage,
    BrokerLoadData,
    BrokerLoadMessage,
    ControlMessage,
    Envelope,
    LoadReportMessage,
    LocalBrokerData,
    TickData,
    TickMessage,
    TopicLoad,
    TopicStatsMessage,
    type_of,
)
from streaming.process.closeable import Closeable
from streaming.settings import Settings, TopicNames

SOURCE = "/demo/fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An action that became readable."""

    action_id: str
    action: Unload | Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A round whose summary became readable, `lag_s` after its end."""

    summary: RoundSummary
    lag_s: float


Received = Sweep | Result | Decided | Closed | Control
_Topics = dict[str, dict[str, TopicLoad]]

_actions: dict[str, msgspec.json.Decoder[Unload] | msgspec.json.Decoder[Split]] = {
    UNLOAD_TYPE: msgspec.json.Decoder(Unload),
    SPLIT_TYPE: msgspec.json.Decoder(Split),
}
_report = msgspec.json.Decoder(LocalBrokerData)
_published = msgspec.json.Decoder(BrokerLoadData)
_topics = msgspec.json.Decoder(_Topics)


def action_of(type_: str, data: bytes | msgspec.Raw) -> Unload | Split:
    """The action of a CloudEvents type. Raises ``KeyError`` for a type that is no action."""
    return _actions[type_].decode(data)


def reports_of(sweep: Sweep) -> list[Envelope]:
    """The load reports and topic statistics of a sweep, as they are published."""
    now_ms, brokers = sweep.time_ms, sweep.brokers
    reports = [
        _event(LoadReportMessage, f"{each.broker}/{now_ms}", each.broker, now_ms, each.report)
        for each in brokers
    ]
    topics = [
        _event(TopicStatsMessage, f"{each.broker}/topics/{now_ms}", each.broker, now_ms, each.topics)
        for each in brokers
    ]
    return [*reports, *topics]


def results_of(results: Iterable[Result], *, now_ms: int) -> list[Envelope]:
    """What became of actions, as it is published."""
    return [
        _event(
            ActionResultMessage,
            f"result/{each.action_id}",
            each.action_id,
            now_ms,
            ActionResultData(outcome=each.outcome, reason=each.reason),
        )
        for each in results
    ]


def tick_of(sweep: Sweep) -> Envelope:
    """The tick that completes a sweep."""
    asked = [each.broker for each in sweep.brokers]
    return _event(TickMessage, f"tick/{sweep.time_ms}", "tick", sweep.time_ms, TickData(asked=asked))


def _event(message: Any, id_: str, subject: str, now_ms: int, data: object) -> Envelope:
    event: Envelope = message(
        specversion="1.0",
        id=id_,
        source=SOURCE,
        subject=subject,
        time=datetime.fromtimestamp(now_ms / 1000, UTC),
        cluster=CLUSTER,
        data=data,
    )
    return event


class Loads:
    """Puts together the events that are sent in one sweep.

    Usage is traffic as a share of ``capacity_messages_per_s``, what a broker may carry; None: it is that of the CPU.
    """

    def __init__(self, *, capacity_messages_per_s: float | None) -> None:
        self._capacity_messages_per_s = capacity_messages_per_s
        self._reports: dict[str, LocalBrokerData] = {}
        self._topics: dict[str, _Topics] = {}

    def report(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take a broker's load report."""
        self._reports[broker] = _report.decode(data)

    def published(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take what a broker with the extensible load manager published."""
        load = _published.decode(data)
        self._reports[broker] = LocalBrokerData(
            msgRateIn=load.msgRateIn, msgRateOut=load.msgRateOut, bundles=load.bundles
        )

    def topics(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take a broker's traffic by bundle and topic."""
        self._topics[broker] = _topics.decode(data)

    def tick(self, tick: TickData, time_ms: int) -> Sweep | None:
        """The sweep that is complete now; None where no broker answered."""
        brokers = [each for each in tick.asked if each not in tick.failed and each in self._reports]
        if not brokers:
            return None
        listed = {name for each in brokers for name in _bundles(self._reports[each])}
        now = tuple(map(self._broker_now, brokers))
        return Sweep(time_ms=time_ms, bundles_count=len(listed), brokers=now, finished=())

    def _broker_now(self, broker: str) -> BrokerNow:
        report = self._reports[broker]
        messages_per_s = (report.msgRateIn or 0.0) + (report.msgRateOut or 0.0)
        used, limit = messages_per_s, self._capacity_messages_per_s
        if limit is None:
            assert report.cpu is not None
            used, limit = report.cpu.usage or 0.0, report.cpu.limit or 1.0
        return BrokerNow(
            broker=broker,
            usage_points=100.0 * used / limit,
            messages_per_s=messages_per_s,
            bundles_count=len(_bundles(report)),
            report=report,
            topics=self._topics.get(broker, {}),
        )


def _bundles(report: LocalBrokerData) -> Sequence[str]:
    return [name for name in report.bundles or () if not is_system_bundle(name)]


class Topics(Closeable):
    """A consumer of all topics; a context manager that closes it."""

    def __init__(self, bootstrap: str, settings: Settings) -> None:
        self._loads = Loads(capacity_messages_per_s=settings.pulsar.capacity.messages_per_s)
        self._epochs: dict[str, int] = {}
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._consumer.assign([TopicPartition(name, 0) for name in _read_topics(settings.topics)])

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def receive(self, wait_s: float) -> list[Received]:
        """What became readable within ``wait_s``: decisions before their results and before their round's summary."""
        batches = self._consumer.poll(timeout_ms=round(1000 * wait_s))
        received = [
            event
            for partition in sorted(batches)
            for record in batches[partition]
            if record.value is not None
            and (event := self._read(record.value, dict(record.headers))) is not None
        ]
        return sorted(received, key=lambda each: isinstance(each, Result))

    def _read(self, value: bytes, headers: Mapping[str, bytes]) -> Received | None:
        event = read_envelope(value)
        if event.cluster != CLUSTER or self._is_outdated(event.source, headers):
            return None
        if event.type in _actions:
            return Decided(action_id=event.id, action=action_of(event.type, event.data))
        if event.type == ROUND_TYPE:
            lag_s = (datetime.now(UTC) - datetime.fromisoformat(event.time)).total_seconds()
            return Closed(summary=msgspec.json.decode(event.data, type=RoundSummary), lag_s=lag_s)
        if event.type == type_of(ActionResultMessage):
            data = msgspec.json.decode(event.data, type=ActionResultData)
            return Result(action_id=event.subject, outcome=data.outcome, reason=data.reason or "")
        if event.type == type_of(ControlMessage):
            _, control, _ = decode(value, key=CLUSTER)
            return control if isinstance(control, Control) else None
        return self._read_load(event)

    def _read_load(self, event: ReadEnvelope[msgspec.Raw]) -> Sweep | None:
        if event.type == type_of(TickMessage):
            tick = msgspec.json.decode(event.data, type=TickData)
            return self._loads.tick(tick, round(1000 * datetime.fromisoformat(event.time).timestamp()))
        take = {
            type_of(LoadReportMessage): self._loads.report,
            type_of(BrokerLoadMessage): self._loads.published,
            type_of(TopicStatsMessage): self._loads.topics,
        }.get(event.type)
        if take is not None:
            take(event.subject, event.data)
        return None

    def _is_outdated(self, source: str, headers: Mapping[str, bytes]) -> bool:
        epoch = int(headers.get(EPOCH_HEADER, b"0"))
        newest = self._epochs[source] = max(epoch, self._epochs.get(source, 0))
        return epoch < newest


def _read_topics(names: TopicNames) -> tuple[str, ...]:
    return names.input, names.actions, names.actions_dry_run, names.audit, names.control
