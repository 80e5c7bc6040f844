"""The page of ``trimtab report --html``: one file that needs no network, with the usage of each cluster over time and its actions."""

from collections.abc import Sequence
from html import escape

from plotly.graph_objects import Bar, Figure, Scatter
from plotly.subplots import make_subplots

from state.outputs import rfc3339
from streaming.operators.report import ClusterReport, Moment
from streaming.operators.report_text import facts_of, held_rows, tried_rows
from streaming.process.pages import document, render_figure

_MOST_POINTS = 2000


def render_page(clusters: Sequence[ClusterReport], reach: str) -> str:
    """The page; ``reach`` says how far back the topic reaches."""
    parts = [f"<h1>trimtab report</h1><p class='note'>{escape(reach)}</p>"]
    for each in clusters:
        parts.append(f"<h2>{escape(each.cluster)}</h2><p>{escape(each.first)} to {escape(each.last)}</p>")
        parts.append(_table(facts_of(each), ()))
        if each.moments:
            parts.append(render_figure(plot(each.moments)))
        if each.held:
            parts.append("<h3>Held back</h3>" + _table(held_rows(each), ("reason", "bundles and rounds")))
        if each.without_effect:
            titles = ("judged", "action", "brokers", "outcome", "id")
            parts.append("<h3>Actions without effect</h3>" + _table(tried_rows(each), titles))
    return document("trimtab report", parts)


def _table(rows: Sequence[tuple[str, ...]], titles: Sequence[str]) -> str:
    head = "<tr>" + "".join(f"<th>{escape(each)}</th>" for each in titles) + "</tr>" if titles else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table class='plain'>{head}{body}</table>"


def plot(moments: Sequence[Moment]) -> Figure:
    """Usage of the hottest broker, the mean usage, and the actions; over a long time every point is the worst of several rounds."""
    every = -(-len(moments) // _MOST_POINTS)
    spans = [moments[at : at + every] for at in range(0, len(moments), every)]
    times = [rfc3339(span[-1].end_ms) for span in spans]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.75, 0.25], vertical_spacing=0.05)
    for name, values in (
        ("hottest broker", [max(each.max_points for each in span) for span in spans]),
        ("mean", [max(each.mean_points for each in span) for span in spans]),
    ):
        figure.add_trace(Scatter(x=times, y=values, mode="lines", name=name), row=1, col=1)
    actions = [sum(each.actions_count for each in span) for span in spans]
    figure.add_trace(Bar(x=times, y=actions, name="actions"), row=2, col=1)
    figure.update_yaxes(title_text="usage, %", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text="actions", row=2, col=1)
    figure.update_layout(height=460, margin={"l": 50, "r": 10, "t": 20, "b": 40}, template="plotly_white")
    return figure
