"""Throttle actions as the executor reads them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from policies.throttle.lists import BadList, ThrottledLists, entries_of
from policies.throttle.moves import LARGEST_NUMBER
from policies.throttle.rates import BrokerRole
from streaming.contract.envelope import read_envelope
from streaming.contract.messages import Time, type_of
from streaming.contract.published import ThrottleMessage
from streaming.executor.orders import BadOrder, Concerns, RecordEpoch

Rate = Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)]
"""Bytes per second; at 0 nothing would ever move, and Kafka accepts it."""


class Precondition(msgspec.Struct, frozen=True):
    """What must still be true of the cluster's reassignments."""

    reassignments: Literal["running", "planned", "none", "unknown"] = "unknown"


class ThrottleAction(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `trimtab.action.throttle.v1` that an executor reads."""

    precondition: Precondition
    expires_at: Time
    dry_run: bool
    add_leader_throttled_replicas: dict[str, str]
    add_follower_throttled_replicas: dict[str, str]
    remove_leader_throttled_replicas: dict[str, str]
    remove_follower_throttled_replicas: dict[str, str]
    leader_rate_bytes_per_s: dict[str, Rate]
    follower_rate_bytes_per_s: dict[str, Rate]
    clear_leader_rates: list[int]
    clear_follower_rates: list[int]

    @property
    def add(self) -> ThrottledLists:
        """Entries to add."""
        return ThrottledLists(
            leader=self.add_leader_throttled_replicas, follower=self.add_follower_throttled_replicas
        )

    @property
    def remove(self) -> ThrottledLists:
        """Entries to remove."""
        return ThrottledLists(
            leader=self.remove_leader_throttled_replicas, follower=self.remove_follower_throttled_replicas
        )

    @property
    def rates(self) -> dict[BrokerRole, int]:
        """Rates to set."""
        return {
            **{
                BrokerRole("leader", int(broker)): rate
                for broker, rate in self.leader_rate_bytes_per_s.items()
            },
            **{
                BrokerRole("follower", int(broker)): rate
                for broker, rate in self.follower_rate_bytes_per_s.items()
            },
        }

    @property
    def clear(self) -> tuple[BrokerRole, ...]:
        """Rates to take off."""
        return (
            *(BrokerRole("leader", broker) for broker in self.clear_leader_rates),
            *(BrokerRole("follower", broker) for broker in self.clear_follower_rates),
        )


class ThrottleOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An action with its id, its source and the source's epochs."""

    id: str
    source: str
    epoch: int | None
    highest_epoch: int | None
    action: ThrottleAction

    @property
    def kind(self) -> Literal["throttle"]:
        return "throttle"

    @property
    def concerns(self) -> Concerns:
        """Empty: a throttle moves nothing."""
        return Concerns()

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


_action = msgspec.json.Decoder(ThrottleAction)


def read_throttle_order(value: bytes, record_epoch: RecordEpoch, *, cluster: str) -> ThrottleOrder | None:
    """The action in a record; None for another cluster's and for kinds that are not Kafka's. Raises ``BadOrder``."""
    try:
        envelope = read_envelope(value)
        if envelope.cluster != cluster or envelope.type != type_of(ThrottleMessage):
            return None
        action = _action.decode(envelope.data)
        for lists in (action.add, action.remove):
            for text in (*lists.leader.values(), *lists.follower.values()):
                entries_of(text)
        _ = action.rates
    except (msgspec.MsgspecError, ValueError, BadList) as error:
        raise BadOrder(str(error)) from error
    return ThrottleOrder(
        id=envelope.id,
        source=envelope.source,
        epoch=record_epoch.epoch,
        highest_epoch=record_epoch.highest,
        action=action,
    )
