"""What the stateful operator reports to the driver for metrics, besides its outputs: the results of a cluster's records.

Observations travel in a column of the operator's rows, as MessagePack arrays. They never influence a decision and are not
published. The counts are per micro-batch; the receiver adds them up.
"""

from typing import Annotated, Literal

import msgspec

EventResult = Literal["used", "superseded", "late", "rejected"]

_Count = Annotated[int, msgspec.Meta(ge=0)]


class EventCount(msgspec.Struct, frozen=True, array_like=True):
    """How many events of a CloudEvents type had this result; `type` is `unknown` where it could not be read."""

    type: str
    result: EventResult
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


def encode(observation: EventObservation) -> bytes:
    """The observation as MessagePack."""
    return _ENCODER.encode(observation)


def decode(encoded: bytes) -> EventObservation:
    """The inverse of `encode`; raises `msgspec.ValidationError` for anything else."""
    return _DECODER.decode(encoded)
