"""Cutting the throttle section of a summary to its size."""

from typing import TypeVar

import msgspec

from state.outputs import ThrottleSummary

V = TypeVar("V")

SHOWN_CHARACTERS = 500
"""Characters shown of a list that somebody else set."""


def cut_throttle(found: ThrottleSummary, shown: int) -> ThrottleSummary:
    """Tables of at most ``shown`` rows; the counts show how much is cut off."""
    return msgspec.structs.replace(
        found,
        rates_bytes_per_s=_first(found.rates_bytes_per_s, 10 * shown),
        min_bytes_per_s=_first(found.min_bytes_per_s, 10 * shown),
        violations=found.violations[:shown],
        unknown=found.unknown[:shown],
        others_leader_throttled_replicas=_texts(found.others_leader_throttled_replicas, shown),
        others_follower_throttled_replicas=_texts(found.others_follower_throttled_replicas, shown),
        others_rates_bytes_per_s=_first(found.others_rates_bytes_per_s, shown),
        lost_leader_throttled_replicas=_texts(found.lost_leader_throttled_replicas, shown),
        lost_follower_throttled_replicas=_texts(found.lost_follower_throttled_replicas, shown),
        changed_rates_bytes_per_s=_first(found.changed_rates_bytes_per_s, shown),
    )


def _first(table: dict[str, V], shown: int) -> dict[str, V]:
    return dict(list(table.items())[:shown])


def _texts(lists: dict[str, str], shown: int) -> dict[str, str]:
    return {
        topic: text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
        for topic, text in _first(lists, shown).items()
    }
