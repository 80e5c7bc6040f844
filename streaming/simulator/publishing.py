"""What brokers of a simulated fleet publish about themselves where Pulsar's extensible load manager runs (PIP-192).

A broker looks at its load every five seconds, smooths it with each look, and publishes it when it has changed by much, or after a
quarter of an hour; in between, other programs see the old values. It takes the figures of its bundles once a minute, and
publishes the heaviest. When a bundle comes or goes it withdraws both: the smoothing begins anew, and its heaviest bundles are
known again with its next figures.

Source: Pulsar ``BrokerLoadDataReporter``, ``BrokerLoadData.update`` and ``TopKBundles``. The configuration keys have their defaults.
"""

from dataclasses import dataclass, field

import numpy as np

from state.events import BrokerReport, Published

_HISTORY_RATIO = 0.9
"""``loadBalancerHistoryResourcePercentage``."""
_LOOK_S = 5.0
"""``loadBalancerReportUpdateMinIntervalMillis``."""
_CHANGED_PERCENT = 10.0
"""``loadBalancerReportUpdateThresholdPercentage``."""
_LONGEST_MS = 15 * 60 * 1000
"""``loadBalancerReportUpdateMaxIntervalMinutes``."""
_TOP_COUNT = 10
"""``loadBalancerMaxNumberOfBundlesInBundleLoadReport``."""


@dataclass(slots=True)
class _Broker:
    usage_ratio: float | None = None
    """Smoothed usage; None where the smoothing begins anew."""
    bytes_per_s: float = 0.0
    top: list[tuple[str, float]] = field(default_factory=list)
    """Its heaviest bundles as last published, the lightest first."""
    figures: BrokerReport | None = None
    published: tuple[BrokerReport, float, float, int] | None = None
    """Figures, smoothed usage and throughput of the last time it published its load, and when that was."""


class Publisher:
    """What all brokers publish, by their rows."""

    def __init__(self, brokers_count: int) -> None:
        self._brokers = [_Broker() for _ in range(brokers_count)]

    def take_figures(self, row: int, figures: BrokerReport) -> None:
        """A broker has new figures of its bundles, a minute after the last ones."""
        volumes = figures.traffic[:, 2:].sum(axis=1)
        heaviest = np.argsort(volumes, kind="stable")[-_TOP_COUNT:].tolist()
        broker = self._brokers[row]
        broker.figures = figures
        broker.top = [(figures.bundles[at], float(volumes[at])) for at in heaviest]

    def take_back(self, row: int) -> None:
        """A bundle has come to the broker, or left it."""
        self._brokers[row] = _Broker(figures=self._brokers[row].figures)

    def forget(self, row: int) -> None:
        """The broker is gone."""
        self._brokers[row] = _Broker()

    def sample_load(self, row: int, *, looked_s: float, time_ms: int) -> None:
        """The broker has looked at its load for ``looked_s``, until ``time_ms``."""
        broker = self._brokers[row]
        if broker.figures is None:
            return
        usage_ratio = _usage_ratio(broker.figures)
        for _ in range(round(looked_s / _LOOK_S)):
            if broker.usage_ratio is None:
                broker.usage_ratio, broker.bytes_per_s = usage_ratio, broker.figures.bytes_per_s
            else:
                broker.usage_ratio = _smooth(broker.usage_ratio, usage_ratio)
                broker.bytes_per_s = _smooth(broker.bytes_per_s, broker.figures.bytes_per_s)
        assert broker.usage_ratio is not None
        if self._is_due(broker, usage_ratio, time_ms):
            broker.published = broker.figures, broker.usage_ratio, broker.bytes_per_s, time_ms

    @staticmethod
    def _is_due(broker: _Broker, usage_ratio: float, time_ms: int) -> bool:
        if broker.published is None or broker.figures is None:
            return True
        before, _, _, published_ms = broker.published
        changes = (
            100.0 * abs(usage_ratio - _usage_ratio(before)),
            _change_percent(before.messages_per_s, broker.figures.messages_per_s),
            _change_percent(before.bytes_per_s, broker.figures.bytes_per_s),
            _change_percent(before.listed_count, broker.figures.listed_count),
        )
        return max(changes) > _CHANGED_PERCENT or time_ms - published_ms > _LONGEST_MS

    def report_of(self, row: int, owned: list[str]) -> BrokerReport | None:
        """The report that a collector makes; ``owned``: bundles that the broker owns now, ascending. None: nothing is published."""
        broker = self._brokers[row]
        if broker.published is None:
            return None
        figures, usage_ratio, bytes_per_s, updated_ms = broker.published
        place = {name: at for at, name in enumerate(owned)}
        traffic = np.zeros((len(owned), 4))
        has_traffic, counts = np.zeros(len(owned), dtype=np.bool_), np.zeros((len(owned), 2), dtype=np.int64)
        assert broker.figures is not None
        latest = {name: at for at, name in enumerate(broker.figures.bundles)}
        for name, _ in broker.top:
            if name in place:
                traffic[place[name]] = broker.figures.traffic[latest[name]]
                has_traffic[place[name]] = True
                counts[place[name]] = broker.figures.counts[latest[name]]
        return BrokerReport(
            resources=figures.resources,
            messages_per_s=figures.messages_per_s,
            bytes_per_s=figures.bytes_per_s,
            listed_count=len(owned),
            bundles=owned,
            traffic=traffic,
            has_traffic=has_traffic,
            counts=counts,
            published=Published(
                usage_ratio=usage_ratio,
                bytes_per_s=bytes_per_s,
                updated_ms=updated_ms,
                top_bundles=[name for name, _ in broker.top],
                top_bytes_per_s=np.array([volume for _, volume in broker.top]),
            ),
        )


def _usage_ratio(figures: BrokerReport) -> float:
    """The largest of CPU and bandwidth, whose weights are 1."""
    used, limits = figures.resources[:3].T
    return float((used / limits).max())


def _smooth(before: float, now: float) -> float:
    return before * _HISTORY_RATIO + (1.0 - _HISTORY_RATIO) * now


def _change_percent(before: float, now: float) -> float:
    if before == 0:
        return 0.0 if now == 0 else float("inf")
    return 100.0 * abs(now - before) / before
