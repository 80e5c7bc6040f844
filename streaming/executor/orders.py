"""Actions as an executor reads them, and every reason not to carry one out. Pure: time is passed in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from policies.splitting.ranges import Bundle
from policies.throttle.copies import LARGEST_NUMBER
from policies.throttle.lists import ThrottledLists, entries_of
from policies.throttle.roles import BrokerRole, by_role
from policies.wording import time_text
from state.outputs import rfc3339
from state.overlay import epoch_ms
from streaming.contract.envelope import read_envelope
from streaming.contract.messages import ControlData, Time, type_of
from streaming.contract.published import SplitMessage, ThrottleMessage, UnloadMessage
from streaming.transport.side import ActionRecord, PartitionEpochs

SkipReason = Literal[
    "dry-run",
    "executor-dry-run",
    "no-epoch",
    "old-epoch",
    "expired",
    "paused",
    "maintenance",
    "bundle-gone",
    "namespace-gone",
    "owner-changed",
    "destination-gone",
    "bad-boundaries",
    "not-moving",
    "still-moving",
]
"""Why an action is not carried out; each is the value of a metric's label."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Why an action is not carried out; ``detail`` is for a person."""

    reason: SkipReason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class Held(Exception):
    """An action may not be tried any more; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(str(skip))
        self.skip = skip


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """The part of every action that an executor reads."""

    kind: ClassVar[str]
    expires_at: Time
    dry_run: bool


class Precondition(msgspec.Struct, frozen=True):
    """What must still be true of the bundle."""

    owner: str
    range: str


class BundleAction(Action, frozen=True, kw_only=True):
    """An action on one bundle."""

    bundle_name: str = msgspec.field(name="bundle")
    precondition: Precondition

    def __post_init__(self) -> None:
        if str(self.bundle.range) != self.precondition.range.lower():
            raise ValueError(
                f"bundle {self.bundle} and precondition range {self.precondition.range} disagree"
            )

    @property
    def bundle(self) -> Bundle:
        return Bundle.parse(self.bundle_name)


class UnloadAction(BundleAction, frozen=True, kw_only=True):
    """The part of a `trimtab.action.unload.v1` that an executor reads."""

    kind: ClassVar[str] = "unload"
    destination_broker: str | None = None


class SplitAction(BundleAction, frozen=True, kw_only=True):
    """The part of a `trimtab.action.split.v1` that an executor reads."""

    kind: ClassVar[str] = "split"
    boundaries: list[int]


Rate = Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)]
"""Bytes per second; at 0 nothing would ever move, and Kafka accepts it."""


class ThrottlePrecondition(msgspec.Struct, frozen=True):
    """What must still be true of the cluster's reassignments."""

    reassignments: Literal["running", "planned", "none", "unknown"] = "unknown"


class ThrottleAction(Action, frozen=True, kw_only=True):
    """The part of a `trimtab.action.throttle.v1` that an executor reads."""

    kind: ClassVar[str] = "throttle"
    precondition: ThrottlePrecondition
    add_leader_throttled_replicas: dict[str, str]
    add_follower_throttled_replicas: dict[str, str]
    remove_leader_throttled_replicas: dict[str, str]
    remove_follower_throttled_replicas: dict[str, str]
    leader_rate_bytes_per_s: dict[int, Rate]
    follower_rate_bytes_per_s: dict[int, Rate]
    clear_leader_rates: list[int]
    clear_follower_rates: list[int]
    disk_rate_bytes_per_s: dict[int, Rate] = {}
    clear_disk_rates: list[int] = []

    def __post_init__(self) -> None:
        for lists in (self.add, self.remove):
            for text in (*lists.leader.values(), *lists.follower.values()):
                entries_of(text)

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
        return by_role(
            self.leader_rate_bytes_per_s, self.follower_rate_bytes_per_s, self.disk_rate_bytes_per_s
        )

    @property
    def clear(self) -> tuple[BrokerRole, ...]:
        """Rates to take off."""
        cleared = (self.clear_leader_rates, self.clear_follower_rates, self.clear_disk_rates)
        return tuple(by_role(*map(dict.fromkeys, cleared)))


ActionKind = TypeVar("ActionKind", bound=Action)
Readers = Mapping[str, Callable[[msgspec.Raw], ActionKind]]
"""How the data of each type of event is read that an executor carries out."""
PULSAR_ACTIONS: Readers[UnloadAction | SplitAction] = {
    type_of(UnloadMessage): msgspec.json.Decoder(UnloadAction).decode,
    type_of(SplitMessage): msgspec.json.Decoder(SplitAction).decode,
}
KAFKA_ACTIONS: Readers[ThrottleAction] = {
    type_of(ThrottleMessage): msgspec.json.Decoder(ThrottleAction).decode
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Generic[ActionKind]):
    """An action with its id, its source, and two epochs; None: the record has none."""

    id: str
    source: str
    epoch: int | None
    highest_epoch: int | None = None
    """The highest epoch of its source in its partition so far."""
    action: ActionKind

    @property
    def kind(self) -> str:
        return self.action.kind

    def __str__(self) -> str:
        if isinstance(self.action, BundleAction):
            return f"{self.kind} of {self.action.bundle} ({self.id})"
        return f"{self.kind} {self.id}"


class BadOrder(Exception):
    """A record on the actions topic is no action that can be read; the text says why."""


def read_order(
    record: ActionRecord, epochs: PartitionEpochs, *, cluster: str, readers: Readers[ActionKind]
) -> Order[ActionKind] | None:
    """The action in a record; None for another cluster's and for a type without a reader. Raises ``BadOrder``.

    Before that, the record's source and epoch are remembered, for all types and clusters, in the order of the partition.
    """
    epoch = highest = None
    try:
        envelope = read_envelope(record.value)
        if record.epoch_header is not None:
            epoch = int(record.epoch_header)
            highest = epochs.note(record.partition, envelope.source, epoch)
        read = readers.get(envelope.type)
        if read is None or envelope.cluster != cluster:
            return None
        action = read(envelope.data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadOrder(str(error)) from error
    return Order(id=envelope.id, source=envelope.source, epoch=epoch, highest_epoch=highest, action=action)


def gate(order: Order[ActionKind], *, control: ControlData | None, now: datetime) -> Skip | None:
    """Why an action may not even be tried now; None where it may."""
    epoch, highest = order.epoch, order.highest_epoch
    if epoch is None:
        return Skip(
            "no-epoch",
            "its record has no trimtab-epoch header, so it may come from a controller that was superseded",
        )
    if highest is not None and epoch < highest:
        detail = (
            f"{order.source} sent it with epoch {epoch}, but a controller with epoch {highest} has taken over"
        )
        return Skip("old-epoch", detail)
    if order.action.dry_run:
        return Skip("dry-run", "it is an action of a dry run")
    if now >= order.action.expires_at:
        age_s = (now - order.action.expires_at).total_seconds()
        return Skip(
            "expired",
            f"it expired {age_s:.0f} s ago, at {time_text(rfc3339(epoch_ms(order.action.expires_at)))}",
        )
    return _skip_if_held(control, now) or _skip_if_under_maintenance(order.action, control, now)


def _skip_if_held(control: ControlData | None, now: datetime) -> Skip | None:
    """A skip during a pause or after a return to dry-run: they are obeyed at once, not at the next round."""
    if control is None:
        return None
    by = f"by {control.who or 'somebody'}: {control.why or 'no reason given'}"
    if control.is_paused_at(now):
        return Skip("paused", f"the cluster is paused {by}")
    if control.mode == "dry-run":
        return Skip("paused", f"the cluster was set to dry-run {by}")
    return None


def _skip_if_under_maintenance(action: Action, control: ControlData | None, now: datetime) -> Skip | None:
    """A skip under maintenance or in a drain: nothing goes to such a broker, and what is under maintenance is not touched.

    A throttle moves nothing, so it never is one.
    """
    if control is None or not isinstance(action, BundleAction):
        return None
    destination = action.destination_broker if isinstance(action, UnloadAction) else None
    for name, spells, state in (
        (destination, control.drained_brokers, "drained"),
        (destination, control.maintenance_brokers, "under maintenance"),
        (action.precondition.owner, control.maintenance_brokers, "under maintenance"),
        (action.bundle.namespace, control.maintenance_namespaces, "under maintenance"),
    ):
        spell = None if name is None else spells.get(name)
        if spell is not None and spell.holds_at(now):
            by = f"by {spell.who or 'somebody'}: {spell.why or 'no reason given'}"
            return Skip("maintenance", f"{name} is {state} {by}")
    return None
