"""What people asked for, and what became of it: the control event in force, maintenance, drains and approvals."""

from typing import Any, Literal

import msgspec

from state.guard_settings import Approval
from state.outputs.sections import Section
from state.settings import Mode


class ControlInForce(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control event a round obeyed."""

    id: str
    """Its id."""
    time: str
    """Its time."""
    who: str
    """Who asked for it."""
    why: str
    """The reason."""
    arrived_late: bool
    """Whether it came after the round it was meant for had closed."""
    resumed_at: str | None
    """When a person said that the cause of failing actions is repaired; null: the event does not say so."""
    problem: str | None
    """Why its settings are not in force; null where they are."""
    until: str | None = None
    """When its pause ends by itself; left out where it has no pause, or a person has to end it."""
    settings: dict[str, Any] | None = {}
    """The settings that it lays over those of the file, as a tree of their names; left out where it has none, null above 32 KiB."""


class Configured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the controller is configured with, by its settings file, environment and flags: what holds without a control event."""

    mode: Mode
    """Its `controller.mode`."""
    approval: Approval
    """Its `controller.approval`."""
    settings_digest: str
    """Hash of its decision settings for the cluster."""
    settings: dict[str, Any] | None = {}
    """Those that differ from the defaults, as a tree of their names below `pulsar` or `kafka`, with every broker of a table; left out
    where there are none, null above 32 KiB."""


class MaintenanceRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker or namespace under maintenance."""

    name: str
    """Broker id, or `tenant/namespace`."""
    bundles_count: int | None = None
    """Bundles of the namespace that brokers report; left out for a broker."""
    since: str
    """When it was asked for."""
    until: str | None = None
    """When it ends by itself; left out where a person ends it."""
    who: str
    """Who asked for it."""
    why: str
    """The reason."""


class DrainRow(MaintenanceRow, frozen=True, kw_only=True, omit_defaults=True):
    """A broker that is drained."""

    state: Literal["draining", "busy", "only-system-bundles", "empty", "silent"]
    """`busy`: it lists no bundle, but its own totals show traffic. `only-system-bundles`: empty but for bundles of `pulsar/system`, which
    serve the whole cluster, such as transaction coordinators; its heartbeats do not count, because they end with it. `silent`: it sent
    no report in the round. Where it is `only-system-bundles` or `empty`, it is treated as under maintenance."""
    bundles_at_start_count: int | None = None
    """Bundles it had in the first round of the drain; left out before its first report."""
    bundles_left_count: int | None = None
    """Bundles it has now, those that its reports leave out (`absent`) included, Pulsar's own not; left out while it is silent."""
    system_bundles_count: int | None = None
    """Bundles of `pulsar/system` that it has now; left out while it is silent."""
    system_bundles: list[str] = []
    """Their full names, at most 100."""


class LeftRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that is still at a drained broker."""

    bundle: str
    """Its full name."""
    broker: str
    """The drained broker."""
    outcome: str
    """`acted`: it is told to leave in this round; or why it stays."""
    detail: str
    """The outcome with its numbers."""
    messages_per_s: float
    """Average message rate in + out."""
    bytes_per_s: float
    """Average throughput in + out."""


class MaintenanceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What operators have taken out of balancing."""

    brokers: list[MaintenanceRow]
    """Brokers under maintenance; at most 100, as in each of these lists."""
    namespaces: list[MaintenanceRow]
    """Namespaces under maintenance."""
    drains: list[DrainRow]
    """Brokers that are drained."""
    bundles_left: Section[LeftRow]
    """Bundles that are still at drained brokers; those that do not leave in this round come first."""


class ProposalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that waits for a person."""

    id: str
    """Its id, which an approval names."""
    kind: Literal["unload", "split"]
    """What it would do."""
    bundle: str
    """Full name of its bundle."""
    source_broker: str
    """Owner of the bundle."""
    destination_broker: str | None
    """Broker it would go to; null for a split, and where Pulsar chooses."""
    round: int
    """The round that proposed it."""
    expires_at: str
    """RFC 3339; the proposal is dropped then."""


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer to a proposal, and what became of it."""

    id: str
    """Id of the event."""
    proposal_id: str
    """The proposal it names."""
    kind: Literal["unload", "split"] | None
    """What the proposal would do; null where no open proposal has this id."""
    verdict: Literal["approved", "rejected"]
    """The answer."""
    who: str
    """Who gave it."""
    why: str
    """The reason."""
    outcome: str
    """`acted`: the action went out in this round; `rejected`; `unknown`: no open proposal has this id; or why an
    approved action did not go out. The proposal is no longer open in any of these cases."""
    detail: str
    """The outcome with its numbers."""
    action_id: str | None
    """Id of the action; null where none went out."""


class ApprovalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for approval, and which answers came."""

    open_count: int
    """Proposals that are open after the round, those of the round included."""
    open: list[ProposalRow]
    """The oldest of them; at most 100, as in each of these lists."""
    expired: list[str]
    """Ids of proposals that expired, or were dropped because no approval is required any more."""
    answers: list[ApprovalRow]
    """Answers that came since the previous round, in the order of the log."""
