"""The first event of a controller on the topic of actions after it has taken over; it says whose actions count from here on."""

import msgspec

from state.outputs import canonical, content_id
from streaming.contract.encode import encode_event, source_of

LEADER_TYPE = "trimtab.leader.v1"


class LeaderData(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.leader.v1`."""

    controller: str
    """Name of the controller."""
    epoch: int
    """Its epoch from now on; the `trimtab-epoch` header of the record has the same number."""


def encode_leader(name: str, *, epoch: int, time_ms: int) -> bytes:
    """The event of the controller of that name as a CloudEvent; it is the same for every partition of the topic."""
    data = canonical(LeaderData(controller=name, epoch=epoch))
    return encode_event(
        type_=LEADER_TYPE,
        id_=content_id(data),
        source=source_of(name),
        subject="leader",
        time_ms=time_ms,
        cluster="",
        data=data,
    )
