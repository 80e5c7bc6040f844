"""Metrics of proposals: how many wait, and what became of the answers."""

from collections.abc import Callable

from prometheus_client import Counter, Gauge

from state.outputs import ApprovalSummary
from streaming.contract import families
from streaming.contract.families import Family

OUTCOMES = ("acted", "rejected", "refused", "expired")


class ApprovalMetrics:
    """Metrics of proposals in every Pulsar cluster."""

    def __init__(self, counter: Callable[[Family], Counter], gauge: Callable[[Family], Gauge]) -> None:
        self._open = gauge(families.PROPOSALS)
        self._answers = counter(families.APPROVALS)

    def introduce(self, cluster: str) -> None:
        """Make a cluster's series."""
        for outcome in OUTCOMES:
            self._answers.labels(cluster, outcome)

    def show(self, cluster: str, found: ApprovalSummary | None) -> None:
        """Show what a round reports; answers to proposals that are not open any more are not counted."""
        self._open.labels(cluster).set(0 if found is None else found.open_count)
        if found is None:
            return
        self._answers.labels(cluster, "expired").inc(len(found.expired))
        for row in found.answers:
            if row.outcome not in {"unknown", "expired"}:
                outcome = row.outcome if row.outcome in OUTCOMES else "refused"
                self._answers.labels(cluster, outcome).inc()
