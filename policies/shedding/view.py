"""What a shedding policy sees of a cluster in one round.

Invariants, checked where a view is built: brokers are sorted by name; bundles are grouped by their broker in broker
order and sorted by name within it, so a stable sort by traffic breaks ties by name. No value is NaN or infinite. A policy
never changes these arrays.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from policies.columns import Bools, Floats, Ints
from policies.costs import Costs
from policies.shedding.rules import Rules
from policies.usage import UsageSettings

NOT_OWNED = -1
"""Row of a published bundle that its publisher does not own any more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedLoads:
    """One row for each broker of a view, n rows; k heaviest bundles in all.

    Source: Pulsar ``BrokerLoadData`` and ``TopBundlesLoadData``.
    """

    usage_ratio: Floats
    """Weighted maximum usage as the broker smooths it, 1.0 = 100 %, (n,). Pulsar: ``weightedMaxEMA``."""
    bytes_per_s: Floats
    """Throughput in + out as the broker smooths it, (n,). Pulsar: ``msgThroughputEMA``."""
    age_s: Floats
    """Seconds from the broker's last update to the end of the round, (n,). Pulsar: ``updatedAt``."""
    top_starts: Ints
    """(n + 1,): entries ``top_starts[b]:top_starts[b + 1]`` of the two columns below are broker b's heaviest bundles, in its
    order: the lightest first."""
    top_rows: Ints
    """Bundle row of each, ``NOT_OWNED`` where the broker does not own it, (k,)."""
    top_bytes_per_s: Floats
    """Throughput in + out of each, not averaged, (k,)."""

    def top_of(self, broker: int) -> list[tuple[int, float]]:
        """Bundle row and bytes/s of each of a broker's heaviest bundles, the lightest first."""
        entries = slice(int(self.top_starts[broker]), int(self.top_starts[broker + 1]))
        return list(zip(self.top_rows[entries].tolist(), self.top_bytes_per_s[entries].tolist(), strict=True))

    def part(self, brokers: Ints, bundles: Ints, *, bundles_count: int) -> "PublishedLoads":
        """The loads of some brokers (ascending rows); the bundle rows ``bundles`` of ``bundles_count`` are numbered anew."""
        place = np.full(bundles_count + 1, NOT_OWNED, dtype=np.int64)
        place[bundles] = np.arange(len(bundles))
        counts = np.diff(self.top_starts)[brokers]
        taken = np.concatenate(
            [np.arange(self.top_starts[row], self.top_starts[row + 1]) for row in brokers.tolist()]
        ).astype(np.int64)
        return PublishedLoads(
            usage_ratio=self.usage_ratio[brokers],
            bytes_per_s=self.bytes_per_s[brokers],
            age_s=self.age_s[brokers],
            top_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            top_rows=place[self.top_rows[taken]],
            top_bytes_per_s=self.top_bytes_per_s[taken],
        )


NOBODY = -1
"""No such broker."""


TableT = TypeVar("TableT", "BrokerTable", "BundleTable")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokerTable:
    """Brokers that take part in the round; n rows."""

    names: tuple[str, ...]
    """Broker ids, ascending."""
    usage_ratio: Floats
    """Weighted maximum usage, (n,), 1.0 = 100 %; from ``policies.usage.weighted_maximum_ratio``."""
    percents: Floats
    """Percentage in use of each of ``policies.usage.RESOURCES``, (n, resources); 0 where it is not measured."""
    limits: Floats
    """Limit of each resource, as the broker reports it or as it is declared, (n, resources); 0 or less: not measured."""
    measured: Bools
    """Whether each resource was measured, (n, resources)."""
    is_measured: Bools
    """Whether a resource with a weight above 0 was measured, (n,)."""
    report_age_s: Floats
    """Seconds from the broker's report to the end of the round, (n,)."""
    messages_per_s: Floats
    """Message rate in + out as the broker reports it, (n,)."""
    bytes_per_s: Floats
    """Throughput in + out as the broker reports it, (n,)."""
    listed_bundle_counts: Ints
    """How many bundles the broker lists, heartbeat bundles included, (n,): Pulsar's own count."""
    may_receive: Bools
    """Whether a bundle may be moved to the broker, (n,)."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleTable:
    """Bundles of those brokers, each at its owner only, protected system bundles left out; m rows."""

    names: Sequence[str]
    """Full bundle names, ascending within a broker."""
    starts: Ints
    """(n + 1,): rows ``starts[b]:starts[b + 1]`` belong to broker ``b``."""
    rates: Floats
    """Running averages, (m, 4): messages/s in and out, bytes/s in and out."""
    sampled: Bools
    """Whether the averages have a sample, (m,)."""
    messages_per_s: Floats
    """Running average of the message rate in + out, (m,)."""
    bytes_per_s: Floats
    """Running average of the throughput in + out, (m,)."""
    counts: Ints
    """Topics, and producers and consumers together, (m, 2); as the owner reports them."""
    movable: Bools
    """Whether the bundle may be chosen, (m,)."""

    def rows_of(self, broker: int) -> slice:
        """Rows of one broker."""
        return slice(int(self.starts[broker]), int(self.starts[broker + 1]))

    def row_of(self, broker: int, name: str) -> int | None:
        """Row of a bundle of one broker; None where it is not there."""
        rows = self.rows_of(broker)
        row = bisect_left(self.names, name, rows.start, rows.stop)
        return row if row < rows.stop and self.names[row] == name else None

    def owners_of(self, rows: Ints) -> Ints:
        """Broker row that owns each of these bundle rows."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def __len__(self) -> int:
        return len(self.messages_per_s)


class Traffic(NamedTuple):
    """Load of a bundle or broker, in + out."""

    messages_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class UnloadInFlight:
    """An unload that was decided and does not show in the reports yet: its bundle is not listed anywhere but at the source."""

    bundle: str
    source: str
    destination: str | None
    """None: Pulsar chooses it, or it is not known any more."""
    traffic: Traffic | None = None
    """Load of the bundle when it was decided; needed while neither side lists the bundle."""


Side = Literal["source", "destination"]
"""Which broker of an unload."""


SOURCE_FALLS, DESTINATION_RISES = "source_falls_points", "destination_rises_points"
"""Evidence of an unload in which a policy that predicts usage states its promise: points of usage by which its source falls and
its destination rises."""


_KEPT_RATIO = 0.5
"""Share of the promised change that has to be seen for a promise to count as kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The usage of an unload's brokers before it, as it should be once the move has settled, and as it was then."""

    before_points: Mapping[Side, float]
    expected_points: Mapping[Side, float]
    seen_points: Mapping[Side, float]

    @property
    def is_kept(self) -> bool:
        """Whether the gap between the brokers closed by at least half of what was expected."""
        return self._closer_points_of(self.seen_points) >= _KEPT_RATIO * self.expected_closer_points

    @property
    def expected_closer_points(self) -> float:
        """By how much its source should have fallen and its destination risen."""
        return self._closer_points_of(self.expected_points)

    @property
    def expected_gain_points(self) -> float:
        """By how much the more used of the two should have fallen."""
        return max(self.before_points.values()) - max(self.expected_points.values())

    @property
    def gain_points(self) -> float:
        """By how much it fell; below 0 where it rose."""
        return max(self.before_points.values()) - max(self.seen_points.values())

    @property
    def error_points(self) -> float:
        """The larger of the two brokers' distances from what was expected of them."""
        return max(abs(self.seen_points[side] - points) for side, points in self.expected_points.items())

    def _closer_points_of(self, after: Mapping[Side, float]) -> float:
        closer = self.before_points["source"] - after["source"]
        if "destination" in after:
            closer += after["destination"] - self.before_points["destination"]
        return closer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundView:
    """What a policy sees: one cluster, or one group of it, in one round."""

    brokers: BrokerTable
    bundles: BundleTable
    usage_weights: Floats = field(default_factory=lambda: UsageSettings().weights())
    """Factor of each resource in a broker's usage, (resources,)."""
    costs: Costs | None = None
    """What traffic costs these brokers; None where nothing was learned yet."""
    present_rates: Callable[[Ints], Floats] | None = None
    """Gives the traffic of bundle rows in this round alone, (k, 4); None where only averages are known."""
    in_flight: Callable[[], Sequence[UnloadInFlight]] = tuple
    """Unloads from or to these brokers that are on their way; worked out when asked for."""
    moved_rates: Floats | None = None
    """Running averages of the bundles that came to or left each broker since the round before, whoever moved them, (n, 4); None: none."""
    promises: Callable[[], Sequence[Promise]] = tuple
    """What became of the promises of the cluster's last unloads that were checked within the hour, the oldest first; worked out when asked for."""
    published: PublishedLoads | None = None
    """What the brokers publish about themselves; None unless the extensible load manager runs at each of them."""
    missing: Sequence[str] = ()
    """Brokers of the whole cluster that take part, were asked and did not report in the round, ascending."""
    unloaded_ages_s: Callable[[], Mapping[str, float]] = dict
    """By broker, seconds from the last round that decided an unload from it to the end of this one; failed ones do not count."""
    absent: Bools | None = None
    """Bundles that the report of their owner leaves out, (m,); None where there are none."""
    rules: Rules | None = None
    """Which bundle may go where, before the policy's first move; a policy changes only a draft. None: nothing is forbidden."""

    def part(self, rows: Ints) -> tuple["RoundView", Ints]:
        """The view of some brokers (ascending rows) and their bundles, with the rows of these bundles."""
        starts = self.bundles.starts
        taken = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows.tolist()])
        counts = starts[rows + 1] - starts[rows]
        brokers = _take_room(self.brokers, rows)
        bundles = _take_room(
            self.bundles, taken, starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        )
        names = frozenset(brokers.names)
        present = self.present_rates
        part = replace(
            self,
            brokers=brokers,
            bundles=bundles,
            moved_rates=None if self.moved_rates is None else self.moved_rates[rows],
            costs=self.costs and self.costs.part(rows),
            present_rates=None if present is None else lambda rows: present(taken[rows]),
            absent=None if self.absent is None else self.absent[taken],
            published=self.published and self.published.part(rows, taken, bundles_count=len(self.bundles)),
            rules=self.rules and self.rules.part(rows, taken),
            in_flight=lambda: [
                unload for unload in self.in_flight() if unload.source in names or unload.destination in names
            ],
        )
        return part, taken


def _take_room(table: TableT, rows: Ints, **given: Any) -> TableT:
    for name in {column.name for column in fields(table)} - set(given):
        column = getattr(table, name)
        is_array = isinstance(column, np.ndarray)
        given[name] = column[rows] if is_array else tuple(column[row] for row in rows.tolist())
    return replace(table, **given)
