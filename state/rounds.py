"""A round closes on a copy of the cluster's memory, which takes its place only when the close succeeds.

So an error of ours ends one record or one round, and not the query of all clusters, and what it left half done is gone: the
round's summary has the outcome ``internal-error`` with class and place of the error, the memory is as before except for its
clock, and the result does not depend on where batches are cut. Stored values are read before the close, and written after it,
because a lost or damaged value is no fault of a round; running out of memory is none either, and that error passes through. An
error is reported by its class and its place in our own code, which are the same wherever the record or the round is run again;
its message and the paths of a machine are not. An open round also keeps what is no report: the newest tick and facts, and the
results of actions.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from traceback import walk_tb
from types import FrameType
from typing import Any, Generic

from state import control, summary
from state.closing import HELD_AFTER_ROUNDS, Closing, Identity, resume
from state.events import Control, Rejection
from state.memory import Header, OpenRound, Waiting, WaitingKey
from state.outputs import Configured, Output
from state.overlay import ControlData, epoch_ms, moment_at
from state.report_buffer import silence_ms
from state.settings import ClusterSettings, OverlayError, SettingsSource, to_ms
from state.system import MemoryT, System

PASSES_THROUGH = (MemoryError,)
"""Errors of the machine, which neither a record nor a round causes."""

_OUR_PACKAGES = ("policies", "state", "streaming")


def place_of(error: Exception) -> str:
    """Class and place of an error, such as ``OverflowError at state.settings:14 to_ms``."""
    frames = [frame for frame in walk_tb(error.__traceback__) if _is_ours(frame[0])]
    if not frames:
        return type(error).__name__
    frame, line = frames[-1]
    return f"{type(error).__name__} at {frame.f_globals['__name__']}:{line} {frame.f_code.co_name}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OUR_PACKAGES


def refusal(error: Exception) -> Rejection:
    """Why a record is refused that raises an error although nothing is known to be wrong with it."""
    return Rejection(
        reason="internal-error",
        detail=f"{place_of(error)}: a fault of trimtab, not of the sender; the record changed nothing. Please report it "
        f"with the record, which `trimtab replay` takes from a file",
    )


@dataclass(frozen=True, slots=True)
class HeaderSnapshot:
    """A header as it was before a record; fields that a record only adds to, as its last step, are not copied."""

    header: Header
    rounds: dict[int, OpenRound]
    number: int
    open_round: OpenRound | None

    @staticmethod
    def from_header(header: Header, number: int) -> "HeaderSnapshot":
        """``number`` is the round of the record."""
        open_round = header.rounds.get(number)
        kept = None
        if open_round is not None:
            kept = copy.copy(open_round)
            kept.spans = list(open_round.spans)
        return HeaderSnapshot(copy.copy(header), dict(header.rounds), number, kept)

    def restore(self) -> Header:
        """The header without the record."""
        self.header.rounds = self.rounds
        if self.open_round is not None:
            self.rounds[self.number] = self.open_round
        return self.header


def draft_of(header: Header) -> Header:
    """A copy of the header that a close may change; open rounds are not copied, because a close only reads them."""
    draft = copy.copy(header)
    for name in Header.__struct_fields__:
        value = getattr(header, name)
        if isinstance(value, dict | list):
            setattr(draft, name, copy.copy(value))
    draft.ledger = header.ledger.draft()
    return draft


def count_error(header: Header, error: Exception, *, end_ms: int) -> None:
    """Count a round that ended in an error; after some in a row the cluster's actions are held until a person resumes it."""
    header.error_rounds_count += 1
    if header.error_rounds_count >= HELD_AFTER_ROUNDS and header.error_held_since_ms is None:
        header.error_held_since_ms, header.error_place = end_ms, place_of(error)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory(Generic[MemoryT]):
    """What a close reads and replaces."""

    header: Header
    own: MemoryT | None = None
    """What the system remembers; None where the close has no use for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Round(Generic[MemoryT]):
    """A round at its end."""

    cluster: str
    number: int
    waiting: Mapping[WaitingKey, Waiting]
    identity: Identity
    settings: SettingsSource
    system: System[MemoryT]


def close(ended: Round[MemoryT], memory: Memory[MemoryT]) -> tuple[Memory[MemoryT], list[Output]]:
    """The memory after the round, and the round's outputs; ``memory`` stays as it is."""
    try:
        after, outputs = _close(ended, _draft(ended, memory))
        if outputs:
            after.header.error_rounds_count = 0
    except PASSES_THROUGH:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, it must not end the query of all clusters
        after, outputs = _fail(ended, memory, error)
    del after.header.rounds[ended.number]
    after.header.next_round = ended.number + 1
    return after, outputs


def _draft(ended: Round[MemoryT], memory: Memory[MemoryT]) -> Memory[MemoryT]:
    draft = replace(memory, header=draft_of(memory.header))
    rounds = ended.system.rounds(ended.settings.base(ended.cluster))
    return (
        _forgotten(ended, draft) if control.is_forgetting_due(draft.header, ended.number, rounds) else draft
    )


def _forgotten(ended: Round[MemoryT], draft: Memory[MemoryT]) -> Memory[MemoryT]:
    # A round without reports may close without its memory, which then is empty from here on, too.
    remembered = ended.system.memory() if draft.own is None else ended.system.forgotten(draft.own)
    return Memory(header=control.forget(draft.header, ended.number), own=remembered)


def _close(ended: Round[MemoryT], draft: Memory[MemoryT]) -> tuple[Memory[MemoryT], list[Output]]:
    header, system = draft.header, ended.system
    open_round = header.rounds[ended.number]
    remembered = system.observe(header, draft.own, open_round)
    if remembered is None or not system.has_summary(header, open_round):
        return Memory(header=header, own=remembered), []
    event = control.in_force(header, ended.number)
    settings, problem = _settings_in_force(ended, event)
    closing = _closing(ended, header, event, settings, problem)
    if closing.restarted:
        header.rounds_since_start = 0
    if closing.mode == "act" and header.last_mode == "dry-run":
        header.ledger.forget_dry_run()
    header.last_mode = closing.mode
    if closing.overlay.resumed_at is not None:
        resume(header, epoch_ms(closing.overlay.resumed_at))
    remembered, outputs = system.decide(closing, header, remembered, ended.waiting)
    header.rounds_since_start += 1
    header.last_summary = ended.number
    if open_round.spans:
        header.last_report_ms = open_round.spans[-1][1]
    return Memory(header=header, own=remembered), outputs


def _settings_in_force(ended: Round[MemoryT], event: Control | None) -> tuple[ClusterSettings, str | None]:
    """Settings of a round, and why the overlay is not in them (None if it is).

    The overlay was valid when it came; after a restart with other settings below it, it may no longer be.
    """
    base = ended.settings.base(ended.cluster)
    if event is None:
        return base, None
    try:
        return ended.settings.overlaid(ended.cluster, event.data.settings_json), None
    except OverlayError as error:
        return (
            base,
            f"the overlay does not fit the settings of this start, they are in force without it: {error}",
        )


def _closing(
    ended: Round[MemoryT],
    header: Header,
    event: Control | None,
    settings: ClusterSettings,
    problem: str | None,
) -> Closing:
    number, identity = ended.number, ended.identity
    start_ms, end_ms = number * header.length_ms, (number + 1) * header.length_ms
    overlay = ControlData() if event is None else event.data.at(moment_at(start_ms))
    mode = overlay.mode or identity.mode
    base = ended.settings.base(ended.cluster).in_force[ended.system.name]
    needs_approval = (overlay.approval or identity.approval) == "required" and mode == "act"
    return Closing(
        cluster=ended.cluster,
        number=number,
        start_ms=start_ms,
        end_ms=end_ms,
        expires_ms=end_ms + to_ms(identity.action_ttl_s),
        open_round=header.rounds[number],
        settings=settings,
        control=event,
        overlay=overlay,
        settings_problem=problem,
        mode=mode,
        configured=Configured(
            mode=identity.mode,
            approval=identity.approval,
            settings_digest=base.digest,
            settings=base.different,
        ),
        gap_rounds=0 if header.last_summary is None else number - header.last_summary - 1,
        restarted=silence_ms(header, number) > ended.system.rounds(settings).max_report_age_ms,
        max_action_bytes=identity.max_action_bytes,
        memory_start=identity.memory_start,
        proposals_expire_ms=end_ms + to_ms(identity.proposal_ttl_s) if needs_approval else None,
    )


def _fail(
    ended: Round[MemoryT], memory: Memory[MemoryT], error: Exception
) -> tuple[Memory[MemoryT], list[Output]]:
    """The memory as before with its clock moved on, and a summary that says what happened."""
    header, number = draft_of(memory.header), ended.number
    count_error(header, error, end_ms=(number + 1) * header.length_ms)
    event = control.in_force(header, number)
    settings = _settings_after_error(ended, event)
    closing = replace(_closing(ended, header, event, settings, None), restarted=False)
    reports_ms = {
        key.broker: report.time_ms for key, report in ended.waiting.items() if key.kind == ended.system.report
    }
    summary_ = summary.frame(
        closing,
        header,
        policy=ended.system.policy(settings),
        outcome="internal-error",
        reason=f"{place_of(error)}: a fault of trimtab; the round changed nothing but the clock. Please report it",
        reports_ms=reports_ms,
        live=list(reports_ms),
    )
    spans = header.rounds[number].spans
    rounds = ended.system.rounds(ended.settings.base(ended.cluster))
    # After a long silence the next round has to see it too, because this round failed and did not begin anew.
    is_silence_over = silence_ms(header, number) <= rounds.max_report_age_ms
    header.last_summary = number
    if spans and is_silence_over:
        header.last_report_ms = spans[-1][1]
    return replace(memory, header=header), [closing.summary(summary.fit(summary_), actions_count=0)]


def _settings_after_error(ended: Round[Any], event: Control | None) -> ClusterSettings:
    """Settings in force; those of the start if the overlay cannot be read, which may be what failed."""
    try:
        return _settings_in_force(ended, event)[0]
    except PASSES_THROUGH:
        raise
    except Exception:  # noqa: BLE001  the error of the close is what is reported
        return ended.settings.base(ended.cluster)
