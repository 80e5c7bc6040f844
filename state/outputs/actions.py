"""Actions for a Pulsar cluster."""

import msgspec


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
    """Which limit the bundle is above, or that it alone overloads its broker."""
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
