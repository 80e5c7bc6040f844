"""Every message trimtab reads, as one union: what a record is decoded as, and what ``docs/`` is made of."""

from streaming.wire.cluster import PulsarClusterMessage
from streaming.wire.messages import (
    ActionResultMessage,
    ControlMessage,
    Envelope,
    LoadReportMessage,
    TickMessage,
    TopicStatsMessage,
)

Message = (
    LoadReportMessage
    | TopicStatsMessage
    | PulsarClusterMessage
    | TickMessage
    | ActionResultMessage
    | ControlMessage
)

INPUT_TYPES: tuple[type[Envelope], ...] = (
    LoadReportMessage,
    TopicStatsMessage,
    PulsarClusterMessage,
    TickMessage,
    ActionResultMessage,
)
MESSAGE_TYPES: tuple[type[Envelope], ...] = (*INPUT_TYPES, ControlMessage)
