"""The few kinds of panel the dashboards are made of, and the frame around them, with the same look everywhere.

Every panel has a title, a description, a unit and a text for when there is nothing to show; a panel that an alert
belongs to links to its runbook. All dashboards share their variables, annotations and links to each other.
"""

from collections.abc import Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard, units
from grafana_foundation_sdk.models.dashboard import Threshold

from deploy.grafana.queries import Query, each_step
from streaming.contract import families

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
POINTS = units.Percent
"""Usage points are percent of a broker."""
WIDTH = 24
"""Columns of Grafana's grid."""

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"

_STAT_HEIGHT, _GRAPH_HEIGHT = 3, 8
_Panel = TypeVar("_Panel", stat.Panel, timeseries.Panel)


def number(
    title: str,
    text: str,
    query: str | Query,
    *,
    unit: str = units.Short,
    steps: Sequence[Threshold] = (),
    runbook: str = "",
    no_value: str = "none yet",
    names: dict[str, str] | None = None,
    unknown: str = "",
    named: bool = False,
    never_zero: bool = False,
    width: int = 4,
) -> stat.Panel:
    """One number, or one for each series; ``steps`` colour it from green on, ``names`` replace values by words.

    ``unknown`` is the word for NaN. ``named`` shows the names of the series in place of their values; there must always
    be a series then. ``never_zero`` means that the number is never 0 in good health, so 0 is red.
    """
    shown = common.BigValueTextMode.NAME if named else common.BigValueTextMode.AUTO
    panel = (
        stat.Panel()
        .span(width)
        .height(_STAT_HEIGHT)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .text_mode(shown)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["last"]))  # lastNotNull takes NaN for none
        .with_target(_target(query if isinstance(query, Query) else Query(query), 0).instant())
    )
    if words := _make_mappings(names or {}, unknown, never_zero=never_zero):
        panel.mappings(words)
    return _describe(panel, title, text, unit=unit, steps=steps, runbook=runbook, no_value=no_value)


def _make_mappings(names: dict[str, str], unknown: str, *, never_zero: bool) -> list[dashboard.ValueMapping]:
    words: list[dashboard.ValueMapping] = []
    mapped = {value: dashboard.ValueMappingResult(text=word) for value, word in names.items()}
    if never_zero:
        mapped["0"] = dashboard.ValueMappingResult(color=RED)
    if mapped:
        words.append(dashboard.ValueMap(options=mapped))
    if unknown:
        special = dashboard.DashboardSpecialValueMapOptions(
            match=dashboard.SpecialValueMatch.NA_N, result=dashboard.ValueMappingResult(text=unknown)
        )
        words.append(dashboard.SpecialValueMap(options=special))
    return words


def bars(
    title: str,
    text: str,
    *queries: Query,
    runbook: str = "",
    width: int = 12,
    steps: Sequence[Threshold] = (),
) -> timeseries.Panel:
    """Stacked bars for what was counted."""
    return graph(
        title, text, *queries, unit=units.Short, runbook=runbook, width=width, steps=steps, stacked=True
    )


def graph(
    title: str,
    text: str,
    *queries: Query,
    unit: str = units.Short,
    steps: Sequence[Threshold] = (),
    runbook: str = "",
    no_value: str = "",
    stacked: bool = False,
    width: int = 12,
    least: float | None = 0.0,
) -> timeseries.Panel:
    """Lines over time, or stacked bars for amounts; ``steps`` are drawn as lines, ``least`` is the axis' minimum."""
    panel = (
        timeseries.Panel()
        .span(width)
        .height(_GRAPH_HEIGHT)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .legend(
            common_builders.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
    )
    if least is not None:
        panel.min(least)
    if unit == units.Short:
        panel.axis_soft_max(1)  # without it an axis of zeros goes up to 100
    if stacked:
        panel.draw_style(common.GraphDrawStyle.BARS).fill_opacity(60).stacking(
            common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
        )
    if steps:
        dashed = common.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(common_builders.GraphThresholdsStyleConfig().mode(dashed))
    for place, query in enumerate(queries):
        panel.with_target(_target(query, place))
    empty = no_value or ("nothing counted, or no data" if stacked else "no data yet")
    return _describe(panel, title, text, unit=unit, steps=steps, runbook=runbook, no_value=empty)


def _target(query: Query, place: int) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + place)).datasource(DATASOURCE)
    return target.legend_format(query.legend or "__auto")


def _describe(
    panel: _Panel,
    title: str,
    text: str,
    *,
    unit: str,
    steps: Sequence[Threshold],
    runbook: str,
    no_value: str,
) -> _Panel:
    first = Threshold(value=None, color=GREEN)
    panel.title(title).description(text).unit(unit).no_value(no_value).datasource(DATASOURCE)
    panel.thresholds(
        builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps([first, *steps])
    )
    if runbook:
        link = builders.DashboardLink("Runbook").type(dashboard.DashboardLinkType.LINK)
        panel.links([link.url(f"${{runbooks}}/{runbook}.md").target_blank(True)])
    return panel


TAG = "trimtab"
RUNBOOKS = "/public/runbooks"
"""Base of the links to runbooks, unless the variable is changed: the compose file puts them into Grafana's static
files."""

Group = tuple[str, Sequence[Builder[dashboard.Panel]]]
"""Title of a row and its panels."""


def frame(uid: str, title: str, text: str, *groups: Group, annotated: bool = False) -> dashboard.Dashboard:
    """A dashboard of rows of panels; ``annotated``: with marks where bundles were unloaded or split."""
    board = (
        builders.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags([TAG])
        .timezone("browser")
        .refresh("10s")
        .time("now-1h", "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .editable()
        .link(_other_dashboards())
    )
    for variable in (_datasource(), _cluster(), _runbooks()):
        board.with_variable(variable)
    if annotated:
        board.annotations([_marks("Unloads", "unload", BLUE), _marks("Splits", "split", ORANGE)])
    for name, panels in groups:
        board.with_row(builders.Row(name))
        for panel in panels:
            board.with_panel(panel)
    built = board.build()
    for place, placed in enumerate(built.panels or [], start=1):
        placed.id_val = place  # ids have to stay: links and saved views refer to them
    return built


def _other_dashboards() -> builders.DashboardLink:
    link = builders.DashboardLink("trimtab").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.include_vars(True).keep_time(True)


def _datasource() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _cluster() -> builders.QueryVariable:
    return (
        builders.QueryVariable("cluster")
        .label("Cluster")
        .datasource(DATASOURCE)
        .query(f"label_values({families.ROUNDS.name}, cluster)")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _runbooks() -> builders.TextBoxVariable:
    return (
        builders.TextBoxVariable("runbooks")
        .label("Runbooks at")
        .description("Base URL of docs/run/runbooks")
        .default_value(RUNBOOKS)
        .current(dashboard.VariableOption(text=RUNBOOKS, value=RUNBOOKS))
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
    )


def _marks(name: str, kind: str, colour: str) -> builders.AnnotationQuery:
    published = each_step(families.ACTIONS, f'kind="{kind}"', by="cluster, dry_run")
    mark = builders.AnnotationQuery().name(name).datasource(DATASOURCE).icon_color(colour)
    return mark.enable(True).expr(published.expr)
