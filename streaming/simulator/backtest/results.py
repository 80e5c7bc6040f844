"""What a backtest found, and the sentence that says which candidate did better."""

from collections.abc import Sequence

import msgspec

from streaming.simulator.backtest.differences import Difference, differences
from streaming.simulator.backtest.opened import Opened
from streaming.simulator.card import COLUMNS as ALL_COLUMNS
from streaming.simulator.card import Figures
from streaming.simulator.comparing import Run
from streaming.simulator.players import BALANCED_POINTS

_NOT_KNOWN = {"disrupted_messages", "recovery_rounds"}
"""Figures that a recording does not show: how long clients wait, and when a disturbance began."""
COLUMNS = tuple(each for each in ALL_COLUMNS if each.key not in _NOT_KNOWN)
AS_RECORDED, NOBODY_ACTS = "as recorded", "nobody acts"
REFERENCES = frozenset({AS_RECORDED, NOBODY_ACTS})
NOTE = (
    f"A cluster is balanced while the hottest and the coldest broker are at most {BALANCED_POINTS:g} points apart, as they report it: "
    "the noise of their figures is included, the same for every candidate. Every candidate acts, whatever its mode."
)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """How much a candidate decided in the open loop."""

    cluster: str
    candidate: str
    rounds_count: int
    unloads_count: int
    splits_count: int
    rejected_count: int
    """Events that its controller refused."""


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backtest found."""

    sources: str
    """What was read, in one sentence."""
    clusters: list[str]
    closed: list[Run]
    decided: list[Decided]
    differences: list[Difference]


def backtest_of(
    sources: str, clusters: Sequence[str], closed: Sequence[Run], opened: Sequence[Opened]
) -> Backtest:
    """Both loops together, cluster by cluster."""
    return Backtest(
        sources=sources,
        clusters=list(clusters),
        closed=list(closed),
        decided=[_count_decided(each) for each in opened],
        differences=[
            each
            for cluster in clusters
            for each in differences([run for run in opened if run.cluster == cluster])
        ],
    )


def _count_decided(run: Opened) -> Decided:
    kinds = [act.kind for each in run.rounds for act in each.acts]
    return Decided(
        cluster=run.cluster,
        candidate=run.candidate,
        rounds_count=len(run.rounds),
        unloads_count=kinds.count("unload"),
        splits_count=kinds.count("split"),
        rejected_count=run.rejected_count,
    )


def verdict(rows: dict[str, Figures]) -> str:
    """Which candidate is better: the one that leaves the cluster unbalanced for less of the time.

    If two are equal in that, the one with the smaller spread, in whole points, is better; then the one that moves less.
    """
    ranked = sorted((name for name in rows if name not in REFERENCES), key=lambda name: _rank(rows[name]))
    told = "; ".join(
        _describe_figures(name, rows[name])
        for name in [*ranked, *(name for name in rows if name in REFERENCES)]
    )
    if len(ranked) < 2:  # noqa: PLR2004  two candidates
        return f"{told}."
    best, second = (_rank(rows[name]) for name in ranked[:2])
    ground = next((text for text, a, b in zip(_GROUNDS, best, second, strict=True) if a != b), None)
    if ground is None:
        return f"{ranked[0]} and {ranked[1]} do equally well. {told}."
    return f"{ranked[0]} is better: {ground}. {told}."


_GROUNDS = (
    "the cluster is unbalanced for less of the time",
    "the cluster is unbalanced for as long, with its brokers closer together",
    "the cluster is as balanced, with less traffic moved",
)


def _rank(figures: Figures) -> tuple[float, float, float]:
    return (
        round(figures["unbalanced_percent"] or 0.0, 1),
        round(figures["spread_points"] or 0.0),
        figures["moved_percent"] or 0.0,
    )


def _describe_figures(name: str, figures: Figures) -> str:
    unloads, splits = figures["unloads"] or 0, figures["splits"] or 0
    acts = f"{unloads:g} unload{'' if unloads == 1 else 's'}" + (f" and {splits:g} splits" if splits else "")
    return (
        f"{name}: unbalanced in {figures['unbalanced_percent'] or 0:.0f} % of the rounds, hottest broker at "
        f"{figures['hottest_points'] or 0:.0f} % and brokers {figures['spread_points'] or 0:.0f} points apart in the mean, {acts}"
    )
