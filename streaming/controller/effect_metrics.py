"""The metrics of what unloads achieved: those judged last, and those that have settled."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from prometheus_client import Counter, Gauge

from state.outputs import JudgedRow, PromisesSummary, RoundSummary
from streaming.contract import families
from streaming.contract.families import Family

_EFFECTS: Mapping[str, Literal["expected", "seen"]] = {"expected": "expected", "achieved": "seen"}
"""Label, and the field of a judged unload that holds it."""
_OUTCOMES = ("kept", "failed")


class EffectMetrics:
    """Series of every cluster that unloads are decided for."""

    def __init__(self, counter: Callable[[Family], Counter], gauge: Callable[[Family], Gauge]) -> None:
        self._loads = tuple(map(gauge, (families.UNLOADED_MESSAGES, families.UNLOADED_BYTES)))
        self._promises = counter(families.PROMISES)
        self._gain, self._error = gauge(families.PROMISED_GAIN), gauge(families.PROMISE_ERROR)

    def introduce(self, cluster: str) -> None:
        """Make the series of a new cluster."""
        for each in (*self._loads, self._gain):
            for effect in _EFFECTS:
                each.labels(cluster, effect).set(math.nan)
        self._error.labels(cluster).set(math.nan)
        for outcome in _OUTCOMES:
            self._promises.labels(cluster, outcome)

    def show(self, observed: RoundSummary) -> None:
        """Show what a round reports; without a judged unload the loads stay as they are."""
        if observed.judged is not None:
            self._show_loads(observed.cluster, observed.judged.heaviest)
        self._show_promises(observed.cluster, observed.promises)

    def _show_loads(self, cluster: str, judged: Sequence[JudgedRow]) -> None:
        sources: dict[str, JudgedRow] = {}
        for row in judged:
            if "source" in row.seen:
                sources.setdefault(
                    row.brokers["source"], row
                )  # the oldest decision covers the later ones as well
        if not sources:
            return
        for gauge, field in zip(self._loads, ("messages_per_s", "bytes_per_s"), strict=True):
            for effect, after in _EFFECTS.items():
                gauge.labels(cluster, effect).set(sum(_loss(row, after, field) for row in sources.values()))

    def _show_promises(self, cluster: str, found: PromisesSummary | None) -> None:
        self._gain.labels(cluster, "expected").set(math.nan if found is None else found.expected_gain_points)
        self._gain.labels(cluster, "achieved").set(math.nan if found is None else found.gain_points)
        self._error.labels(cluster).set(math.nan if found is None else found.error_points)
        for outcome, count in found.checked.outcomes.items() if found is not None else ():
            self._promises.labels(cluster, outcome).inc(count)


def _loss(row: JudgedRow, after: Literal["expected", "seen"], field: str) -> float:
    """Traffic that the source of an unload lost, or should have lost."""
    left: float = getattr(getattr(row, after)["source"], field)
    before: float = getattr(row.before["source"], field)
    return before - left
