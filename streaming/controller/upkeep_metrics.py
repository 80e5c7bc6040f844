"""Gauges of what is under maintenance and drained."""

from collections.abc import Callable

from prometheus_client import Gauge

from state.outputs import UpkeepSummary
from state.pulsar.drains import OUTCOMES
from streaming.contract import families
from streaming.contract.families import Family


class UpkeepGauges:
    """Gauges of every Pulsar cluster; 0 where nothing is under maintenance or drained."""

    def __init__(self, gauge: Callable[[Family], Gauge]) -> None:
        self._upkeep = gauge(families.UPKEEP)
        self._left = gauge(families.DRAIN_BUNDLES_LEFT)

    def show(self, cluster: str, found: UpkeepSummary | None) -> None:
        """Show what a round reports; a table of a summary has at most a hundred rows, and more are not counted."""
        for kind, rows in (
            ("broker", found.brokers if found else ()),
            ("namespace", found.namespaces if found else ()),
            ("drained", found.drains if found else ()),
        ):
            self._upkeep.labels(cluster, kind).set(len(rows))
        outcomes = found.left.outcomes if found else {}
        for outcome in OUTCOMES:
            self._left.labels(cluster, outcome).set(outcomes.get(outcome, 0))
