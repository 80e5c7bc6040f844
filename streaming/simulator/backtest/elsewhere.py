"""Recorded bundles that a candidate has at another place than the recording: moved, or cut into parts."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.positions import positions_of
from policies.splitting.ranges import Bundle


@dataclass(slots=True, kw_only=True)
class Part:
    """A bundle as a candidate has it: a recorded one, or a part of one that was cut."""

    name: str
    owner: str
    """Its broker."""
    share: float = 1.0
    """Its part of the recorded bundle's traffic."""


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

    def within(self, bundle: str) -> "Topics":
        """The topics in the range of a part."""
        inside = Bundle.parse(bundle).range.contains_each(positions_of(self.names))
        rows = np.flatnonzero(inside)
        return Topics(
            names=[self.names[row] for row in rows.tolist()],
            messages_per_s=self.messages_per_s[rows],
            bytes_per_s=self.bytes_per_s[rows],
        )


def cut(part: Part, boundaries: list[int], topics: Topics) -> list[Part]:
    """The children of a part. Raises ``BadRange`` for boundaries that Pulsar would refuse.

    Traffic is divided like the message rates of the topics, and equally if no topic has any.
    """
    bundle = Bundle.parse(part.name)
    ranges = bundle.range.cut(boundaries)
    at = positions_of(topics.names)
    weights = np.array([topics.messages_per_s[each.contains_each(at)].sum() for each in ranges])
    total = float(weights.sum())
    shares = weights / total if total > 0 else np.full(len(ranges), 1.0 / len(ranges))
    return [
        Part(name=str(Bundle(bundle.namespace, range_)), owner=part.owner, share=part.share * float(share))
        for range_, share in zip(ranges, shares, strict=True)
    ]


def parts_at(moved: dict[str, MovedBundle], broker: str) -> Iterator[tuple[MovedBundle, Part]]:
    """Every part that a broker has."""
    for each in moved.values():
        for part in each.parts:
            if part.owner == broker:
                yield each, part
