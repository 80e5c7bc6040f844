"""An exception ends one record or one round, not the query of all clusters.

A record is taken, and a round is closed, on memory that can be restored: a failure leaves it as it was before. Stored values
are read, decoded and written outside of that, because a lost or damaged value is no fault of a round; running out of memory
is none either, and that error passes through.

An error is reported by its class and its place in our own code, which are the same wherever the record or the round is run
again; its message and the paths of a machine are not.
"""

import copy
from dataclasses import dataclass
from traceback import walk_tb
from types import FrameType

from state.engine.memory import Header, OpenRound
from state.events import Rejection

PASSES_THROUGH = (MemoryError,)
"""Errors of the machine, which neither a record nor a round causes."""
HELD_AFTER_ROUNDS = 3
"""Rounds in a row that end in an error before nothing is done any more: a single record may cause one, but not three."""

_OUR_PACKAGES = ("policies", "state", "streaming")


def place_of(error: Exception) -> str:
    """Class and place of an error, such as ``OverflowError at state.round_settings:14 to_ms``."""
    found = [frame for frame in walk_tb(error.__traceback__) if _is_ours(frame[0])]
    if not found:
        return type(error).__name__
    frame, line = found[-1]
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
class Untaken:
    """A header as it was before a record; fields that a record only adds to, as its last step, are not copied."""

    header: Header
    rounds: dict[int, OpenRound]
    number: int
    open_round: OpenRound | None

    @staticmethod
    def of(header: Header, number: int) -> "Untaken":
        """``number`` is the round of the record."""
        found = header.rounds.get(number)
        kept = None
        if found is not None:
            kept = copy.copy(found)
            kept.spans = list(found.spans)
        return Untaken(copy.copy(header), dict(header.rounds), number, kept)

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
