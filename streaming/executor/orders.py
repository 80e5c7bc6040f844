"""Actions as an executor reads them, and every reason not to carry one out. Pure: time is passed in."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from policies.splitting.ranges import Bundle
from streaming.contract.envelope import read_envelope
from streaming.contract.messages import ControlData, Time, type_of
from streaming.contract.published import SplitMessage, UnloadMessage
from streaming.transport.side import ActionRecord, Epochs

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of an action that was tried."""

    outcome: Literal["succeeded", "failed"]
    reason: str | None = None
    broker: str | None = None
    """The broker that owns the bundle after an unload."""
    bundles: tuple[str, ...] = ()
    """The children after a split."""
    was_done_before: bool = False
    """Whether its aim had been reached already, so that nothing was called."""


class Held(Exception):
    """An action may not be tried any more; ``skip`` says why."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(str(skip))
        self.skip = skip


class Precondition(msgspec.Struct, frozen=True):
    """What must still be true of the bundle."""

    owner: str
    range: str


class UnloadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `trimtab.action.unload.v1` that an executor reads."""

    bundle: str
    precondition: Precondition
    expires_at: Time
    dry_run: bool
    destination_broker: str | None = None


class SplitOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a `trimtab.action.split.v1` that an executor reads."""

    bundle: str
    precondition: Precondition
    expires_at: Time
    dry_run: bool
    boundaries: list[int]


@dataclass(frozen=True, slots=True)
class RecordEpoch:
    """A record's epoch, None if it has none, and the highest epoch of its source in its partition so far."""

    epoch: int | None
    highest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An action with its id, its source and the source's epochs."""

    id: str
    source: str
    epoch: int | None
    highest_epoch: int | None = None
    action: UnloadOrder | SplitOrder
    bundle: Bundle

    @property
    def kind(self) -> Literal["unload", "split"]:
        return "unload" if isinstance(self.action, UnloadOrder) else "split"

    @property
    def concerns(self) -> "Concerns":
        """The action's brokers and namespace."""
        return Concerns(
            source=self.action.precondition.owner,
            destination=self.action.destination_broker if isinstance(self.action, UnloadOrder) else None,
            namespace=self.bundle.namespace,
        )

    def __str__(self) -> str:
        return f"{self.kind} of {self.bundle} ({self.id})"


class BadOrder(Exception):
    """A record on the actions topic is no action that can be read; the text says why."""


_unload = msgspec.json.Decoder(UnloadOrder)
_split = msgspec.json.Decoder(SplitOrder)


def read_epoch(record: ActionRecord, epochs: Epochs) -> RecordEpoch:
    """Remember a record's source and epoch, for all types and clusters, in the order of the partition. Raises ``BadOrder``."""
    if record.epoch_header is None:
        return RecordEpoch(None, None)
    try:
        source, epoch = read_envelope(record.value).source, int(record.epoch_header)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadOrder(str(error)) from error
    return RecordEpoch(epoch, epochs.note(record.partition, source, epoch))


def read_order(value: bytes, record_epoch: RecordEpoch, *, cluster: str) -> Order | None:
    """The action in a record; None for another cluster's and for kinds that are not Pulsar's. Raises ``BadOrder``."""
    try:
        envelope = read_envelope(value)
        if envelope.cluster != cluster:
            return None
        if envelope.type == type_of(UnloadMessage):
            action: UnloadOrder | SplitOrder = _unload.decode(envelope.data)
        elif envelope.type == type_of(SplitMessage):
            action = _split.decode(envelope.data)
        else:
            return None
        bundle = Bundle.parse(action.bundle)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadOrder(str(error)) from error
    if str(bundle.range) != action.precondition.range.lower():
        raise BadOrder(f"bundle {bundle} and precondition range {action.precondition.range} disagree")
    return Order(
        id=envelope.id,
        source=envelope.source,
        epoch=record_epoch.epoch,
        highest_epoch=record_epoch.highest,
        action=action,
        bundle=bundle,
    )


class Expiring(Protocol):
    """The fields of every action that limit when it counts."""

    @property
    def expires_at(self) -> datetime: ...
    @property
    def dry_run(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerns:
    """The brokers and namespace that an action concerns, as far as it names them."""

    source: str | None = None
    destination: str | None = None
    namespace: str | None = None


class Gated(Protocol):
    """An order of any kind; ``str`` gives its text for the log."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def epoch(self) -> int | None: ...
    @property
    def highest_epoch(self) -> int | None: ...
    @property
    def action(self) -> Expiring: ...
    @property
    def concerns(self) -> "Concerns": ...


def gate(order: Gated, *, control: ControlData | None, now: datetime) -> Skip | None:
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
        return Skip("expired", f"it expired {age_s:.0f} s ago, at {order.action.expires_at.isoformat()}")
    return _skip_if_held(control, now) or _skip_if_under_maintenance(order, control, now)


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


def _skip_if_under_maintenance(order: Gated, control: ControlData | None, now: datetime) -> Skip | None:
    """A skip under maintenance or in a drain: nothing goes to such a broker, and what is under maintenance is not touched."""
    if control is None:
        return None
    found = order.concerns
    for name, spells, state in (
        (found.destination, control.drained_brokers, "drained"),
        (found.destination, control.maintenance_brokers, "under maintenance"),
        (found.source, control.maintenance_brokers, "under maintenance"),
        (found.namespace, control.maintenance_namespaces, "under maintenance"),
    ):
        spell = None if name is None else spells.get(name)
        if spell is not None and spell.holds_at(now):
            by = f"by {spell.who or 'somebody'}: {spell.why or 'no reason given'}"
            return Skip("maintenance", f"{name} is {state} {by}")
    return None
