"""What the dashboards share: variables, annotations, links to each other, ids."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.panels import BLUE, DATASOURCE, ORANGE
from deploy.grafana.queries import each_step
from streaming.contract import families

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
    return _number(board.build())


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
        .description("Base URL of docs/runbooks")
        .default_value(RUNBOOKS)
        .current(dashboard.VariableOption(text=RUNBOOKS, value=RUNBOOKS))
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
    )


def _marks(name: str, kind: str, colour: str) -> builders.AnnotationQuery:
    published = each_step(families.ACTIONS, f'kind="{kind}"', by="cluster, dry_run")
    mark = builders.AnnotationQuery().name(name).datasource(DATASOURCE).icon_color(colour)
    return mark.enable(True).expr(published)


def _number(board: dashboard.Dashboard) -> dashboard.Dashboard:
    """Panels need ids that stay: links and saved views refer to them."""
    for number, panel in enumerate(board.panels or [], start=1):
        panel.id_val = number
    return board
