"""What the demo reads: the events of collector and executor on the input topic, and those of the application on the others.

A sweep is complete with its tick; loads are those the brokers themselves report. After a record of a newer controller,
records of an older one of the same source are dropped, as any consumer of actions must do.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from kafka import KafkaConsumer, TopicPartition

from deploy.local.demo.fleet import BrokerNow, BrokerReport, Result, Sweep
from deploy.local.demo.link import Closed, Decided, controllers
from state.events import is_system_bundle
from streaming.contract.envelope import EPOCH_HEADER, ReadEnvelope, read_envelope
from streaming.contract.messages import (
    ActionResultData,
    ActionResultMessage,
    BrokerLoadData,
    BrokerLoadMessage,
    LoadReportMessage,
    TickData,
    TickMessage,
    TopicLoad,
    TopicStatsMessage,
    type_of,
)
from streaming.process.closing import Closing
from streaming.settings import Settings

Received = Sweep | Result | Decided | Closed
_Topics = dict[str, dict[str, TopicLoad]]


_report = msgspec.json.Decoder(BrokerReport)
_published = msgspec.json.Decoder(BrokerLoadData)
_topics = msgspec.json.Decoder(_Topics)


class Loads:
    """Puts together the events that a collector sends in one sweep; ``capacity_messages_per_s`` is what a broker may carry."""

    def __init__(self, *, capacity_messages_per_s: float) -> None:
        self._capacity_messages_per_s = capacity_messages_per_s
        self._reports: dict[str, BrokerReport] = {}
        self._topics: dict[str, _Topics] = {}
        self._sweeps_count = 0

    def report(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take a broker's load report."""
        self._reports[broker] = _report.decode(data)

    def published(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take what a broker with the extensible load manager published."""
        load = _published.decode(data)
        owned = load.bundles or []
        self._reports[broker] = BrokerReport(
            webServiceUrl=f"http://{broker}",
            pulsarServiceUrl="",
            lastUpdate=load.updatedAt,
            numBundles=len(owned),
            msgRateIn=load.msgRateIn,
            msgRateOut=load.msgRateOut,
            bundles=owned,
        )

    def topics(self, broker: str, data: bytes | msgspec.Raw) -> None:
        """Take a broker's traffic by bundle and topic."""
        self._topics[broker] = _topics.decode(data)

    def tick(self, tick: TickData, time_ms: int) -> Sweep | None:
        """The sweep that is complete now; None where no broker answered."""
        brokers = [each for each in tick.asked if each not in tick.failed and each in self._reports]
        if not brokers:
            return None
        self._sweeps_count += 1
        now = tuple(self._broker_now(each) for each in brokers)
        listed = {name for each in now for name in _bundles(each.report)}
        return Sweep(
            number=self._sweeps_count, time_ms=time_ms, bundles_count=len(listed), brokers=now, finished=()
        )

    def _broker_now(self, broker: str) -> BrokerNow:
        report = self._reports[broker]
        messages_per_s = (report.msgRateIn or 0.0) + (report.msgRateOut or 0.0)
        return BrokerNow(
            broker=broker,
            usage_points=100.0 * messages_per_s / self._capacity_messages_per_s,
            messages_per_s=messages_per_s,
            bundles_count=len(_bundles(report)),
            report=report,
            topics=self._topics.get(broker, {}),
        )


def _bundles(report: BrokerReport) -> Sequence[str]:
    return [name for name in report.bundles or () if not is_system_bundle(name)]


class Hearing(Closing):
    """A consumer of all topics; a context manager that closes it."""

    def __init__(self, bootstrap: str, settings: Settings, *, cluster: str, loads: Loads) -> None:
        self._cluster = cluster
        self._loads = loads
        self._epochs: dict[str, int] = {}
        names = settings.topics
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        topics = (names.input, names.actions, names.actions_dry_run, names.audit)
        self._consumer.assign([TopicPartition(name, 0) for name in topics])

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def receive(self, wait_s: float) -> list[Received]:
        """What became readable within ``wait_s``: decisions before their results."""
        batches = self._consumer.poll(timeout_ms=round(1000 * wait_s))
        received = [
            envelope
            for partition in sorted(batches)
            for record in batches[partition]
            if (envelope := self._read_record(record.value, dict(record.headers))) is not None
        ]
        return sorted(received, key=lambda each: isinstance(each, Result))

    def _read_record(self, value: bytes, headers: Mapping[str, bytes]) -> Received | None:
        envelope = read_envelope(value)
        if envelope.cluster != self._cluster or self._is_outdated(envelope.source, headers):
            return None
        if envelope.type == type_of(ActionResultMessage):
            data = msgspec.json.decode(envelope.data, type=ActionResultData)
            return Result(action_id=envelope.subject, outcome=data.outcome, reason=data.reason or "")
        return controllers(envelope) or self._read_collector_record(envelope)

    def _read_collector_record(self, envelope: ReadEnvelope[msgspec.Raw]) -> Sweep | None:
        if envelope.type == type_of(LoadReportMessage):
            self._loads.report(envelope.subject, envelope.data)
        elif envelope.type == type_of(BrokerLoadMessage):
            self._loads.published(envelope.subject, envelope.data)
        elif envelope.type == type_of(TopicStatsMessage):
            self._loads.topics(envelope.subject, envelope.data)
        elif envelope.type == type_of(TickMessage):
            tick = msgspec.json.decode(envelope.data, type=TickData)
            return self._loads.tick(tick, round(1000 * datetime.fromisoformat(envelope.time).timestamp()))
        return None

    def _is_outdated(self, source: str, headers: Mapping[str, bytes]) -> bool:
        if EPOCH_HEADER not in headers:
            return False
        epoch = int(headers[EPOCH_HEADER])
        newest = self._epochs[source] = max(epoch, self._epochs.get(source, epoch))
        return epoch < newest
