"""The pages of ``trimtab simulate`` and ``backtest``: one file that needs no network, with the score card and the load of brokers over time."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from typing import Any

from plotly.colors import qualitative
from plotly.graph_objects import Figure, Scatter
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from policies.wording import time_text
from state.outputs import rfc3339
from streaming.simulator.backtest import REFERENCES
from streaming.simulator.differences import (
    CLEAR,
    NOTE,
    RECORDED_COLUMNS,
    Backtest,
    Decision,
    Difference,
    same_text,
)
from streaming.simulator.runs import NOBODY, PERFECT
from streaming.simulator.score import ALL, BALANCED_POINTS, COLUMNS, Column, Figures, Run, Series, card, show

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1500px; padding: 0 1rem; color: #1d2733 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #dfe4ea }
th:first-child, td:first-child { text-align: left; white-space: nowrap }
th { font-weight: 600; color: #52606d; cursor: help }
h2 { margin-top: 2.5rem }
table.text { table-layout: fixed; width: 100%; font-size: 13px }
table.text th, table.text td { text-align: left; vertical-align: top; overflow-wrap: anywhere }
table.text p { margin: 0 0 .3rem }
table.plain th, table.plain td { text-align: left; overflow-wrap: anywhere }
p.why { color: #8a5a00 }
p.note { color: #52606d; max-width: 60rem }
"""
_MOST_LINES = 40
"""Brokers drawn of a large fleet: those that were hottest and coldest."""
_PEAK = 3.0
"""A peak that is this many times above nineteen of twenty points is cut: traffic may be any multiple of a declared capacity."""
_LINE, _SOURCE, _DESTINATION = "rgba(70, 110, 160, 0.45)", "#c0392b", "#1e8449"
_COLORS = qualitative.Plotly


def render_page(runs: Sequence[Run], summaries: dict[str, str], *, written: str) -> str:
    """The page of some runs; ``summaries`` says what each scenario is, ``written`` on which day this is."""
    figures = card(runs)
    parts = [
        f"<h1>trimtab simulate</h1>{_introduction(runs, written)}",
        "<h2>Score card</h2>",
        *(
            score_table(scenario, figures[scenario], COLUMNS)
            for scenario in ([ALL] if len(figures) > 2 else []) + [name for name in figures if name != ALL]  # noqa: PLR2004
        ),
    ]
    for scenario in figures:
        drawn = [run for run in runs if run.scenario == scenario and run.series is not None]
        if drawn:
            size = max(len(run.series.brokers) for run in drawn if run.series is not None)
            parts.append(
                f"<h2>{escape(scenario)}</h2><p>{size} brokers: {escape(summaries.get(scenario, ''))}</p>"
            )
            parts.append(_render_figure(plot(drawn)))
    return _document("trimtab simulate", parts)


def _introduction(runs: Sequence[Run], written: str) -> str:
    seeds = sorted({run.seed for run in runs})
    names = dict.fromkeys(run.candidate for run in runs if run.candidate not in {NOBODY.name, PERFECT.name})
    fleets = dict.fromkeys(run.scenario for run in runs)
    return (
        f"<p>What {escape(_listed(names))} would do with simulated fleets ({escape(', '.join(fleets))}), played by trimtab "
        f"{version('trimtab')} on {escape(written)}.</p>"
        f"<p class='note'>Means over {len(seeds)} seed{'s' if len(seeds) > 1 else ''} ({seeds[0]} to {seeds[-1]}). Usage is in percent of "
        f"a broker's limit, and a point is one percent. A fleet is "
        f"balanced while the hottest and the coldest broker are at most {BALANCED_POINTS:g} points apart; measurement noise and "
        f"fast noise of the traffic do not count. <em>Perfect information</em> knows the true load; it is a floor. The plots show "
        f"seed {seeds[0]}: a line is a broker's usage, a red mark is a bundle that leaves it, a green one a bundle that arrives. "
        f"Point at a column's title to see what it counts.</p>"
    )


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def score_table(title: str, rows: dict[str, Figures], columns: Sequence[Column]) -> str:
    """The score card of some candidates, with a row for each; ``title`` is the cluster or scenario."""
    head = "".join(f"<th title='{escape(each.meaning)}'>{escape(each.title)}</th>" for each in columns)
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{show(figures[each.key], each)}</td>" for each in columns)
        + "</tr>"
        for name, figures in rows.items()
    )
    return f"<table><tr><th>{escape(title)}</th>{head}</tr>{body}</table>"


def plot(runs: Sequence[Run]) -> Figure:
    """The candidates of one scenario side by side: a line for each broker, a mark for each move."""
    figure = make_subplots(
        rows=1,
        cols=len(runs),
        shared_yaxes=True,
        horizontal_spacing=0.02,
        subplot_titles=[run.candidate for run in runs],
    )
    for column, run in enumerate(runs, start=1):
        if run.series is not None:
            for trace in _traces(run.series):
                figure.add_trace(trace, row=1, col=column)
    is_dated = any(run.series is not None and run.series.start_ms is not None for run in runs)
    figure.update_xaxes(title_text="UTC" if is_dated else "minutes")
    shown = [
        each for run in runs if run.series is not None for points in run.series.points for each in points
    ]
    figure.update_yaxes(**_axis("usage, %", shown, least=100.0), col=1)
    figure.update_layout(height=440, showlegend=False, margin=_MARGIN, template="plotly_white")
    return figure


_MARGIN = {"l": 50, "r": 10, "t": 64, "b": 40}
"""The bar with plotly's buttons is above the titles of the plots."""


def _axis(title: str, shown: Sequence[float | None], *, least: float) -> dict[str, Any]:
    """An axis from 0 to the highest point, but for short peaks far above all others; its title says how high they are."""
    points = sorted(each for each in shown if each is not None)
    if not points:
        return {"title_text": title, "range": [0, least]}
    limit = max(least, _PEAK * points[len(points) * 19 // 20])
    top = max(least, max((each for each in points if each <= limit), default=least))
    peak = f" (a peak is at {points[-1]:,.0f})" if points[-1] > top else ""
    return {"title_text": f"{title}{peak}", "range": [0, round(1.05 * top, 1)]}


def _traces(series: Series) -> list[Scatter]:
    times = times_of(series)
    lines = [
        Scatter(
            x=times,
            y=series.points[row],
            mode="lines",
            name=series.brokers[row],
            line=_line(row, len(series.brokers)),
        )
        for row in _shown_rows(series)
    ]
    return [*lines, _marks(series, "source", _SOURCE), _marks(series, "destination", _DESTINATION)]


def _line(row: int, count: int) -> dict[str, float | str]:
    """A few brokers have a colour each, the same for every candidate."""
    return {"width": 2, "color": _COLORS[row]} if count <= len(_COLORS) else {"width": 1, "color": _LINE}


def times_of(series: Series) -> list[float] | list[str]:
    """The moment of each point: minutes for a fleet that does not exist, else dates."""
    return _moments(series, [series.point_minutes * place for place in range(1, len(series.points[0]) + 1)])


def _moments(series: Series, minutes: list[float]) -> list[float] | list[str]:
    start_ms = series.start_ms
    return minutes if start_ms is None else [rfc3339(start_ms + round(60_000 * each)) for each in minutes]


def _shown_rows(series: Series) -> list[int]:
    count = len(series.brokers)
    if count <= _MOST_LINES:
        return list(range(count))
    highest = [max((each for each in points if each is not None), default=0.0) for points in series.points]
    order = sorted(range(count), key=highest.__getitem__)
    half = _MOST_LINES // 2
    return sorted({*order[:half], *order[-half:]})


def _marks(series: Series, side: str, color: str) -> Scatter:
    rows = [getattr(mark, side) for mark in series.marks]
    last = len(series.points[0]) - 1
    return Scatter(
        x=_moments(series, [mark.minute for mark in series.marks]),
        y=[
            series.points[row][min(int(mark.minute / series.point_minutes), last)]
            for row, mark in zip(rows, series.marks, strict=True)
        ],
        text=[series.brokers[row] for row in rows],
        mode="markers",
        name="leaves" if side == "source" else "arrives",
        marker={"size": 9, "color": color, "symbol": "triangle-down" if side == "source" else "triangle-up"},
    )


_MOST_DIFFERENCES = 200


def render_backtest_page(found: Backtest) -> str:
    """The page of a backtest."""
    figures = card(found.closed)
    notes = [found.sources, *found.settings]
    parts = [
        f"<h1>trimtab backtest</h1><p>{escape(_first_sentence(found))}</p>",
        *(f"<p class='note'>{escape(each)}</p>" for each in notes),
    ]
    for survey in found.surveys:
        cluster, closed = survey.cluster, found.closed_runs(survey.cluster)
        parts.append(f"<h2>{escape(cluster)}</h2>")
        if closed:
            verdicts = "<br>".join(escape(each) for each in found.verdict(cluster))
            parts += [
                f"<p id='verdict'><strong>{verdicts}</strong></p><p class='note'>{escape(CLEAR)}</p>",
                (
                    f"<h3>Closed loop: what would have happened to the cluster</h3><p class='note'>{escape(NOTE)} "
                    "The first plot shows the spread: the points between the hottest and the coldest broker. In the others a line is a "
                    "broker's usage, a red mark is a bundle that leaves it, a green one a bundle that arrives. "
                    "Point at a column's title to see what it counts.</p>"
                ),
                score_table(cluster, figures[cluster], RECORDED_COLUMNS),
                _render_figure(_spreads(closed)),
                _render_figure(plot(closed)),
            ]
        parts += _open_loop(found, cluster)
    return _document("trimtab backtest", parts)


def _first_sentence(found: Backtest) -> str:
    names = dict.fromkeys(each.candidate for each in found.decided)
    names |= dict.fromkeys(run.candidate for run in found.closed if run.candidate not in REFERENCES)
    clusters = _listed(each.cluster for each in found.surveys)
    first, last = min(each.first_ms for each in found.surveys), max(each.last_ms for each in found.surveys)
    return (
        f"What {_listed(names)} would have done with {clusters} from {time_text(rfc3339(first))} to {time_text(rfc3339(last))}, by the controller of trimtab "
        f"{version('trimtab')}."
    )


def _spreads(runs: Sequence[Run]) -> Figure:
    """Points between the hottest and the coldest broker, with a line for each candidate."""
    figure = Figure()
    for run in runs:
        if run.series is not None:
            figure.add_trace(
                Scatter(x=times_of(run.series), y=_spread(run.series), mode="lines", name=run.candidate)
            )
    figure.add_hline(y=BALANCED_POINTS, line_dash="dot", line_color="#8795a1")
    shown = [each for run in runs if run.series is not None for each in _spread(run.series)]
    figure.update_yaxes(**_axis("spread, points", shown, least=2 * BALANCED_POINTS))
    figure.update_layout(height=360, margin=_MARGIN, template="plotly_white")
    return figure


def _spread(series: Series) -> list[float | None]:
    known = ([each for each in column if each is not None] for column in zip(*series.points, strict=True))
    return [round(max(each) - min(each), 1) if each else None for each in known]


def _open_loop(found: Backtest, cluster: str) -> list[str]:
    counts = [each for each in found.decided if each.cluster == cluster]
    if not counts:
        return []
    rows = "".join(
        f"<tr><td>{escape(each.candidate)}</td><td>{each.rounds_count:,}</td><td>{each.unloads_count:,}</td>"
        f"<td>{each.splits_count:,}</td></tr>"
        for each in counts
    )
    differing = [each for each in found.differences if each.cluster == cluster]
    parts = [
        (
            "<h3>Open loop: what would have been decided</h3>"
            "<p class='note'>Every candidate decides on what was recorded, in the mode of its settings; its decisions have no effect on the "
            "reports that follow.</p>"
            f"<table><tr><th>{escape(cluster)}</th><th>rounds</th><th>unloads</th><th>splits</th></tr>{rows}</table>"
        )
    ]
    if not differing:
        return [*parts, f"<p>{escape(same_text(found))}</p>"]
    head = "".join(f"<th>{escape(each.candidate)}</th>" for each in counts)
    body = "".join(_difference_row(each) for each in differing[:_MOST_DIFFERENCES])
    more = len(differing) - _MOST_DIFFERENCES
    rest = f"<p class='note'>{more:,} more: -o json has all.</p>" if more > 0 else ""
    return [
        *parts,
        (
            f"<p>{len(differing):,} rounds were decided differently:</p>"
            f"<table class='text'><tr><th>{escape(cluster)}, round until, UTC</th>{head}</tr>{body}</table>{rest}"
        ),
    ]


def _difference_row(difference: Difference) -> str:
    cells = "".join(f"<td>{_cell(each)}</td>" for each in difference.decisions)
    return f"<tr><td>{time_text(rfc3339(difference.end_ms))}</td>{cells}</tr>"


def _cell(decision: Decision) -> str:
    acts = [f"<p><strong>{escape(act.kind)}</strong> {escape(act.reason)}</p>" for act in decision.acts]
    return "".join([*acts, *(f"<p class='why'>not: {escape(each)}</p>" for each in decision.why_not)])


def _document(title: str, parts: Sequence[str]) -> str:
    """A whole page of HTML parts, with the plotting library in it."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def _render_figure(figure: Figure) -> str:
    """A figure as a part of a page."""
    html: str = figure.to_html(full_html=False, include_plotlyjs=False)
    return html
