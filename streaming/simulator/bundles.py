"""Bundles of a simulated fleet: their names, topics and owners, and how they are split.

A bundle's traffic is a share of the source it began with, so a split changes no traffic. Topics have real names and Pulsar's hash
positions, so a split cuts where Pulsar would cut.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np

from policies.columns import Floats, Ints
from policies.splitting.ranges import Bundle, NamespaceBundles, positions_of


@dataclass(slots=True, kw_only=True, eq=False)
class Bundles:
    """m bundles and t topics. ``split`` appends rows and changes others; apart from that only ``owner`` changes."""

    names: list[str]
    source: Ints
    """Row of the source from which each bundle draws its traffic, (m,)."""
    share: Floats
    """Each bundle's part of that source, (m,)."""
    owner: Ints
    """Row of the broker that has it, (m,)."""
    topics: list[str]
    position: Ints
    """Position of each topic in the hash range, (t,)."""
    topic_bundle: Ints
    """Bundle row of each topic, (t,)."""
    topic_share: Floats
    """A topic's part of its source, (t,)."""
    _row_of: dict[str, int] = field(init=False)
    _by_bundle: Ints | None = field(init=False, default=None)
    """Topic rows in the order of their bundles; None until it is made, and after a split."""

    def __post_init__(self) -> None:
        self._row_of = {name: row for row, name in enumerate(self.names)}

    def topics_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """How many topics each of these bundles has, (k,), and the rows of all of them, bundle after bundle."""
        if self._by_bundle is None:
            self._by_bundle = np.argsort(self.topic_bundle, kind="stable")
        owners = self.topic_bundle[self._by_bundle]
        first, last = np.searchsorted(owners, rows), np.searchsorted(owners, rows, side="right")
        spans = (self._by_bundle[start:end] for start, end in zip(first.tolist(), last.tolist(), strict=True))
        return last - first, np.concatenate([np.zeros(0, dtype=np.int64), *spans])

    def row_of(self, name: str) -> int | None:
        """The row of a bundle; None for one that was split."""
        return self._row_of.get(name)

    def split(self, name: str, boundaries: list[int]) -> None:
        """Cut a bundle; its first child takes its row. Raises ``BadRange`` for boundaries that Pulsar would refuse."""
        bundle = Bundle.parse(name)
        children = bundle.range.cut(boundaries)
        row = self._row_of.pop(name)
        self._by_bundle = None
        topics = np.flatnonzero(self.topic_bundle == row)
        for place, range_ in enumerate(children):
            child = str(Bundle(bundle.namespace, range_))
            inside = topics[range_.contains_each(self.position[topics])]
            at = row if place == 0 else self._append(row)
            self.names[at : at + 1] = [child]
            self._row_of[child] = at
            self.topic_bundle[inside] = at
            self.share[at] = self.topic_share[inside].sum()

    def _append(self, parent: int) -> int:
        self.names.append("")
        self.source = np.append(self.source, self.source[parent])
        self.share = np.append(self.share, 0.0)
        self.owner = np.append(self.owner, self.owner[parent])
        return len(self.names) - 1


def make_bundles(
    namespaces: list[str],
    bundles_count: int,
    topics_count: int,
    rng: np.random.Generator,
    *,
    topic_spread: float = 1.2,
) -> tuple[Bundles, Ints, Floats]:
    """Namespaces of equal bundles, with topics of very different sizes; also the namespace and the weight of each bundle.

    ``topics_count`` is the number of topics of a namespace. ``topic_spread`` is the standard deviation of the logarithm of a topic's size.
    A bundle that no topic falls into gets one.
    """
    edges = NamespaceBundles.equal(bundles_count)
    ranges = [str(edges.range_of(row)) for row in range(bundles_count)]
    names: list[str] = []
    topics: list[str] = []
    positions: list[Ints] = []
    homes: list[Ints] = []
    weights: list[Floats] = []
    for namespace in namespaces:
        first = len(names)
        names += [f"{namespace}/{range_}" for range_ in ranges]
        own = [f"persistent://{namespace}/topic-{place}" for place in range(topics_count)]
        at = positions_of(own)
        rows = edges.rows_of(at)
        topics += own
        positions.append(at)
        homes.append(first + rows)
        weights.append(rng.lognormal(0.0, topic_spread, len(own)))
        for empty in sorted(set(range(bundles_count)) - set(rows.tolist())):
            topics.append(_topic_within(namespace, edges, empty))
            positions.append(positions_of(topics[-1:]))
            homes.append(np.array([first + empty], dtype=np.int64))
            weights.append(rng.lognormal(0.0, topic_spread, 1))
    home, weight = np.concatenate(homes), np.concatenate(weights)
    total = np.zeros(len(names)) + np.bincount(home, weights=weight, minlength=len(names))
    rows = np.arange(len(names), dtype=np.int64)
    bundles = Bundles(
        names=names,
        source=rows,
        share=np.ones(len(names)),
        owner=np.zeros(len(names), dtype=np.int64),
        topics=topics,
        position=np.concatenate(positions),
        topic_bundle=home,
        topic_share=weight / total[home],
    )
    return bundles, rows // bundles_count, total


def _topic_within(namespace: str, edges: NamespaceBundles, bundle: int) -> str:
    """A topic's name that falls into a bundle."""
    names = (f"persistent://{namespace}/small-{bundle}-{number}" for number in itertools.count())
    return next(name for name in names if int(edges.rows_of(positions_of([name]))[0]) == bundle)
