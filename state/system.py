"""What a system is to the engine: what it observes, decides and remembers.

The engine has the clock, the waiting room, the control event in force, the restart after a silence, warm-up and quorum, the copy
that a close works on, and the frame of the summary. A system brings the rest; ``state.systems`` lists the systems.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from state.closing import Closing
from state.events import Event
from state.events import System as SystemName
from state.layouts import Kind
from state.memory import Header, OpenRound, WaitingKey, WaitingKind
from state.outputs import Output
from state.settings import ClusterSettings, KafkaSettings, PulsarSettings, RoundSettings

MemoryT = TypeVar("MemoryT")


class HasSettings(Protocol):
    """Settings of both systems: those of one cluster, or those of all."""

    @property
    def pulsar(self) -> PulsarSettings: ...

    @property
    def kafka(self) -> KafkaSettings: ...


class System(ABC, Generic[MemoryT]):
    """A kind of cluster; ``MemoryT`` is what is remembered of one beside the header, and is never changed in place."""

    name: ClassVar[SystemName]
    events: ClassVar[Mapping[WaitingKind, type[Event]]]
    """Type of the event that waits as each kind."""
    others: ClassVar[tuple[type[Event], ...]]
    """Further events that only clusters of this system have."""
    report: ClassVar[WaitingKind]
    """The kind that is a broker's load report."""
    stored: ClassVar[Kind]
    """The kind of stored value that its memory is."""
    memory: ClassVar[type[Any]]
    """Type of its memory; one without arguments is empty."""

    @abstractmethod
    def rounds(self, settings: HasSettings) -> RoundSettings:
        """Length of its rounds and the other settings of rounds."""

    @abstractmethod
    def policy(self, settings: ClusterSettings) -> str:
        """Name of the policy in force."""

    @abstractmethod
    def forgotten(self, memory: MemoryT) -> MemoryT:
        """What stays of the memory when the cluster is forgotten; nothing where a round may close without it (``needs_memory``)."""

    @abstractmethod
    def needs_memory(self, open_round: OpenRound) -> bool:
        """Whether the close of a round looks at the memory."""

    @abstractmethod
    def observe(self, header: Header, memory: MemoryT | None, open_round: OpenRound) -> MemoryT | None:
        """Take in what a round shows about earlier decisions and about the cluster itself. May change ``header``."""

    @abstractmethod
    def has_summary(self, header: Header, open_round: OpenRound) -> bool:
        """Whether a round is decided and has a summary; a round without reports may have nothing to show."""

    @abstractmethod
    def decide(
        self, closing: Closing, header: Header, memory: MemoryT, waiting: Mapping[WaitingKey, Any]
    ) -> tuple[MemoryT, list[Output]]:
        """The memory after a round, its actions, and last its summary. May change ``header``."""
