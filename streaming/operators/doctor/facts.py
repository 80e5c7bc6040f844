"""What was found before anything is judged: from the brokers, the topics, the checkpoint and this machine."""

from collections.abc import Mapping
from dataclasses import dataclass

from state.outputs import RoundSummary
from streaming.operators.doctor.findings import Missed
from streaming.operators.round_events import Round
from streaming.settings import Settings
from streaming.transport.checkpoint import Card
from streaming.transport.publishing import Checkpoint, Marker
from streaming.transport.topics import BrokersSeen, TopicsSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSeen:
    """One address, with its brokers and topics."""

    name: str
    url: str
    brokers: BrokersSeen | Missed
    topics: TopicsSeen | Missed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """The checkpoint as this machine has it; every field but the location is None if it has none."""

    location: str
    card: Card | None = None
    checkpoint: Checkpoint | None = None
    committed_batch: int | None = None
    refusal: str | None = None
    """Why a start would refuse it, whatever the marker says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of a controller, by its newest beat within the last hour."""

    controller: str
    instance: str
    """``host:pid``."""
    epoch: int
    batch: int | None
    version: str
    role: str
    """``leader`` or ``standby``."""
    problem: str
    """Why a standby could not lead now; empty where it could, or leads."""
    age_s: float
    """Seconds since the beat."""
    runs: bool
    """Whether it still beats."""
    ahead_s: float
    """Seconds by which its clock is ahead of the brokers'."""

    @property
    def host(self) -> str:
        """The machine that it runs on."""
        return self.instance.rpartition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """The newest summary of a cluster, with the epoch of its controller."""

    event: Round
    epoch: int | None

    @property
    def data(self) -> RoundSummary:
        """The content of the summary."""
        return self.event.data


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSeen:
    """The newest records of the input topic, as far as they were looked at."""

    youngest_age_s: float | None
    """Seconds since the youngest record seen; None if there was none in the last day."""
    ahead_s: Mapping[str, float]
    """By sender, the seconds by which its events' times are ahead of when they were appended; the worst of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedSeen:
    """Records that could not be used in the last hour, by reason."""

    counts: Mapping[str, int]
    is_complete: bool
    """False where there are more than were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts, at one moment."""

    settings: Settings
    version: str
    """Version of this trimtab."""
    spark_version: str
    """Version of the pyspark that is installed here."""
    host: str
    """Name of this machine."""
    now_ms: int
    sides: tuple[SideSeen, ...]
    marker: Marker | Missed | None
    checkpoint: CheckpointSeen | Missed
    processes: tuple[Process, ...] | Missed
    clusters: tuple[ObservedCluster, ...] | Missed
    """The newest summary of each cluster within the last day."""
    input: InputSeen | Missed
    rejected: RejectedSeen | Missed
