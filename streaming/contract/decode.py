"""From a record's bytes to an event, or to the reason for refusing it; one pass over the JSON, numbers straight to columns.

Nothing here raises for a bad record. The good path is one typed decode; only a record that fails it is looked at
again (``diagnose``) to name what is wrong.
"""

from dataclasses import replace
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
from state.overlay import ControlData, MaintenanceWindow, epoch_ms, moment_at
from state.summary import MAX_REMARK_CHARACTERS
from streaming.contract.diagnose import diagnose
from streaming.contract.kafka import broker_logs, copies_report
from streaming.contract.messages import (
    MAX_UNOWNED_COUNT,
    PAUSED_REASON,
    SHOWN_CHARACTERS,
    ActionResultMessage,
    ApprovalMessage,
    BrokerLoadMessage,
    CommonMessage,
    ControlMessage,
    KafkaLoadReportMessage,
    KafkaMessage,
    LoadReportMessage,
    Message,
    PulsarClusterMessage,
    PulsarMessage,
    ReassignmentMessage,
    TickMessage,
    TopicStatsMessage,
    type_of,
)
from streaming.contract.pulsar import facts_of, local_report, published_report, topic_traffic
from streaming.contract.refusal import Refusal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9000
"""Events from this year on are refused: round ends and expiry times computed from them would be outside the calendar."""

_DEEPEST_SETTINGS = 100
"""Far above any table of the settings, and far below the depth at which Python no longer encodes a value."""

_decoder = msgspec.json.Decoder(Message)


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
        return "", Rejection(reason="cluster-mismatch", detail=detail, type=type_of(type(message))), None
    try:
        _check_attributes(message)
        event = _common_event(message) if isinstance(message, CommonMessage) else _system_event(message)
    except Refusal as refused:
        return message.cluster, replace(refused.rejection, type=type_of(type(message))), None
    return message.cluster, event, None if message.recordedtime is None else epoch_ms(message.recordedtime)


def _check_attributes(message: Message) -> None:
    if message.datacontenttype is not None and not message.datacontenttype.startswith("application/json"):
        detail = (
            f"datacontenttype is {message.datacontenttype[:SHOWN_CHARACTERS]!r}, expected 'application/json'"
        )
        raise Refusal("not-cloudevent", detail)
    _check_time("time", message.time, reason="bad-time")
    if message.recordedtime is not None:
        _check_time("recordedtime", message.recordedtime, reason="bad-time")


def _check_time(name: str, moment: datetime, *, reason: RejectReason) -> None:
    if moment < _EPOCH or moment.year >= _LAST_YEAR:
        detail = f"{name} {moment.isoformat()} is not between 1970 and {_LAST_YEAR}"
        raise Refusal(reason, detail)


def _system_event(message: PulsarMessage | KafkaMessage) -> Event:
    """The event of a message about clusters of one system. Raises ``Refusal``."""
    id_, time_ms = message.id, epoch_ms(message.time)
    match message:
        case LoadReportMessage(data=load):
            broker = message.subject
            return LoadReport(
                id=id_, time_ms=time_ms, broker=broker, report=local_report(load, (message.cluster, broker))
            )
        case BrokerLoadMessage(data=load):
            broker = message.subject
            return BrokerLoad(
                id=id_,
                time_ms=time_ms,
                broker=broker,
                report=published_report(load, (message.cluster, broker)),
            )
        case TopicStatsMessage(data=stats):
            return TopicStats(id=id_, time_ms=time_ms, broker=message.subject, traffic=topic_traffic(stats))
        case KafkaLoadReportMessage(data=load):
            broker = message.subject
            return KafkaLoadReport(
                id=id_, time_ms=time_ms, broker=broker, logs=broker_logs(load, subject=broker)
            )
        case ReassignmentMessage(data=moves):
            return Reassignment(id=id_, time_ms=time_ms, report=copies_report(moves))
        case PulsarClusterMessage(data=found):
            return ClusterFacts(id=id_, time_ms=time_ms, facts=facts_of(found))


def _common_event(message: CommonMessage) -> Event:
    """The event of a message that there is for both systems. Raises ``Refusal``."""
    id_, time_ms = message.id, epoch_ms(message.time)
    match message:
        case TickMessage(data=tick):
            unowned = sorted((tick.unowned or {}).items())
            return Tick(
                id=id_,
                time_ms=time_ms,
                asked=tuple(sorted(tick.asked)),
                failed=tuple(sorted(tick.failed.items())),
                unowned=tuple((name, epoch_ms(since)) for name, since in unowned[:MAX_UNOWNED_COUNT]),
                unowned_count=max(len(unowned), tick.unowned_count or 0),
            )
        case ActionResultMessage(data=result):
            return ActionResult(
                id=id_,
                time_ms=time_ms,
                action_id=message.subject,
                outcome=result.outcome,
                is_held=result.outcome == "skipped" and (result.reason or "").startswith(PAUSED_REASON),
            )
        case ApprovalMessage(data=answer):
            return Approval(
                id=id_,
                time_ms=time_ms,
                proposal_id=message.subject,
                verdict=answer.verdict,
                who=(answer.who or "")[:MAX_REMARK_CHARACTERS],
                why=(answer.why or "")[:MAX_REMARK_CHARACTERS],
            )
        case ControlMessage(data=overlay):
            return Control(id=id_, time_ms=time_ms, data=_checked_overlay(overlay, time_ms))


def _checked_overlay(data: ControlData, time_ms: int) -> ControlData:
    """The data of an event of this time with keys in order, remarks cut and whole milliseconds in UTC. Raises ``Refusal``."""
    _check_depth(data.settings)
    return msgspec.structs.replace(
        data,
        settings=msgspec.to_builtins(data.settings, order="sorted"),
        who=(data.who or "")[:MAX_REMARK_CHARACTERS],
        why=(data.why or "")[:MAX_REMARK_CHARACTERS],
        resumed_at=_checked_resumption(data.resumed_at, time_ms),
        until=_checked_moment("until", data.until),
        maintenance_brokers=_checked_windows("maintenance_brokers", data.maintenance_brokers),
        maintenance_namespaces=_checked_windows("maintenance_namespaces", data.maintenance_namespaces),
        drained_brokers=_checked_windows("drained_brokers", data.drained_brokers),
    )


def _check_depth(settings: dict[str, object]) -> None:
    level: list[object] = [settings]
    for _ in range(_DEEPEST_SETTINGS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        detail = f"settings are nested more than {_DEEPEST_SETTINGS} levels deep: expected tables as in trimtab.toml"
        raise Refusal("bad-settings", detail)


def _checked_moment(name: str, moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    _check_time(name, moment, reason="bad-data")
    return moment_at(epoch_ms(moment))


def _checked_resumption(resumed_at: datetime | None, time_ms: int) -> datetime | None:
    checked = _checked_moment("resumed_at", resumed_at)
    if checked is not None and epoch_ms(checked) > time_ms:
        detail = (
            f"resumed_at is {rfc3339(epoch_ms(checked))}, after the event's own time {rfc3339(time_ms)}: nobody can know "
            "yet that later actions work"
        )
        raise Refusal("bad-data", detail)
    return checked


def _checked_windows(field: str, windows: dict[str, MaintenanceWindow]) -> dict[str, MaintenanceWindow]:
    checked = {}
    for name, window in sorted(windows.items()):
        shown = f"{field} {name[:SHOWN_CHARACTERS]}"
        checked[name] = msgspec.structs.replace(
            window,
            since=_checked_moment(f"since of {shown}", window.since),
            until=_checked_moment(f"until of {shown}", window.until),
            who=(window.who or "")[:MAX_REMARK_CHARACTERS],
            why=(window.why or "")[:MAX_REMARK_CHARACTERS],
        )
    return checked
