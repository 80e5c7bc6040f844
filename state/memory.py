"""The header of a cluster: its clock, its open rounds, control events and ledger; and how much is taken from one cluster.

What a system remembers beside it is in ``state.pulsar.memory`` and ``state.kafka.memory``. A header is stored as an array of its
fields behind the version of the layout: a change of a field here, or in anything that is encoded, is a change of the layout, and
``state.layouts`` says what to do. More than the limits is refused with a reason, so that no sender makes the memory grow for
ever. Every limit is far above what a real cluster sends, and holds for one round; docs/reference/limits.md lists them all. Above a limit
the order of arrival decides what is refused: what was taken first stays.
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from policies.shedding.view import Traffic
from state.events import ActionResult, Approval, ClusterFacts, Control, Rejection, RejectReason, System, Tick
from state.facts import Facts
from state.layouts import seal, unseal
from state.ledger import ActionKind, Ledger
from state.settings import Mode

WaitingKind = Literal["report", "topics", "logs", "moves"]


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
    tick: Tick | None = None
    """The newest sweep."""
    results: list[ActionResult] = msgspec.field(default_factory=list)
    waiters: dict[WaitingKind, Waiters] = msgspec.field(default_factory=dict)
    """Who waits for its close."""
    facts: ClusterFacts | None = None
    """The newest facts of its time; they are obeyed from its close on."""
    stored_count: int = 0
    """Values of senders in the store, with those that newer ones have replaced."""

    @property
    def senders_count(self) -> int:
        """Values that count at its close."""
        return sum(len(waiter.senders) for waiter in self.waiters.values())


class MembersChange(msgspec.Struct, frozen=True, array_like=True):
    """The newest change of the brokers that report."""

    round: int
    """The first that shows it."""
    joined: str
    """The brokers that came, the first few and how many more, for a sentence; empty for none."""
    left: str
    """The same of those that went."""


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
    """Time of that report: what the broker lists without a break since then was not put there again."""
    bundles_count: int
    """Bundles the broker had, system bundles left out."""
    put_back: tuple[str, ...] = ()
    """Bundles that came to it later and are there, ascending."""
    left_out: dict[str, Traffic] = {}
    """By bundle that its reports leave out and that nothing shows to be gone, its average traffic when it was last listed."""


class ForbiddenRecord(msgspec.Struct, frozen=True, array_like=True):
    """A broker whose unloads a rule forbids again and again."""

    policy: str
    """The shedding policy that chooses them."""
    rule: str
    bundle: str
    """The bundle that was last to leave it."""
    detail: str
    since_round: int
    last_round: int


EarlyKind = Literal["tick", "result", "facts", "control"]
"""What can come before a cluster's first report."""


class PendingEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event that came before the cluster's system was known."""

    kind: EarlyKind
    time_ms: int
    id: str
    clock_ms: int | None
    """Newest event time of the cluster when it came; None: it was the first event."""
    value: bytes
    """The event, as ``state.control`` encodes it."""

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
    control: dict[int, Control] = msgspec.field(default_factory=dict)
    """By the first round that each applies to, the control event in force and those that wait; ascending in round and age."""
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    facts: Facts | None = None
    """The newest facts of the closed rounds."""
    system: System | None = None
    """System of the first accepted report; None before it."""
    forget_from_ms: list[int] = msgspec.field(default_factory=list)
    """Starts of rounds that begin with an empty memory, because control events ask for it; ascending."""
    early: list[PendingEvent] = msgspec.field(default_factory=list)
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
    approvals: list[Approval] = msgspec.field(default_factory=list)
    """Approvals and rejections since the last summary, in the order of the log."""
    rejected: dict[str, int] = msgspec.field(default_factory=dict)
    """By bundle of a rejected proposal, the time until which no action on the bundle is proposed, ms."""
    forbidden: dict[str, ForbiddenRecord] = msgspec.field(default_factory=dict)
    """By broker, the rule that lately forbade what the policy chose there, with nothing else leaving the broker meanwhile."""


class Waiting(Protocol):
    """What one sender reported for an open round."""

    @property
    def time_ms(self) -> int: ...

    @property
    def age_key(self) -> tuple[int, str]:
        """The newest wins; at equal times the greater id."""

    @property
    def rows_count(self) -> int:
        """Number of bundles, topics, replicas or partitions in it."""


class WaitingKey(NamedTuple):
    """The key of what waits in an open round.

    For a Pulsar broker: its load report and the statistics of its topics; for a Kafka broker its logs; for a Kafka cluster,
    under the empty broker name, its moves.
    """

    round: int
    kind: WaitingKind
    broker: str


_header_decoder = msgspec.msgpack.Decoder(Header)


def encode_header(header: Header) -> bytes:
    """Bytes of a header."""
    return seal(header)


def decode_header(value: bytes) -> Header:
    """Header from bytes. Raises what ``unseal`` does."""
    return _header_decoder.decode(unseal("header", value))


MAX_BROKERS_COUNT: Final = 10_000
"""Brokers with a report in one round: ten times the largest cluster of the benchmarks. Their times and ids are about 1 MB in a value
that every batch writes."""
MAX_ROWS_COUNT: Final = 1_000_000
"""Bundles, topics, or replicas on the move, of all brokers of a round: ten times the largest fleet of the benchmarks; 90 MB of
memory."""
MAX_RESULTS_COUNT: Final = 10_000
"""Results of actions in one round: a round decides a few dozen, and executors answer each. About 1.5 MB in a value that every
batch writes."""
MAX_EARLY_RESULTS_COUNT: Final = 1_000
"""Results of actions before the first report of a cluster, which has decided nothing yet."""

MAX_APPROVALS_COUNT: Final = 1_000
"""Approvals and rejections of one cluster between two summaries: a person answers a few dozen proposals."""

_ROWS: Final[dict[WaitingKind, tuple[str, RejectReason]]] = {
    "report": ("bundles", "too-many-bundles"),
    "topics": ("topics", "too-many-topics"),
    "logs": ("replicas", "too-many-replicas"),
}
"""What the rows of a report are. All that moves in a Kafka cluster is one record, whose size is limited already."""


def refusal(waits: tuple[WaitingKey, Waiting] | None, open_round: OpenRound) -> Rejection | None:
    """Why an event is not taken into its round; ``waits`` is its part that would wait."""
    if waits is None or waits[0].kind not in _ROWS:
        return None
    key, new = waits
    there, (what, reason) = open_round.waiters.get(key.kind, Waiters()), _ROWS[key.kind]
    before = there.senders.get(key.broker)
    if before is None and len(there.senders) >= MAX_BROKERS_COUNT:
        return _reject("too-many-brokers", "brokers", MAX_BROKERS_COUNT)
    rows_count = there.rows_count + new.rows_count - (0 if before is None else before.rows_count)
    if rows_count > MAX_ROWS_COUNT:
        return _reject(reason, what, MAX_ROWS_COUNT)
    return None


def refused_result(result: ActionResult, known: Collection[ActionResult]) -> Rejection | None:
    """Why a result is not taken into its round, whose results are ``known``."""
    if len(known) < MAX_RESULTS_COUNT or result in known:
        return None
    return _reject("too-many-results", "results of actions", MAX_RESULTS_COUNT)


def refused_early_result(known_count: int) -> Rejection | None:
    """Why a result of a cluster without a report is not kept, where this many are."""
    if known_count < MAX_EARLY_RESULTS_COUNT:
        return None
    return Rejection(
        reason="too-many-results",
        detail=f"{MAX_EARLY_RESULTS_COUNT} results of actions of this cluster wait for its first report already, and more are not "
        f"taken: look for a sender that makes names up, or for reports that do not come",
    )


def refused_approval(waiting_count: int) -> Rejection | None:
    """Why a person's approval or rejection is not taken, where this many wait for the next summary."""
    if waiting_count < MAX_APPROVALS_COUNT:
        return None
    return Rejection(
        reason="too-many-approvals",
        detail=f"{MAX_APPROVALS_COUNT} approvals of this cluster wait for a round to close already, and more are not taken: look "
        f"for a sender that repeats itself under new ids, or for reports that do not come",
    )


def _reject(reason: RejectReason, what: str, limit: int) -> Rejection:
    return Rejection(
        reason=reason,
        detail=f"the round has {limit} {what} of this cluster already, and more are not taken: look for a sender that makes "
        f"names up, or that repeats itself under new ids",
    )
