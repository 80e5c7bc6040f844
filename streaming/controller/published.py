"""A published action or round summary, decoded once for all that report it: the log, the metrics, the follow-up."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from state.outputs import RoundSummary, Split, Throttle, Unload
from state.outputs.actions import ROUND_TYPE, SPLIT_TYPE, UNLOAD_TYPE
from streaming.contract.envelope import read_envelope

Data = Unload | Split | Throttle | RoundSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An event as it is on its topic."""

    id: str
    type: str
    time_s: float
    """End of its round, Unix time."""
    data: Data


_THROTTLES: msgspec.json.Decoder[Data] = msgspec.json.Decoder(Throttle)
_DATA: dict[str, msgspec.json.Decoder[Data]] = {
    UNLOAD_TYPE: msgspec.json.Decoder(Unload),
    SPLIT_TYPE: msgspec.json.Decoder(Split),
    ROUND_TYPE: msgspec.json.Decoder(RoundSummary),
}


def decode(value: bytes) -> Published:
    """Decode the value of a record. Raises ``msgspec.MsgspecError`` for one that was not published by this version."""
    event = read_envelope(value)
    data = _DATA.get(event.type, _THROTTLES).decode(event.data)
    time_s = msgspec.convert(event.time, datetime).timestamp()
    return Published(id=event.id, type=event.type, time_s=time_s, data=data)
