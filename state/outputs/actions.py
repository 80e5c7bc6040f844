"""The types of what a controller publishes, its canonical form and ids, and the actions.

Canonical is JSON in UTF-8 without white space, keys sorted. The id of an output says what is to be done.
``streaming.contract.published`` has the envelopes.
"""

import hashlib
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

ACTION_PREFIX = "trimtab.action."
"""How the types of all actions begin."""
UNLOAD_TYPE = "trimtab.action.unload.v1"
SPLIT_TYPE = "trimtab.action.split.v1"
THROTTLE_TYPE = "trimtab.action.throttle.v1"
ROUND_TYPE = "trimtab.round.v1"


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  naive on purpose: isoformat then leaves the offset to us
_MS = timedelta(milliseconds=1)
_FIRST_MS = (datetime(1, 1, 1) - _EPOCH) // _MS  # noqa: DTZ001  the calendar's first day, naive like the epoch
_LAST_MS = (datetime(9999, 12, 31) - _EPOCH) // _MS  # noqa: DTZ001


class Identified(Protocol):
    """What an output can be about."""

    def identity(self) -> tuple[object, ...]:
        """What is to be done, beyond what the envelope says: two decisions are the same exactly if these are equal."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One event to publish; ``data`` is canonical and already encoded."""

    kind: Literal["action", "round"]
    type: str
    subject: str
    cluster: str
    round: int
    place: int
    """Place in the round: actions in the policy's order, the summary last."""
    time_ms: int
    """End of the round."""
    id: str
    data: bytes
    dry_run: bool


def output(
    *,
    type_: str,
    subject: str,
    cluster: str,
    number: int,
    place: int,
    time_ms: int,
    data: Identified,
    dry_run: bool,
) -> Output:
    """An output of ``data``, encoded once. Its id depends on what is to be done, not on reasons, evidence or expiry."""
    return Output(
        kind="round" if type_ == ROUND_TYPE else "action",
        type=type_,
        subject=subject,
        cluster=cluster,
        round=number,
        place=place,
        time_ms=time_ms,
        id=content_id(canonical([type_, cluster, number, subject, *data.identity()])),
        data=canonical(data),
        dry_run=dry_run,
    )


def canonical(data: Any) -> bytes:
    """Canonical JSON of a struct."""
    return msgspec.json.encode(data, order="sorted")


def content_id(data: bytes) -> str:
    """An id: the first 128 bits of the SHA-256 of what makes it unique, in hex."""
    return hashlib.sha256(data).hexdigest()[:32]


@lru_cache(maxsize=256)
def rfc3339(time_ms: int) -> str:
    """UTC with milliseconds, e.g. ``2026-11-21T13:21:25.206Z``; a time outside the calendar becomes its first or last moment.

    Cached, because a summary names the few moments of its rounds some hundred times.
    """
    moment = _EPOCH + timedelta(milliseconds=min(max(time_ms, _FIRST_MS), _LAST_MS))
    return moment.isoformat(timespec="milliseconds") + "Z"


class Unload(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.unload.v1`: move one bundle to another broker."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """The policy that wants it, e.g. `avg-shedder`."""
    trigger: str
    """Which of the policy's rules fired."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """Load of `source` and, where it is known, `destination` after this action and the actions before it in the round."""
    precondition: dict[str, str]
    """What must still hold: `owner` of the bundle and its `range`."""
    expires_at: str
    """RFC 3339; it must not be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors carry out no action of `trimtab.actions.dry-run`."""
    bundle: str
    """Full name of the bundle to move."""
    source_broker: str
    """Broker that owns it."""
    destination_broker: str | None
    """Broker to move it to; null where Pulsar's placement chooses."""
    proposal: bool | msgspec.UnsetType = msgspec.UNSET
    """True for a proposal that waits for approval, on the topic of the dry-run; left out otherwise."""
    proposal_id: str | msgspec.UnsetType = msgspec.UNSET
    """Id of the proposal that was approved; left out where no approval was needed."""

    def identity(self) -> tuple[object, ...]:
        """See ``Identified``."""
        return self.source_broker, self.destination_broker, self.dry_run, self.proposal is True


class SplitChild(msgspec.Struct, frozen=True, kw_only=True):
    """What one child takes over, from the topic statistics of the round."""

    range: str
    """Its range."""
    topics_count: int | None
    """Number of topics; null where they are not known, as are the loads then."""
    messages_per_s: float | None
    """Message rate in + out."""
    bytes_per_s: float | None
    """Throughput in + out."""
    sessions_count: int | msgspec.UnsetType = msgspec.UNSET
    """Producers and consumers; left out where they are not known by topic."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.split.v1`: cut one bundle; it cannot be undone."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """`bundle-split`."""
    trigger: str
    """Which limit the bundle is above, or in which measure it puts its broker above average."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """Load of each child by its range; empty where topics are not known."""
    precondition: dict[str, str]
    """What must still hold: `owner` of the bundle and its `range`."""
    expires_at: str
    """RFC 3339; it must not be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors carry out no action of `trimtab.actions.dry-run`."""
    bundle: str
    """Full name of the bundle to cut."""
    broker: str
    """Broker that owns it."""
    algorithm: str
    """The algorithm that found the boundaries."""
    boundaries: list[int]
    """Where to cut, ascending, strictly inside the range; Pulsar takes them as `specified_positions_divide`."""
    children: list[SplitChild]
    """One child more than boundaries, ascending."""
    proposal: bool | msgspec.UnsetType = msgspec.UNSET
    """True for a proposal that waits for approval, on the topic of the dry-run; left out otherwise."""
    proposal_id: str | msgspec.UnsetType = msgspec.UNSET
    """Id of the proposal that was approved; left out where no approval was needed."""

    def identity(self) -> tuple[object, ...]:
        """See ``Identified``."""
        return self.broker, self.boundaries, self.dry_run, self.proposal is True


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """`data` of a `trimtab.action.throttle.v1`: pace what a cluster copies; settings that it does not name stay."""

    cluster: str
    """Cluster, as in the envelope."""
    round: int
    """Number of the round that decided it."""
    policy: str
    """`reassignment-throttle`."""
    trigger: str
    """What called for it, e.g. `first-throttle`, `minimum-rose` or `finished`."""
    reason: str
    """One sentence for a person."""
    evidence: dict[str, float | int | str]
    """The numbers it was decided on, units in their names."""
    expected: dict[str, dict[str, float]]
    """By role, as in `leader:101`: bytes left to copy, and the seconds needed for that at these rates."""
    precondition: dict[str, str]
    """What must still hold: `reassignments` is `running` (something is copied) or `none` (nothing is reassigned); `planned` and
    `unknown` require nothing."""
    expires_at: str
    """RFC 3339; it must not be carried out later."""
    dry_run: bool
    """Whether it is only shown: executors carry out no action of `trimtab.actions.dry-run`."""
    add_leader_throttled_replicas: dict[str, str]
    """By topic, entries to add to `leader.replication.throttled.replicas`."""
    add_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    remove_leader_throttled_replicas: dict[str, str]
    """Entries to remove; only those that trimtab added, never those of others."""
    remove_follower_throttled_replicas: dict[str, str]
    """The same for followers."""
    leader_rate_bytes_per_s: dict[str, int]
    """By broker, the `leader.replication.throttled.rate` to set, 1 or more."""
    follower_rate_bytes_per_s: dict[str, int]
    """The same for followers."""
    clear_leader_rates: list[int]
    """Brokers whose rate is taken off: the rate that was there before ours comes back."""
    clear_follower_rates: list[int]
    """The same for followers."""
    disk_rate_bytes_per_s: dict[str, int]
    """By broker, the `replica.alter.log.dirs.io.max.bytes.per.second` to set, 1 or more."""
    clear_disk_rates: list[int]
    """Brokers whose rate for moves between disks is taken off: the rate that was there before ours comes back."""
    leader_min_bytes_per_s: dict[str, int | None]
    """By broker that leads, the minimum that its rate must be above. Null: unknown; empty: nothing moves, or no report says what
    moves."""
    follower_min_bytes_per_s: dict[str, int | None]
    """The same by broker that fetches."""
    disk_min_bytes_per_s: dict[str, int | None]
    """The same by broker that copies between its disks."""
    copies: dict[str, int]
    """Number of copies by kind: `reassignment`, `recovery`, `disk`; without those of which there are none."""
    eta_s: float | None
    """Seconds from the newest report until all is copied; null: unknown, or never at the present pace."""
    bottleneck: str | None
    """The role that finishes last, as in `leader:101`."""
    fingerprint: str | None
    """Fingerprint of what moves where, as `trimtab throttle plan` prints it; null: nothing moves, or no report says what moves."""

    def identity(self) -> tuple[object, ...]:
        """See ``Identified``."""
        return (
            self.precondition,
            self.dry_run,
            self.add_leader_throttled_replicas,
            self.add_follower_throttled_replicas,
            self.remove_leader_throttled_replicas,
            self.remove_follower_throttled_replicas,
            self.leader_rate_bytes_per_s,
            self.follower_rate_bytes_per_s,
            self.clear_leader_rates,
            self.clear_follower_rates,
            self.disk_rate_bytes_per_s,
            self.clear_disk_rates,
        )
