"""A bundle that is to leave its owner, and how much of the owner's traffic it takes along."""

from typing import NamedTuple

from policies.shedding.view import NOBODY, RoundView

Refusal = tuple[str, str]
"""Outcome and detail of a bundle that stays where it is."""


class Move(NamedTuple):
    """A bundle that is to leave its owner, by rows of the view; the destination is ``NOBODY`` where Pulsar chooses it."""

    row: int
    source: int
    destination: int


def name_of(view: RoundView, broker: int) -> str | None:
    """The name of a broker row; None for ``NOBODY``."""
    return None if broker == NOBODY else view.brokers.names[broker]


def share_of(view: RoundView, move: Move) -> float:
    """The bundle's share of its owner's traffic, by messages or bytes, whichever is more."""
    bundles, brokers = view.bundles, view.brokers
    return max(
        share_ratio(float(bundles.messages_per_s[move.row]), float(brokers.messages_per_s[move.source])),
        share_ratio(float(bundles.bytes_per_s[move.row]), float(brokers.bytes_per_s[move.source])),
    )


def share_ratio(part: float, whole: float) -> float:
    """A bundle's share of its broker's traffic, at most 1: averages lag behind, so the bundle may seem to have more than all of it."""
    return 1.0 if part >= whole > 0 else part / whole if whole > 0 else float(part > 0)
