"""Recorded bundles that a candidate has at another place than the recording: moved, or cut into parts."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.ranges import Bundle, positions_of


@dataclass(slots=True, kw_only=True)
class Part:
    """A bundle as a candidate has it: a recorded one, or a part of one that was cut."""

    name: str
    owner: str
    """Its broker."""
    share: float = 1.0
    """Its part of the recorded bundle's traffic."""
    counts_ratios: Floats = field(default_factory=lambda: np.ones(2))
    """Its part of the recorded bundle's topics and sessions, (2,)."""


@dataclass(slots=True, kw_only=True)
class MovedBundle:
    """A recorded bundle, and where its parts are."""

    parts: list[Part]
    traffic: Floats
    """Its traffic as its recorded broker last reported it, (4,)."""
    counts: Ints
    """Topics and sessions, (2,)."""
    seen_ms: int
    """Time of that report."""


@dataclass(slots=True, kw_only=True)
class Topics:
    """Last statistics of a bundle's topics."""

    names: list[str] = field(default_factory=list)
    messages_per_s: Floats = field(default_factory=lambda: np.zeros(0))
    bytes_per_s: Floats = field(default_factory=lambda: np.zeros(0))
    sessions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Producers and consumers that are known of."""

    def within(self, bundle: str) -> "Topics":
        """The topics in the range of a part."""
        inside = Bundle.parse(bundle).range.contains_each(positions_of(self.names))
        rows = np.flatnonzero(inside)
        return Topics(
            names=[self.names[row] for row in rows.tolist()],
            messages_per_s=self.messages_per_s[rows],
            bytes_per_s=self.bytes_per_s[rows],
            sessions=self.sessions[rows],
        )


def cut(part: Part, boundaries: list[int], topics: Topics) -> list[Part]:
    """The children of a part. Raises ``BadRange`` for boundaries that Pulsar would refuse.

    Traffic is divided like the message rates of the topics, sessions like those that are known of, or like the topics; and equally
    if no topic has any.
    """
    bundle = Bundle.parse(part.name)
    ranges = bundle.range.cut(boundaries)
    at = positions_of(topics.names)
    inside = [each.contains_each(at) for each in ranges]
    shares = _shares([topics.messages_per_s[each].sum() for each in inside])
    numbers = _shares([each.sum() for each in inside])
    sessions = _shares([topics.sessions[each].sum() for each in inside]) if topics.sessions.any() else numbers
    counts_ratios = part.counts_ratios * np.column_stack([numbers, sessions])
    return [
        Part(
            name=str(Bundle(bundle.namespace, range_)),
            owner=part.owner,
            share=part.share * float(share),
            counts_ratios=ratios,
        )
        for range_, share, ratios in zip(ranges, shares, counts_ratios, strict=True)
    ]


def _shares(weights: list[float]) -> Floats:
    total = sum(weights)
    return np.array(weights) / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def parts_at(moved: dict[str, MovedBundle], broker: str) -> Iterator[tuple[MovedBundle, Part]]:
    """Every part that a broker has."""
    for each in moved.values():
        for part in each.parts:
            if part.owner == broker:
                yield each, part
