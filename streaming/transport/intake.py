"""From records to outputs: decode, give each event to its cluster's controller, refuse what cannot be used.

The Spark operator and ``trimtab replay`` both use it: Spark hands over a micro-batch, control
events first, and its memory is committed; a replay hands over lines in their order, and keeps its memory in the process.
What the driver's metrics get about a batch is taken from the tally of its records, never computed again. These observations
travel in a column of the operator's rows, as MessagePack arrays. They never influence a decision and are not published. The
counts are per micro-batch; the receiver adds them up.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec

from state.controller import REJECTED, USED, Controller, Result
from state.events import (
    NOWHERE,
    ActionResult,
    Approval,
    BrokerLoad,
    ClusterFacts,
    Control,
    Coordinates,
    Event,
    KafkaLoadReport,
    LoadReport,
    Reassignment,
    Rejection,
    RejectReason,
    Tick,
    TopicStats,
)
from state.outputs import Output
from state.rounds import PASSES_THROUGH, refusal
from streaming.contract.decode import decode
from streaming.contract.encode import Origin, RefusedRecord, encode_refused_event
from streaming.contract.messages import (
    ActionResultMessage,
    ApprovalMessage,
    BrokerLoadMessage,
    ControlMessage,
    KafkaLoadReportMessage,
    LoadReportMessage,
    PulsarClusterMessage,
    ReassignmentMessage,
    TickMessage,
    TopicStatsMessage,
    type_of,
)
from streaming.settings.identity import EVERY_CLUSTER, AcceptedClusters

UNKNOWN_TYPE = "unknown"
"""Type under which records are counted that have none that is known."""

_TYPE_NAMES: dict[type[Event], str] = {
    LoadReport: type_of(LoadReportMessage),
    BrokerLoad: type_of(BrokerLoadMessage),
    TopicStats: type_of(TopicStatsMessage),
    KafkaLoadReport: type_of(KafkaLoadReportMessage),
    Reassignment: type_of(ReassignmentMessage),
    ClusterFacts: type_of(PulsarClusterMessage),
    Tick: type_of(TickMessage),
    ActionResult: type_of(ActionResultMessage),
    Approval: type_of(ApprovalMessage),
    Control: type_of(ControlMessage),
}
EVENT_TYPES = (*_TYPE_NAMES.values(), UNKNOWN_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record, before anything is known of it."""

    value: bytes | None
    origin: Origin
    key: str | None = None
    """Record key; None where there is none to compare, as in files."""
    appended_ms: int | None = None
    is_control: bool | None = None
    """Whether it came on the control topic; None where there is one stream for both, as in files."""
    oversize: tuple[int, str] | None = None
    """Size and SHA-256 of a record above ``max_record_bytes``, of which ``value`` is only the head."""


@dataclass(slots=True)
class Tally:
    """The results of a number of records, for metrics and for the summary of a replay."""

    results: Counter[tuple[str, str, Result]] = field(default_factory=Counter)
    """By (cluster, type, result)."""
    reasons: Counter[RejectReason] = field(default_factory=Counter)
    action_results: Counter[str] = field(default_factory=Counter)
    """Used results of actions, by outcome."""

    def count_of(self, result: Result) -> int:
        """How many records had this result."""
        return sum(count for (_, _, ended), count in self.results.items() if ended == result)


class Intake:
    """Takes records of one or of many clusters; ``controller_of`` finds or makes a cluster's controller."""

    def __init__(
        self,
        controller_of: Callable[[str], Controller],
        *,
        max_record_bytes: int,
        accepted: AcceptedClusters = EVERY_CLUSTER,
    ) -> None:
        self._controller_of = controller_of
        self._accepted = accepted
        self._max_record_bytes = max_record_bytes
        self.tally = Tally()

    def take(self, record: Record) -> tuple[list[Output], RefusedRecord | None]:
        """Outputs of the rounds the record closes, or the record for the dead letter."""
        cluster, event, where = self._event(record)
        if isinstance(event, Rejection):
            self.tally.results[cluster, event.type or UNKNOWN_TYPE, REJECTED] += 1
            return [], self._refuse(record, event, cluster)
        controller = self._controller_of(cluster)
        step = controller.step(event, where)
        counted = self._count(cluster, controller)
        if step.rejection is not None:
            return [], self._refuse(record, step.rejection, cluster)
        if isinstance(event, ActionResult) and counted[ActionResult, USED]:
            self.tally.action_results[event.outcome] += 1
        return step.outputs, None

    def close_open(self, cluster: str) -> list[Output]:
        """Close the open rounds of a cluster, as at the end of a recording."""
        controller = self._controller_of(cluster)
        outputs = controller.close_open()
        self._count(cluster, controller)
        return outputs

    def _event(self, record: Record) -> tuple[str, Event | Rejection, Coordinates]:
        if record.oversize is not None:
            detail = (
                f"{record.oversize[0]} bytes, at most {self._max_record_bytes} are taken: send fewer bundles a "
                "report, or raise controller.max_record_bytes"
            )
            return "", Rejection(reason="too-large", detail=detail), NOWHERE
        partition = record.origin.partition if record.is_control is False else None
        try:
            cluster, event, recorded_ms = decode(record.value, key=record.key)
        except PASSES_THROUGH:
            raise
        except Exception as error:  # noqa: BLE001  no error of one record may end the query of all clusters
            return "", refusal(error), NOWHERE
        if isinstance(event, Event) and record.is_control not in {None, isinstance(event, Control)}:
            belongs = "control" if isinstance(event, Control) else "input"
            name = _TYPE_NAMES[type(event)]
            detail = f"{name} belongs on the {belongs} topic, it came on {record.origin.topic}"
            return cluster, Rejection(reason="wrong-topic", detail=detail, type=name), NOWHERE
        if isinstance(event, Event) and (refused := self._accepted.refusal(cluster, event)) is not None:
            return cluster, replace(refused, type=_TYPE_NAMES[type(event)]), NOWHERE
        appended_ms = recorded_ms if record.appended_ms is None else record.appended_ms
        return cluster, event, Coordinates(partition, appended_ms)

    def _refuse(self, record: Record, rejection: Rejection, cluster: str) -> RefusedRecord:
        self.tally.reasons[rejection.reason] += 1
        refused = encode_refused_event(
            record.value or b"",
            origin=record.origin,
            rejection=rejection,
            cluster=cluster,
            appended_ms=record.appended_ms,
        )
        return refused if record.oversize is None else refused.of_size(*record.oversize)

    def _count(self, cluster: str, controller: Controller) -> Counter[tuple[type[Event], Result]]:
        """Move what the controller counted since the last look into the tally; returns it."""
        counted = controller.take_results()
        for (kind, result), count in counted.items():
            self.tally.results[cluster, _TYPE_NAMES[kind], result] += count
        return counted


_Count = Annotated[int, msgspec.Meta(ge=0)]


class EventCount(msgspec.Struct, frozen=True, array_like=True):
    """How many events of a CloudEvents type had this result; `type` is `unknown` where it could not be read."""

    type: str
    result: Result
    count: _Count


class EventObservation(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="events"):
    """The input events of one cluster in one micro-batch; `cluster` is empty for records that name none.

    `rejected` counts the rejected ones by reason, `action_results` the used results of actions by outcome.
    """

    cluster: str
    counts: list[EventCount]
    rejected: dict[str, _Count]
    action_results: dict[str, _Count]
    forgotten: bool = False
    """Whether a control event deleted what was remembered of the cluster."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(EventObservation)


def event_observation(cluster: str, tally: Tally, *, forgotten: bool = False) -> EventObservation:
    """The results of one cluster's records in a micro-batch; ``forgotten``: after them nothing is remembered of the cluster."""
    by_type: Counter[tuple[str, Result]] = Counter()
    for (_, kind, result), count in tally.results.items():
        by_type[kind, result] += count
    counts = [
        EventCount(type=kind, result=result, count=count) for (kind, result), count in sorted(by_type.items())
    ]
    return EventObservation(
        cluster=cluster,
        counts=counts,
        rejected=dict(sorted(tally.reasons.items())),
        action_results=dict(sorted(tally.action_results.items())),
        forgotten=forgotten,
    )


def encode_observation(observation: EventObservation) -> bytes:
    """The observation as MessagePack."""
    return _ENCODER.encode(observation)


def decode_observation(encoded: bytes) -> EventObservation:
    """The inverse of `encode_observation`; raises `msgspec.ValidationError` for anything else."""
    return _DECODER.decode(encoded)
