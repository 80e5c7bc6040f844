"""A round at its close: what is common to both systems, and the outputs that are made of it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from state.approval_settings import Approval
from state.engine.memory import ControlRecord, Header, OpenRound
from state.outputs import Identified, Output, RoundSummary, output, rfc3339
from state.outputs.types import ROUND_TYPE
from state.round_settings import RoundSettings
from state.settings import ClusterSettings, Mode
from state.upkeep import NOTHING, Upkeep

MAX_ACTION_BYTES = 8_000_000
"""Just below the largest record that the action topics on Kafka take, the envelope included."""

Outcome = Literal["decided", "warm-up", "no-quorum", "internal-error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a controller is started with."""

    mode: Mode = "dry-run"
    action_ttl_s: float = 180.0
    max_action_bytes: int = MAX_ACTION_BYTES
    """A throttle action with more data is held: the output would refuse the record, and its batch would fail for ever."""
    approval: Approval = "none"
    """Whether unloads and splits wait for a person."""
    proposal_ttl_s: float = 3600.0
    """How long a proposal waits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Closing:
    """A closing round; it is handed from step to step, and no step changes it."""

    cluster: str
    number: int
    start_ms: int
    end_ms: int
    expires_ms: int
    """When its actions are no longer to be carried out."""
    open_round: OpenRound
    settings: ClusterSettings
    record: ControlRecord | None
    """The control event in force."""
    settings_problem: str | None
    """Why the event's settings are not in force; None if they are."""
    mode: Mode
    gap_rounds: int
    """Number of rounds without a summary between the last one with a summary and this one."""
    restarted: bool
    """Whether the cluster was silent for so long that the policies begin anew."""
    max_action_bytes: int
    upkeep: Upkeep = NOTHING
    """What is under maintenance or drained in it."""
    proposals_expire_ms: int | None = None
    """When the round's proposals expire; None where unloads and splits need no approval."""

    @property
    def is_paused(self) -> bool:
        """Whether an operator holds every action."""
        return self.record is not None and self.record.is_paused_at(self.start_ms)

    @property
    def is_dry_run(self) -> bool:
        """Whether actions are only shown."""
        return self.mode == "dry-run"

    @property
    def expires_at(self) -> str:
        """``expires_ms`` in words."""
        return rfc3339(self.expires_ms)

    def action(self, type_: str, subject: str, data: Identified, *, place: int = 0) -> Output:
        """An action of the round; ``place`` is its place in it."""
        return self._output("action", type_, subject, data, place=place, dry_run=self.is_dry_run)

    def proposal(self, type_: str, subject: str, data: Identified, *, place: int) -> Output:
        """A proposal of the round: no executor carries it out."""
        return self._output("action", type_, subject, data, place=place, dry_run=True)

    def summary(self, summary_: RoundSummary, *, actions_count: int) -> Output:
        """The summary of the round, behind its actions and proposals."""
        return self._output(
            "round", ROUND_TYPE, "round", summary_, place=actions_count, dry_run=self.is_dry_run
        )

    def _output(
        self,
        kind: Literal["action", "round"],
        type_: str,
        subject: str,
        data: Identified,
        *,
        place: int,
        dry_run: bool,
    ) -> Output:
        return output(
            kind=kind,
            type_=type_,
            subject=subject,
            cluster=self.cluster,
            number=self.number,
            place=place,
            time_ms=self.end_ms,
            data=data,
            dry_run=dry_run,
        )


def obstacle(
    header: Header, rounds: RoundSettings, reporting: Collection[str], *, live_count: int
) -> tuple[Literal["warm-up", "no-quorum"], str] | None:
    """Outcome and reason of a round whose policies do not run."""
    if header.rounds_since_start < rounds.warmup_rounds:
        return "warm-up", f"round {header.rounds_since_start + 1} of {rounds.warmup_rounds} of warm-up"
    if live_count and len(reporting) / live_count < rounds.quorum_ratio:
        share = f"{len(reporting)} of {live_count} live brokers reported"
        return "no-quorum", f"{share}, {rounds.quorum_ratio:g} of them are needed"
    return None
