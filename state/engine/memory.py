"""What is remembered of one cluster.

Three kinds of value: the *header* (clock, open rounds, control, guards), the *fleet* (brokers, bundles, policy memory)
and the reports and topic statistics waiting in open rounds. ``state.engine.encoding`` turns each into bytes.
"""

from typing import Any

import msgspec
import numpy as np

from policies.columns import Bools, Floats, Ints
from state.engine.ledger import Ledger
from state.engine.store import WaitingKind
from state.events import ActionOutcome, BrokerReport, System, TopicTraffic
from state.facts import Facts, FactsRecord
from state.settings import Mode

PolicyMemory = dict[str, dict[str, dict[str, Any]]]
"""Values by shedding policy, field of its memory, and broker or group (the default group is the empty text):
see ``state.pulsar.policy_memory``."""


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

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class TickRecord(msgspec.Struct, frozen=True, array_like=True):
    """The newest sweep of a round."""

    time_ms: int
    id: str
    asked: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


class ResultRecord(msgspec.Struct, frozen=True, array_like=True, order=True):
    """What became of an action, applied when its round closes."""

    time_ms: int
    id: str
    action_id: str
    outcome: ActionOutcome


class Waiters(msgspec.Struct, frozen=True, array_like=True):
    """How much of one kind waits for a round's close."""

    senders_count: int = 0
    rows_count: int = 0
    """Bundles, topics or replicas of all senders."""


class OpenRound(msgspec.Struct, array_like=True):
    """What is known of a round before it closes, beside its reports."""

    spans: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """First and last report time of each stretch without a gap above ``max_report_age_s``, ascending."""
    tick: TickRecord | None = None
    results: list[ResultRecord] = msgspec.field(default_factory=list)
    waiters: dict[WaitingKind, Waiters] = msgspec.field(default_factory=dict)
    """How much waits for its close."""
    facts: FactsRecord | None = None
    """The newest facts of its time."""


class MembersChange(msgspec.Struct, frozen=True, array_like=True):
    """The newest change of the brokers that report."""

    round: int
    """The first that shows it."""
    joined: str
    """The first of the brokers that came, for a sentence; empty for none."""
    left: str
    """The same of those that went."""


class Header(msgspec.Struct, array_like=True):
    """Clock, open rounds, control and guards of one cluster."""

    length_ms: int
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
    """The newest of the closed rounds."""
    system: System | None = None
    """Of the first accepted report; None before it."""
    forget_from_ms: list[int] = msgspec.field(default_factory=list)
    """Starts of rounds that begin with an empty memory, because control events ask for it; ascending."""
    early_ticks: list[TickRecord] = msgspec.field(default_factory=list)
    """The newest tick of each round of Kafka's length, as long as nobody knows how long the cluster's rounds are."""
    members_change: MembersChange | None = None
    """The newest change of the brokers that report; None: none since the cluster began."""
    error_rounds_count: int = 0
    """Rounds in a row that ended in an error of ours."""
    error_held_since_ms: int | None = None
    """End of the round since which so many ended in an error that nothing is done until a person resumes."""
    error_place: str = ""
    """Class and place of the error of that round."""


class Fleet:
    """Brokers and bundles of one cluster and what the policies remember of them. Replaced, never mutated in place."""

    __slots__ = (
        "averages",
        "broker_last_ms",
        "brokers",
        "bundles",
        "last_ms",
        "listed_rows",
        "namespace",
        "namespaces",
        "owed_skip",
        "owner",
        "policies",
        "run_start_ms",
        "samples",
        "split_averages",
        "split_hits",
        "split_samples",
        "starts",
    )

    def __init__(self) -> None:
        self.brokers: list[str] = []
        """Broker ids, ascending; k of them."""
        self.broker_last_ms: Ints = np.zeros(0, dtype=np.int64)
        """Time of each broker's newest snapshot report, (k,)."""
        self.starts: Ints = np.zeros(1, dtype=np.int64)
        """(k + 1,): entries ``starts[i]:starts[i + 1]`` of the two columns below are broker i's listings."""
        self.listed_rows: Ints = np.zeros(0, dtype=np.int64)
        """Bundle row of each listing."""
        self.run_start_ms: Ints = np.zeros(0, dtype=np.int64)
        """When the unbroken run of each listing began."""
        self.bundles: list[str] = []
        """Bundle names; b of them."""
        self.owner: Ints = np.zeros(0, dtype=np.int64)
        """Broker row that owns each bundle, -1 where that broker is forgotten, (b,)."""
        self.averages: Floats = np.zeros((0, 4))
        """Running averages of the traffic, (b, 4)."""
        self.samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in the average, at most ``bundle_average_samples``, (b,)."""
        self.last_ms: Ints = np.zeros(0, dtype=np.int64)
        """When each bundle was last listed, (b,)."""
        self.owed_skip: Bools = np.zeros(0, dtype=np.bool_)
        """Whether the owner's next sample is its first after a move, (b,)."""
        self.namespaces: list[str] = []
        """Namespaces of the bundles; s of them."""
        self.namespace: Ints = np.zeros(0, dtype=np.int64)
        """Row of each bundle's namespace, (b,)."""
        self.split_averages: Floats = np.zeros((0, 2))
        """Message rate and throughput, in + out, as the split criteria average them, (b, 2)."""
        self.split_samples: Ints = np.zeros(0, dtype=np.int64)
        """Samples in them, at most ``average_samples``, (b,); none while splits are switched off."""
        self.split_hits: Ints = np.zeros(0, dtype=np.int64)
        """Rounds in a row each bundle was above a limit, (b,)."""
        self.policies: PolicyMemory = {}
        """What the shedding policies remember."""

    def forget_policies(self) -> None:
        """Start again with hit counts and whatever else the policies remember."""
        self.split_hits = np.zeros_like(self.split_hits)
        self.policies = {}


class WaitingReport(msgspec.Struct, frozen=True):
    """A broker's newest report of an open round."""

    time_ms: int
    id: str
    report: BrokerReport

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)


class WaitingTopics(msgspec.Struct, frozen=True):
    """A broker's newest topic statistics of an open round."""

    time_ms: int
    id: str
    traffic: TopicTraffic

    @property
    def age_key(self) -> tuple[int, str]:
        """Newest wins; equal times: the greater id."""
        return (self.time_ms, self.id)
