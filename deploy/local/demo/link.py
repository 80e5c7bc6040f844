"""The fleet's connection to Kafka: load reports, topic statistics, ticks and results go out, decisions and round summaries come in.

It keeps the consumer's part of the contract: it reads only committed records, and after a record of a newer controller
it drops records of an older one of the same source (header `trimtab-epoch`). Threads must not share it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from deploy.local.demo.fleet import CLUSTER, BrokerNow, Result, Sweep
from state.outputs import RoundSummary, Split, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.contract.messages import (
    ActionResultMessage,
    Envelope,
    LoadReportMessage,
    TickData,
    TickMessage,
    TopicStatsMessage,
)
from streaming.kafka.client import close_producer
from streaming.process.closing import Closing
from streaming.settings import Settings

SOURCE = "/demo/fleet"
SEND_TIMEOUT_S = 15.0


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


_actions: dict[str, msgspec.json.Decoder[Unload] | msgspec.json.Decoder[Split]] = {
    UNLOAD_TYPE: msgspec.json.Decoder(Unload),
    SPLIT_TYPE: msgspec.json.Decoder(Split),
}
_summary = msgspec.json.Decoder(RoundSummary)
_encoder = msgspec.json.Encoder()


class Link(Closing):
    """A producer and a consumer of one fleet; a context manager that closes both."""

    def __init__(self, bootstrap: str, settings: Settings) -> None:
        names = settings.topics
        self._input = names.input
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._consumer.assign(
            [TopicPartition(name, 0) for name in (names.actions, names.actions_dry_run, names.audit)]
        )
        self._epochs: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        """Close both connections; what is not written within two seconds is given up."""
        self._consumer.close()
        close_producer(self._producer, wait_s=2)

    def report(self, sweep: Sweep) -> None:
        """Publish a sweep: every broker's report and topics, what finished, then the tick that completes it."""
        when = datetime.fromtimestamp(sweep.time_ms / 1000, UTC)
        self._send(reports_of(sweep))
        self.answer(sweep.finished, now_ms=sweep.time_ms)
        self._send([_tick(sweep, when)])

    def answer(self, results: Iterable[Result], *, now_ms: int) -> None:
        """Publish what became of actions."""
        self._send(results_of(results, now_ms=now_ms))

    def receive(self, wait_s: float) -> list[Decided | Closed]:
        """What became readable within ``wait_s``, a round's decisions before its summary."""
        batches = self._consumer.poll(timeout_ms=round(1000 * wait_s))
        received: list[Decided | Closed] = []
        for partition in sorted(batches):
            for record in batches[partition]:
                envelope = self._read(record.value, dict(record.headers))
                if envelope is not None:
                    received.append(envelope)
        return received

    def _read(self, value: bytes, headers: dict[str, bytes]) -> Decided | Closed | None:
        envelope = read_envelope(value)
        speaker = (envelope.source, envelope.cluster)
        epoch = int(headers.get(EPOCH_HEADER, b"0"))
        if envelope.cluster != CLUSTER or epoch < self._epochs.get(speaker, 0):
            return None
        self._epochs[speaker] = epoch
        return controllers(envelope)

    def _send(self, messages: Iterable[Envelope]) -> None:
        sent = [
            self._producer.send(self._input, key=CLUSTER.encode(), value=_encoder.encode(message))
            for message in messages
        ]
        for future in sent:
            future.get(timeout=SEND_TIMEOUT_S)


def controllers(envelope: ReadEnvelope[msgspec.Raw]) -> Decided | Closed | None:
    """The decision or round in an event of the controller; None for other events."""
    if envelope.type in _actions:
        return Decided(action_id=envelope.id, action=action_of(envelope.type, envelope.data))
    if envelope.type == ROUND_TYPE:
        lag_s = (datetime.now(UTC) - datetime.fromisoformat(envelope.time)).total_seconds()
        return Closed(summary=_summary.decode(envelope.data), lag_s=lag_s)
    return None


def action_of(type_: str, data: bytes | msgspec.Raw) -> Unload | Split:
    """The action of a CloudEvents type. Raises ``KeyError`` for a type that is no action."""
    return _actions[type_].decode(data)


def reports_of(sweep: Sweep) -> list[LoadReportMessage | TopicStatsMessage]:
    """The load reports and topic statistics of a sweep, as they are published."""
    when = datetime.fromtimestamp(sweep.time_ms / 1000, UTC)
    loads = [_report(broker, when) for broker in sweep.brokers]
    return [*loads, *(_topics(broker, when) for broker in sweep.brokers)]


def results_of(results: Iterable[Result], *, now_ms: int) -> list[ActionResultMessage]:
    """What became of actions, as it is published."""
    when = datetime.fromtimestamp(now_ms / 1000, UTC)
    return [_result(result, when) for result in results]


def _report(broker: BrokerNow, when: datetime) -> LoadReportMessage:
    return LoadReportMessage(
        specversion="1.0",
        id=f"{broker.broker}/{broker.report.lastUpdate}",
        source=SOURCE,
        subject=broker.broker,
        time=when,
        cluster=CLUSTER,
        data=broker.report,
    )


def _topics(broker: BrokerNow, when: datetime) -> TopicStatsMessage:
    return TopicStatsMessage(
        specversion="1.0",
        id=f"{broker.broker}/topics/{broker.report.lastUpdate}",
        source=SOURCE,
        subject=broker.broker,
        time=when,
        cluster=CLUSTER,
        data=broker.topics,
    )


def _tick(sweep: Sweep, when: datetime) -> TickMessage:
    return TickMessage(
        specversion="1.0",
        id=f"tick/{sweep.time_ms}",
        source=SOURCE,
        subject="tick",
        time=when,
        cluster=CLUSTER,
        data=TickData(asked=[broker.broker for broker in sweep.brokers]),
    )


def _result(result: Result, when: datetime) -> ActionResultMessage:
    return ActionResultMessage(
        specversion="1.0",
        id=f"result/{result.action_id}",
        source=SOURCE,
        subject=result.action_id,
        time=when,
        cluster=CLUSTER,
        data=result.data(),
    )
