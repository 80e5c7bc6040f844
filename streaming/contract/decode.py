"""From a record's bytes to an event, or to the reason for refusing it; one pass over the JSON, numbers straight to columns.

Nothing here raises for a bad record. The good path is one typed decode; only a record that fails it is looked at
again (``diagnose``) to name what is wrong.
"""

from datetime import UTC, datetime

import msgspec

from state.events import (
    ActionResult,
    Approval,
    BrokerLoad,
    ClusterFacts,
    Control,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    RejectReason,
    Tick,
    TopicStats,
)
from state.outputs import rfc3339
from state.summary import MAX_REMARK_CHARACTERS
from state.upkeep import Spell, Upkeep
from streaming.contract.diagnose import diagnose
from streaming.contract.kafka import BadReport, broker_logs, moves_report
from streaming.contract.messages import (
    MAX_UNOWNED_COUNT,
    PAUSED_REASON,
    SHOWN_CHARACTERS,
    ActionResultMessage,
    ApprovalMessage,
    BrokerLoadMessage,
    CommonMessage,
    ControlData,
    ControlMessage,
    KafkaLoadReportMessage,
    KafkaMessage,
    LoadReportMessage,
    Message,
    PulsarClusterMessage,
    PulsarMessage,
    SpellData,
    TickData,
    TickMessage,
    TopicStatsMessage,
)
from streaming.contract.pulsar import Refusal, broker_report, facts_of, published_report, topic_traffic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9000
"""Events from this year on are refused: round ends and expiry times computed from them would be outside the calendar."""

_decoder = msgspec.json.Decoder(Message)


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded down."""
    delta = moment - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1000 + delta.microseconds // 1000


def decode(
    value: bytes | None,
    *,
    key: str | None = None,
) -> tuple[str, Event | Rejection, int | None]:
    """The cluster of a record, its event or the reason why it is refused, and the append time that the record itself gives.

    ``key`` is the record's key, None where there is none to compare (files). The
    cluster of a refused record is empty unless it is valid and equal to the key.
    """
    if value is None:
        detail = "the record has no value: an event was expected, not a tombstone"
        return "", Rejection(reason="not-json", detail=detail), None
    try:
        message = _decoder.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return *diagnose(value, key, error), None
    if key is not None and key != message.cluster:
        detail = f"the record's key is {key[:SHOWN_CHARACTERS]!r}, its cluster {message.cluster!r}: they must be equal"
        return "", Rejection(reason="cluster-mismatch", detail=detail), None
    try:
        _check_attributes(message)
        event = _kafka_event(message) if isinstance(message, KafkaMessage) else _event(message)
    except Refusal as refused:
        return message.cluster, refused.rejection, None
    except BadReport as error:
        return message.cluster, Rejection(reason="bad-data", detail=str(error)), None
    return message.cluster, event, None if message.recordedtime is None else to_ms(message.recordedtime)


def _check_attributes(message: Message) -> None:
    if message.datacontenttype is not None and not message.datacontenttype.startswith("application/json"):
        detail = (
            f"datacontenttype is {message.datacontenttype[:SHOWN_CHARACTERS]!r}, expected 'application/json'"
        )
        raise Refusal(Rejection(reason="not-cloudevent", detail=detail))
    _check_time("time", message.time, reason="bad-time")
    if message.recordedtime is not None:
        _check_time("recordedtime", message.recordedtime, reason="bad-time")


def _check_time(name: str, moment: datetime, *, reason: RejectReason) -> None:
    if moment < _EPOCH or moment.year >= _LAST_YEAR:
        detail = f"{name} {moment.isoformat()} is not between 1970 and {_LAST_YEAR}"
        raise Refusal(Rejection(reason=reason, detail=detail))


def _event(message: PulsarMessage | CommonMessage) -> Event:
    id_, time_ms = message.id, to_ms(message.time)
    match message:
        case LoadReportMessage() | BrokerLoadMessage():
            return _load_report(message, id_=id_, time_ms=time_ms)
        case TopicStatsMessage():
            return TopicStats(
                id=id_,
                time_ms=time_ms,
                broker=message.subject,
                traffic=topic_traffic(message.data),
            )
        case TickMessage(data=data):
            return Tick(
                id=id_,
                time_ms=time_ms,
                asked=tuple(sorted(data.asked)),
                failed=tuple(sorted(data.failed.items())),
                unowned=_unowned(data),
                unowned_count=max(len(data.unowned or ()), data.unowned_count or 0),
            )
        case ActionResultMessage(data=result):
            return ActionResult(
                id=id_,
                time_ms=time_ms,
                action_id=message.subject,
                outcome=result.outcome,
                is_held=result.outcome == "skipped" and (result.reason or "").startswith(PAUSED_REASON),
            )
        case PulsarClusterMessage(data=found):
            return ClusterFacts(id=id_, time_ms=time_ms, facts=facts_of(found))
        case ApprovalMessage() | ControlMessage():
            return _event_of_person(message)


def _unowned(data: TickData) -> tuple[tuple[str, int], ...]:
    found = sorted((data.unowned or {}).items())[:MAX_UNOWNED_COUNT]
    return tuple((name, to_ms(since)) for name, since in found)


def _event_of_person(message: ApprovalMessage | ControlMessage) -> Approval | Control:
    """The event of a message that a person sent."""
    id_, time_ms = message.id, to_ms(message.time)
    match message:
        case ApprovalMessage(data=word):
            return Approval(
                id=id_,
                time_ms=time_ms,
                proposal_id=message.subject,
                verdict=word.verdict,
                who=(word.who or "")[:MAX_REMARK_CHARACTERS],
                why=(word.why or "")[:MAX_REMARK_CHARACTERS],
            )
        case ControlMessage(data=overlay):
            return Control(
                id=id_,
                time_ms=time_ms,
                paused=overlay.paused,
                mode=overlay.mode,
                overlay=msgspec.json.encode(overlay.settings, order="sorted"),
                who=(overlay.who or "")[:MAX_REMARK_CHARACTERS],
                why=(overlay.why or "")[:MAX_REMARK_CHARACTERS],
                resumed_ms=_resumed_ms(overlay, time_ms),
                until_ms=_until_ms(overlay),
                forget=overlay.forget,
                upkeep=_upkeep(overlay),
                approval=overlay.approval,
            )


def _load_report(message: LoadReportMessage | BrokerLoadMessage, *, id_: str, time_ms: int) -> LoadReport:
    broker = (message.cluster, message.subject)
    if isinstance(message, BrokerLoadMessage):
        kind: type[LoadReport] = BrokerLoad
        report = published_report(message.data, broker)
    else:
        kind, report = LoadReport, broker_report(message.data, broker)
    return kind(
        id=id_,
        time_ms=time_ms,
        broker=message.subject,
        report=report,
    )


def _resumed_ms(overlay: ControlData, time_ms: int) -> int | None:
    if overlay.resumed_at is None:
        return None
    _check_time("resumed_at", overlay.resumed_at, reason="bad-data")
    resumed_ms = to_ms(overlay.resumed_at)
    if resumed_ms > time_ms:
        detail = (
            f"resumed_at is {rfc3339(resumed_ms)}, after the event's own time {rfc3339(time_ms)}: nobody can know yet "
            "that later actions work"
        )
        raise Refusal(Rejection(reason="bad-data", detail=detail))
    return resumed_ms


def _until_ms(overlay: ControlData) -> int | None:
    if overlay.until is None:
        return None
    _check_time("until", overlay.until, reason="bad-data")
    return to_ms(overlay.until)


def _upkeep(overlay: ControlData) -> Upkeep:
    return Upkeep(
        *(
            {name: _spell(f"{what} {name[:SHOWN_CHARACTERS]}", each) for name, each in sorted(spells.items())}
            for what, spells in (
                ("maintenance_brokers", overlay.maintenance_brokers),
                ("maintenance_namespaces", overlay.maintenance_namespaces),
                ("drained_brokers", overlay.drained_brokers),
            )
        )
    )


def _spell(name: str, spell: SpellData) -> Spell:
    _check_time(f"since of {name}", spell.since, reason="bad-data")
    if spell.until is not None:
        _check_time(f"until of {name}", spell.until, reason="bad-data")
    return Spell(
        since_ms=to_ms(spell.since),
        until_ms=None if spell.until is None else to_ms(spell.until),
        who=(spell.who or "")[:MAX_REMARK_CHARACTERS],
        why=(spell.why or "")[:MAX_REMARK_CHARACTERS],
    )


def _kafka_event(message: KafkaMessage) -> KafkaLoadReport | Reassignment:
    """The event of a message about a Kafka cluster. Raises ``BadReport``."""
    id_, time_ms = message.id, to_ms(message.time)
    if isinstance(message, KafkaLoadReportMessage):
        return KafkaLoadReport(
            id=id_,
            time_ms=time_ms,
            broker=message.subject,
            logs=broker_logs(message.data, subject=message.subject),
        )
    return Reassignment(
        id=id_,
        time_ms=time_ms,
        report=moves_report(message.data),
    )
