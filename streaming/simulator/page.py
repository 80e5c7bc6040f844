"""The pages of ``trimtab simulate`` and ``backtest``: one file that needs no network, with the score card and the load of brokers over time."""

from collections.abc import Sequence
from html import escape

from plotly.colors import qualitative
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from policies.wording import counted, time_text
from state.outputs import rfc3339
from streaming.process.pages import document, render_figure
from streaming.simulator.differences import NOTE, RECORDED_COLUMNS, Backtest, Decision, Difference, verdict
from streaming.simulator.score import ALL, BALANCED_POINTS, COLUMNS, Column, Figures, Run, Series, card, show

_MOST_LINES = 40
"""Brokers drawn of a large fleet: those that were hottest and coldest."""
MOST_SHOWN_POINTS = 120
"""The highest usage that a plot shows; traffic may be any multiple of a declared capacity."""
_LINE, _SOURCE, _DESTINATION = "rgba(70, 110, 160, 0.45)", "#c0392b", "#1e8449"
_COLORS = qualitative.Plotly


def render_page(runs: Sequence[Run], summaries: dict[str, str]) -> str:
    """The page of some runs; ``summaries`` says what each scenario is."""
    figures = card(runs)
    parts = [
        f"<h1>trimtab simulate</h1>{_introduction(runs)}",
        "<h2>Score card</h2>",
        *(
            f"<h3>{escape(scenario)}</h3>{score_table(figures[scenario], COLUMNS)}"
            for scenario in ([ALL] if len(figures) > 2 else []) + [name for name in figures if name != ALL]  # noqa: PLR2004
        ),
    ]
    for scenario in figures:
        drawn = [run for run in runs if run.scenario == scenario and run.series is not None]
        if drawn:
            parts.append(f"<h2>{escape(scenario)}</h2><p>{escape(summaries.get(scenario, ''))}</p>")
            parts.append(render_figure(plot(drawn)))
    return document("trimtab simulate", parts)


def _introduction(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    return (
        f"<p class='note'>Means over {counted(len(seeds), 'seed')} ({seeds[0]} to {seeds[-1]}). A fleet is "
        f"balanced while the hottest and the coldest broker are at most {BALANCED_POINTS:g} points apart; measurement noise and "
        f"fast noise of the traffic do not count. <em>Perfect information</em> knows the true load; it is a floor. The plots show "
        f"seed {seeds[0]}: a line is a broker's usage, a red mark is a bundle that leaves it, a green one a bundle that arrives. "
        f"Point at a column's title to see what it counts.</p>"
    )


def score_table(rows: dict[str, Figures], columns: Sequence[Column]) -> str:
    """The score card of some candidates, with a row for each."""
    head = "".join(f"<th title='{escape(each.meaning)}'>{escape(each.title)}</th>" for each in columns)
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{show(figures[each.key], each)}</td>" for each in columns)
        + "</tr>"
        for name, figures in rows.items()
    )
    return f"<table><tr><th></th>{head}</tr>{body}</table>"


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
    figure.update_yaxes(title_text="usage, %", range=[0, MOST_SHOWN_POINTS if is_dated else 100], col=1)
    figure.update_layout(
        height=420, showlegend=False, margin={"l": 50, "r": 10, "t": 40, "b": 40}, template="plotly_white"
    )
    return figure


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
    parts = [f"<h1>trimtab backtest</h1><p class='note'>{escape(found.sources)}</p>"]
    for cluster in found.clusters:
        closed = [run for run in found.closed if run.scenario == cluster]
        parts.append(f"<h2>{escape(cluster)}</h2>")
        if closed:
            parts += [
                f"<p id='verdict'><strong>{escape(verdict(figures[cluster]))}</strong></p>",
                (
                    f"<h3>Closed loop: what would have happened to the cluster</h3><p class='note'>{escape(NOTE)} "
                    "In the plots a line is a broker's usage, a red mark is a bundle that leaves it, a green one a bundle that arrives. "
                    "Point at a column's title to see what it counts.</p>"
                ),
                score_table(figures[cluster], RECORDED_COLUMNS),
                render_figure(_spreads(closed)),
                render_figure(plot(closed)),
            ]
        parts += _open_loop(found, cluster)
    return document("trimtab backtest", parts)


def _spreads(runs: Sequence[Run]) -> Figure:
    """Points between the hottest and the coldest broker, with a line for each candidate."""
    figure = Figure()
    for run in runs:
        if run.series is not None:
            figure.add_trace(
                Scatter(x=times_of(run.series), y=_spread(run.series), mode="lines", name=run.candidate)
            )
    figure.add_hline(y=BALANCED_POINTS, line_dash="dot", line_color="#8795a1")
    figure.update_yaxes(title_text="points between hottest and coldest", range=[0, MOST_SHOWN_POINTS])
    figure.update_layout(height=320, margin={"l": 50, "r": 10, "t": 20, "b": 40}, template="plotly_white")
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
            f"<table><tr><th></th><th>rounds</th><th>unloads</th><th>splits</th></tr>{rows}</table>"
        )
    ]
    if not differing:
        return [*parts, "<p>All candidates decided the same.</p>"]
    head = "".join(f"<th>{escape(each.candidate)}</th>" for each in counts)
    body = "".join(_difference_row(each) for each in differing[:_MOST_DIFFERENCES])
    more = len(differing) - _MOST_DIFFERENCES
    rest = f"<p class='note'>{more:,} more: -o json has all.</p>" if more > 0 else ""
    return [
        *parts,
        (
            f"<p>{counted(len(differing), 'round')} decided differently:</p>"
            f"<table class='text'><tr><th>round until, UTC</th>{head}</tr>{body}</table>{rest}"
        ),
    ]


def _difference_row(difference: Difference) -> str:
    cells = "".join(f"<td>{_cell(each)}</td>" for each in difference.decisions)
    return f"<tr><td>{time_text(rfc3339(difference.end_ms), is_exact=True)}</td>{cells}</tr>"


def _cell(decision: Decision) -> str:
    acts = [f"<p><strong>{escape(act.kind)}</strong> {escape(act.reason)}</p>" for act in decision.acts]
    return "".join([*acts, *(f"<p class='why'>not: {escape(each)}</p>" for each in decision.why_not)])
