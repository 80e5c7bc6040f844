"""What a first pass over a recording shows of each Pulsar cluster in it: its brokers, what traffic costs them, and its time span."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.costs import Costs
from state.events import Event, LoadReport
from streaming.simulator.costs import RecordedCosts
from streaming.simulator.recorded import NoFleet

_FEWEST_BROKERS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """A recorded cluster."""

    cluster: str
    brokers: tuple[str, ...]
    """Ascending."""
    costs: Costs
    """What traffic costs them, as it is known at the end."""
    first_ms: int
    """Time of its first load report."""
    last_ms: int
    reports_count: int


@dataclass(slots=True)
class _Cluster:
    learned: RecordedCosts = field(default_factory=RecordedCosts)
    brokers: set[str] = field(default_factory=set)
    first_ms: int | None = None
    last_ms: int = 0
    has_bundles: bool = False

    def add(self, event: LoadReport) -> None:
        self.learned.add(event)
        self.brokers.add(event.broker)
        self.first_ms = event.time_ms if self.first_ms is None else min(self.first_ms, event.time_ms)
        self.last_ms = max(self.last_ms, event.time_ms)
        self.has_bundles = self.has_bundles or bool(event.report.bundles)


def survey(events: Iterable[tuple[str, Event]]) -> dict[str, Survey]:
    """The Pulsar clusters of a recording by name, in one pass. Raises ``NoFleet`` where there is none."""
    clusters: dict[str, _Cluster] = {}
    for cluster, event in events:
        if isinstance(event, LoadReport):
            clusters.setdefault(cluster, _Cluster()).add(event)
    found = {
        name: _make_survey(name, each)
        for name, each in sorted(clusters.items())
        if len(each.brokers) >= _FEWEST_BROKERS and each.has_bundles
    }
    if not found:
        raise NoFleet("it has no Pulsar cluster with two brokers and a bundle between --from and --to")
    return found


def _make_survey(name: str, cluster: _Cluster) -> Survey:
    brokers, costs = cluster.learned.costs()
    return Survey(
        cluster=name,
        brokers=brokers,
        costs=costs,
        first_ms=cluster.first_ms or 0,
        last_ms=cluster.last_ms,
        reports_count=cluster.learned.reports_count,
    )
