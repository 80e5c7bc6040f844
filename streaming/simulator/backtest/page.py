"""The page of ``trimtab backtest --html``: which candidate is better, the load of brokers under each, and where they differ and why."""

from collections.abc import Sequence
from html import escape

from plotly.graph_objects import Figure, Scatter

from state.outputs import rfc3339
from streaming.process.pages import document, render_figure
from streaming.simulator.backtest.differences import Decision, Difference
from streaming.simulator.backtest.results import COLUMNS, NOTE, Backtest, verdict
from streaming.simulator.card import card
from streaming.simulator.comparing import Run, Series
from streaming.simulator.page import MOST_SHOWN_POINTS, plot, score_table, times_of
from streaming.simulator.players import BALANCED_POINTS

_MOST_DIFFERENCES = 200


def render_page(found: Backtest) -> str:
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
                score_table(figures[cluster], COLUMNS),
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
    body = "".join(_row(each) for each in differing[:_MOST_DIFFERENCES])
    more = len(differing) - _MOST_DIFFERENCES
    rest = f"<p class='note'>{more:,} more: -o json has all.</p>" if more > 0 else ""
    return [
        *parts,
        (
            f"<p>{len(differing):,} rounds were decided differently:</p>"
            f"<table class='text'><tr><th>round until, UTC</th>{head}</tr>{body}</table>{rest}"
        ),
    ]


def _row(difference: Difference) -> str:
    cells = "".join(f"<td>{_cell(each)}</td>" for each in difference.decisions)
    return f"<tr><td>{rfc3339(difference.end_ms)}</td>{cells}</tr>"


def _cell(decision: Decision) -> str:
    acts = [f"<p><strong>{escape(act.kind)}</strong> {escape(act.reason)}</p>" for act in decision.acts]
    return "".join([*acts, *(f"<p class='why'>not: {escape(each)}</p>" for each in decision.why_not)])
