"""The score card: means over the seeds, for each scenario and over all of them."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from streaming.simulator.comparing import Run
from streaming.simulator.score import Score

ALL = "all scenarios"
Figures = dict[str, float | None]


class Column(NamedTuple):
    """A figure of the card."""

    key: str
    title: str
    meaning: str
    value: Callable[[Score], float | None]
    digits: int = 1


def _recovery(score: Score) -> float | None:
    known = [each for each in score.recovery_rounds if each is not None]
    return fmean(known) if known else None


COLUMNS = (
    Column(
        "unbalanced_percent",
        "unbalanced %",
        "rounds that ended with more than 15 points between the hottest and the coldest broker, noise left out",
        lambda score: 100.0 * score.unbalanced_rounds / score.rounds,
    ),
    Column("unloads", "unloads", "moves that were decided", lambda score: score.unloads),
    Column(
        "needless",
        "needless",
        "unloads while the fleet was within 15 points",
        lambda score: score.needless,
        2,
    ),
    Column(
        "sent_back",
        "sent back",
        "unloads back to where the bundle came from",
        lambda score: score.sent_back,
        2,
    ),
    Column(
        "moved_twice",
        "twice",
        "unloads of a bundle that had been unloaded before",
        lambda score: score.moved_twice,
    ),
    Column(
        "wrong_sign",
        "uphill",
        "unloads to a broker that was hotter than the source",
        lambda score: score.wrong_sign,
    ),
    Column("splits", "splits", "bundles cut", lambda score: score.splits),
    Column(
        "moved_percent",
        "moved %",
        "message rate of everything moved, in percent of the fleet's",
        lambda score: 100.0 * score.moved_messages_ratio,
    ),
    Column(
        "disrupted_messages",
        "disrupted",
        "messages that had to wait for a move",
        lambda score: score.disrupted_messages,
        0,
    ),
    Column(
        "recovery_rounds",
        "recovery",
        "rounds from a disturbance until the fleet was balanced, where it was before the next one",
        _recovery,
    ),
    Column(
        "ended_balanced_percent",
        "ends balanced %",
        "runs whose last ten rounds were balanced",
        lambda score: 100.0 * score.ended_balanced,
        0,
    ),
    Column(
        "hottest_points", "hottest", "mean usage of the hottest broker", lambda score: score.hottest_points
    ),
    Column(
        "spread_points",
        "spread",
        "points between the hottest and the coldest broker, mean",
        lambda score: score.spread_points,
    ),
)


def card(runs: Sequence[Run]) -> dict[str, dict[str, Figures]]:
    """Figures by scenario (all of them first) and candidate, in the order of the runs."""
    found = {ALL: _by_candidate(runs)}
    for scenario in dict.fromkeys(run.scenario for run in runs):
        found[scenario] = _by_candidate([run for run in runs if run.scenario == scenario])
    return found


def _by_candidate(runs: Sequence[Run]) -> dict[str, Figures]:
    names = dict.fromkeys(run.candidate for run in runs)
    return {name: _figures([run.score for run in runs if run.candidate == name]) for name in names}


def _figures(scores: Sequence[Score]) -> Figures:
    found: Figures = {}
    for column in COLUMNS:
        values = [value for score in scores if (value := column.value(score)) is not None]
        found[column.key] = round(fmean(values), 3) if values else None
    return found


def show(value: float | None, column: Column) -> str:
    """A figure as text; a dash where there is none."""
    return "-" if value is None else f"{value:,.{column.digits}f}"
