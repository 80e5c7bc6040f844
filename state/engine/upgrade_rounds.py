"""Upgrade of a header's open rounds from version 2 (trimtab 0.1.0) to version 3: who waits, in the place of how many.

Who waits is in the store (``WaitingRoom.find_senders``); the header of version 2 only has their number, and that of their rows.
"""

from typing import Any

_ROUNDS, _WAITERS = 5, 3
"""Positions in a header, and in an open round."""


def with_senders(header: list[Any]) -> list[Any]:
    """A header whose open rounds have no senders yet, and the number of stored values."""
    rounds = {number: _without_counts(each) for number, each in header[_ROUNDS].items()}
    return [*header[:_ROUNDS], rounds, *header[_ROUNDS + 1 :]]


def _without_counts(open_round: list[Any]) -> list[Any]:
    stored_count = sum(senders_count for senders_count, _rows_count in open_round[_WAITERS].values())
    return [*open_round[:_WAITERS], {}, *open_round[_WAITERS + 1 :], stored_count]
