"""A page for a browser: one file with its plots in it, that needs no network."""

from collections.abc import Sequence
from html import escape

from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs

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


def document(title: str, parts: Sequence[str]) -> str:
    """A whole page of HTML parts, with the plotting library in it."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def render_figure(figure: Figure) -> str:
    """A figure as a part of a page."""
    html: str = figure.to_html(full_html=False, include_plotlyjs=False)
    return html
