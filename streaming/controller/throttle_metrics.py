"""Metrics of Kafka reassignments, for ``streaming.controller.metrics``: what is left, until when, at which rates, and the bottleneck.

Series by broker exist only while something moves: brokers come and go with a move.
"""

import math
from collections.abc import Callable, Mapping

from prometheus_client import Gauge

from state.outputs import ThrottleSummary
from streaming.contract import families
from streaming.contract.families import Family

_BY_ROLE = (families.THROTTLE_RATE, families.THROTTLE_MINIMUM, families.REASSIGNMENT_BOTTLENECK)


class ThrottleGauges:
    """Gauges of reassignments and their throttles. Thread-safe, as prometheus_client is."""

    def __init__(self, gauge: Callable[[Family], Gauge]) -> None:
        self._left = gauge(families.REASSIGNMENT_LEFT)
        self._eta = gauge(families.REASSIGNMENT_ETA)
        self._feasible = gauge(families.THROTTLE_FEASIBLE)
        self._late = gauge(families.REASSIGNMENT_LATE)
        self._broken = gauge(families.REASSIGNMENT_BROKEN)
        self._changed = gauge(families.THROTTLE_CHANGED)
        self._failures = gauge(families.THROTTLE_FAILURES)
        self._by_role = tuple(map(gauge, _BY_ROLE))
        self._shown: dict[str, set[tuple[int, str, str]]] = {}

    def show(self, cluster: str, observed: ThrottleSummary) -> None:
        """Show a round; what is unknown is NaN."""
        self._left.labels(cluster).set(_number_of(observed.bytes_left))
        self._eta.labels(cluster).set(
            0.0 if observed.outcome == "nothing-moves" else _number_of(observed.eta_s)
        )
        self._feasible.labels(cluster).set(_number_of(observed.feasible))
        self._late.labels(cluster).set(observed.late)
        self._broken.labels(cluster).set(_number_of(observed.broken_count))
        self._changed.labels(cluster).set(
            len(observed.changed_rates_bytes_per_s)
            + len(observed.lost_leader_throttled_replicas)
            + len(observed.lost_follower_throttled_replicas)
        )
        self._failures.labels(cluster).set(observed.failures_count)
        now: set[tuple[int, str, str]] = set()
        last = {} if observed.bottleneck is None else {observed.bottleneck: 1}
        tables: tuple[Mapping[str, int | None], ...] = (
            observed.rates_bytes_per_s,
            observed.min_bytes_per_s,
            last,
        )
        for place, values in enumerate(tables):
            for name, value in values.items():
                role, _, broker = name.partition(":")
                self._by_role[place].labels(cluster, broker, role).set(_number_of(value))
                now.add((place, broker, role))
        for place, broker, role in self._shown.get(cluster, set()) - now:
            self._by_role[place].remove(cluster, broker, role)
        self._shown[cluster] = now

    def forget(self, cluster: str) -> None:
        """Forget a cluster whose series are gone."""
        self._shown.pop(cluster, None)


def _number_of(value: float | bool | None) -> float:  # noqa: FBT001  a gauge shows a truth as 1 or 0
    return math.nan if value is None else float(value)
