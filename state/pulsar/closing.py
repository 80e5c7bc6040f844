"""What a closing round is made of, and what it comes to: handed from step to step, changed by none of them."""

from dataclasses import dataclass, field
from typing import Literal

from state.engine.memory import ControlRecord, OpenRound, WaitingReport, WaitingTopics
from state.pulsar.actions import Admitted
from state.pulsar.shedding import Shed
from state.pulsar.splits import Splits
from state.settings import ClusterSettings, Mode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """A round at its close, with all that its outputs are made of."""

    cluster: str
    number: int
    start_ms: int
    end_ms: int
    expires_ms: int
    """When its actions are no longer to be carried out."""
    open_round: OpenRound
    reports: dict[str, WaitingReport]
    topics: dict[str, WaitingTopics]
    settings: ClusterSettings
    record: ControlRecord | None
    settings_problem: str | None
    mode: Mode

    @property
    def paused(self) -> bool:
        """Whether an operator holds every action."""
        return self.record is not None and self.record.paused


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """What a round came to; nothing shed where its policies did not run, no splits where they are switched off."""

    outcome: Literal["decided", "warm-up", "no-quorum"]
    reason: str
    shed: Shed | None = None
    admitted: Admitted = field(default_factory=Admitted)
    splits: Splits | None = None
