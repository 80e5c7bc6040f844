"""What is remembered of any cluster: its clock, its open rounds, the control events and the ledger of its decisions.

This is the header. What a system remembers beside it is in ``state.pulsar.memory`` and ``state.kafka.memory``.
"""

from typing import Literal

import msgspec

from state.approval_settings import Approval
from state.engine.ledger import ActionKind, Ledger
from state.engine.store import WaitingKind
from state.events import ActionOutcome, System, Verdict
from state.facts import Facts, FactsRecord
from state.settings import Mode
from state.upkeep import NOTHING, Upkeep


class ControlRecord(msgspec.Struct, frozen=True, array_like=True):
    """A control event and the first round it applies to."""

    time_ms: int
    id: str
    paused: bool
    mode: Mode | None
    overlay: bytes
    who: str
    why: str
    applies_from: int
    arrived_late: bool
    resumed_ms: int | None = None
    """When a person said that failing actions are mended; None: never."""
    until_ms: int | None = None
    """When its pause ends by itself; None: a person ends it."""
    upkeep: Upkeep = NOTHING
    """What is under maintenance, or drained."""
    approval: Approval | None = None
    """Whether unloads and splits wait for a person; None: as configured."""

    def is_paused_at(self, start_ms: int) -> bool:
        """Whether it holds every action of a round that begins then."""
        return self.paused and (self.until_ms is None or start_ms < self.until_ms)

    @property
    def age_key(self) -> tuple[int, str]:
        """The newest wins; at equal times the greater id."""
        return (self.time_ms, self.id)


class TickRecord(msgspec.Struct, frozen=True, array_like=True):
    """The newest sweep of a round."""

    time_ms: int
    id: str
    asked: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    unowned: tuple[tuple[str, int], ...] = ()
    unowned_count: int = 0


class ResultRecord(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What became of an action, applied when its round closes."""

    time_ms: int
    id: str
    action_id: str
    outcome: ActionOutcome
    is_held: bool = False
    """Whether it was skipped because the executor takes the cluster for paused."""


class Sender(msgspec.Struct, frozen=True, array_like=True):
    """The newest value of one sender that waits for a round's close; the value itself is in the store."""

    time_ms: int
    id: str
    rows_count: int
    """Bundles, topics or replicas in it."""

    @property
    def age_key(self) -> tuple[int, str]:
        """The newest wins; at equal times the greater id."""
        return (self.time_ms, self.id)


class Waiters(msgspec.Struct, array_like=True):
    """Who waits with one kind of value for a round's close."""

    rows_count: int = 0
    """Bundles, topics or replicas of all senders."""
    senders: dict[str, Sender] = msgspec.field(default_factory=dict)
    """By broker; a Kafka cluster's moves are under the empty name."""


class OpenRound(msgspec.Struct, array_like=True):
    """What is known of a round before it closes, beside its reports."""

    spans: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """First and last report time of each stretch without a gap above ``max_report_age_s``, ascending."""
    tick: TickRecord | None = None
    results: list[ResultRecord] = msgspec.field(default_factory=list)
    waiters: dict[WaitingKind, Waiters] = msgspec.field(default_factory=dict)
    """Who waits for its close."""
    facts: FactsRecord | None = None
    """The newest facts of its time."""
    stored_count: int = 0
    """Values of senders in the store, with those that newer ones have replaced."""

    @property
    def senders_count(self) -> int:
        """Values that count at its close."""
        return sum(len(each.senders) for each in self.waiters.values())


class MembersChange(msgspec.Struct, frozen=True, array_like=True):
    """The newest change of the brokers that report."""

    round: int
    """The first that shows it."""
    joined: str
    """The first of the brokers that came, for a sentence; empty for none."""
    left: str
    """The first of the brokers that went; empty for none."""


class ApprovalRecord(msgspec.Struct, frozen=True, array_like=True):
    """A person's approval or rejection of a proposal, kept until the next round with a summary closes."""

    id: str
    proposal_id: str
    verdict: Verdict
    who: str
    why: str


class ProposalRecord(msgspec.Struct, frozen=True, array_like=True):
    """A proposal that is open."""

    id: str
    kind: ActionKind
    bundle: str
    source: str
    """Owner of the bundle when it was proposed."""
    destination: str | None
    """Destination of an unload; None where Pulsar chooses."""
    round: int
    """The round that proposed it."""
    expires_ms: int
    data: bytes
    """Its canonical data."""


class DrainRecord(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a drain, as the broker's first report in it shows it."""

    report_ms: int
    """Time of that report: bundles that it lists later were put there again."""
    bundles_count: int
    """Bundles the broker had, system bundles left out."""


class ForbiddenRecord(msgspec.Struct, frozen=True, array_like=True):
    """A broker whose unloads a rule forbids again and again."""

    rule: str
    bundle: str
    """The bundle that was last to leave it."""
    detail: str
    since_round: int
    last_round: int


EarlyKind = Literal["tick", "result", "facts", "control"]
"""What can come before a cluster's first report."""


class EarlyRecord(msgspec.Struct, frozen=True, array_like=True):
    """An event that came before the cluster's system was known."""

    kind: EarlyKind
    time_ms: int
    id: str
    clock_ms: int | None
    """Newest event time of the cluster when it came; None: it was the first event."""
    value: bytes
    """The event, as ``state.engine.early`` encodes it."""

    @property
    def age_key(self) -> tuple[int, str]:
        """The newest wins; at equal times the greater id."""
        return (self.time_ms, self.id)


class Header(msgspec.Struct, array_like=True):
    """Clock, open rounds, control and guards of one cluster."""

    length_ms: int
    """Length of its rounds; a Pulsar cluster's as long as the system is not known."""
    newest_ms: int | None = None
    """Newest accepted event time; None before the first event."""
    next_round: int | None = None
    """First round that is still open."""
    partition: int | None = None
    """Partition of the input topic the cluster's records come from."""
    is_known: bool = False
    """Whether a load report was ever accepted."""
    rounds: dict[int, OpenRound] = msgspec.field(default_factory=dict)
    last_summary: int | None = None
    """Number of the last round with a summary."""
    last_report_ms: int | None = None
    """Newest report time of the last round with a summary."""
    rounds_since_start: int = 0
    last_mode: Mode | None = None
    control: list[ControlRecord] = msgspec.field(default_factory=list)
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    facts: Facts | None = None
    """The newest facts of the closed rounds."""
    system: System | None = None
    """System of the first accepted report; None before it."""
    forget_from_ms: list[int] = msgspec.field(default_factory=list)
    """Starts of rounds that begin with an empty memory, because control events ask for it; ascending."""
    early: list[EarlyRecord] = msgspec.field(default_factory=list)
    """What came before the system was known, in the order in which it came."""
    members_change: MembersChange | None = None
    """The newest change of the brokers that report; None: none since the cluster began."""
    error_rounds_count: int = 0
    """Rounds in a row that ended in an error of ours."""
    error_held_since_ms: int | None = None
    """End of the round since which so many ended in an error that nothing is done until a person resumes."""
    error_place: str = ""
    """Class and place of the error of that round."""
    drains: dict[str, DrainRecord] = msgspec.field(default_factory=dict)
    """By broker, the drains in force that have begun."""
    proposals: list[ProposalRecord] = msgspec.field(default_factory=list)
    """Open proposals, the oldest first."""
    approvals: list[ApprovalRecord] = msgspec.field(default_factory=list)
    """Approvals and rejections since the last summary, in the order of the log."""
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    """By bundle of a rejected proposal, the time until which no action on the bundle is proposed, ms."""
    forbidden: dict[str, ForbiddenRecord] = msgspec.field(default_factory=dict)
    """By broker, the rule that lately forbade what the policy chose there, with nothing else leaving the broker meanwhile."""
