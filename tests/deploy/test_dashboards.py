"""The dashboards: what they ask exists, Grafana's own types can read them, and an operator finds their way."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard, RowPanel

from deploy.generated import problems as stale
from deploy.generated import write
from deploy.grafana.__main__ import render
from deploy.grafana.panels import WIDTH
from deploy.grafana.queries import select
from streaming.contract import families
from tests.support.queries import DASHBOARDS, KNOWN_VALUES, ROOT, Asked, asked_by_dashboards, problems

register_default_plugins()

BOARDS = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_the_committed_dashboards_are_those_that_are_generated() -> None:
    assert not stale(render(), DASHBOARDS[0].parent, owned="*.json")


def test_a_stale_a_missing_and_a_surplus_dashboard_are_named(tmp_path: Path) -> None:
    write(render(), tmp_path, owned="*.json")
    assert not stale(render(), tmp_path, owned="*.json")
    (tmp_path / "trimtab-overview.json").write_text("{}")
    (tmp_path / "trimtab-cluster.json").unlink()
    (tmp_path / "mine.json").write_text("{}")
    found = " ".join(stale(render(), tmp_path, owned="*.json"))
    assert "trimtab-overview.json is stale" in found
    assert "trimtab-cluster.json is missing" in found
    assert "mine.json is surplus" in found


@pytest.mark.parametrize("asked", asked_by_dashboards(), ids=lambda asked: asked.where)
def test_every_query_names_metrics_labels_and_values_that_exist(asked: Asked):
    assert not problems(asked)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum(trimtab_unicorns_total)", "no metric trimtab_unicorns_total"),
        ("trimtab_rounds", "no metric trimtab_rounds"),
        ('trimtab_rounds_total{bundle="a"}', "trimtab_rounds_total has no label bundle"),
        ("sum by (broker) (trimtab_paused)", "no series has the label broker"),
        ("trimtab_paused / on (broker) trimtab_dry_run", "no series has the label broker"),
        ('trimtab_rounds_total{outcome="deceided"}', "outcome of trimtab_rounds_total is never deceided"),
        ('trimtab_candidates_total{outcome!~"acted|toobig"}', "is never toobig"),
        ("trimtab_decision_lag_seconds", "no metric trimtab_decision_lag_seconds"),
    ],
)
def test_a_query_that_names_something_else_is_found(expr: str, problem: str):
    assert problem in " ".join(problems(Asked("a panel", expr)))


def test_values_are_known_of_labels_that_their_family_has():
    assert [(family.name, label) for family, label in KNOWN_VALUES if label not in family.labels] == []


def test_a_selector_of_what_a_family_does_not_have_cannot_be_built():
    assert select(families.ROUNDS, 'outcome="decided"') == (
        'trimtab_rounds_total{cluster=~"$cluster",outcome="decided"}'
    )
    with pytest.raises(ValueError, match="which has cluster, outcome"):
        select(families.ROUNDS, 'bundle="a"')
    with pytest.raises(ValueError, match="it has trimtab_decision_lag_seconds_bucket"):
        select(families.DECISION_LAG)


@BOARDS
def test_grafanas_own_types_read_a_dashboard_and_lose_nothing(path: Path):
    read = Dashboard.from_json(load(path))
    assert json.loads(JSONEncoder().encode(read)) == load(path)


@BOARDS
def test_every_panel_says_what_it_shows_in_which_unit_and_what_an_empty_one_means(path: Path):
    titles = [panel["title"] for panel in panels(load(path))]
    assert len(set(titles)) == len(titles)
    for panel in panels(load(path)):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["noValue"], panel["title"]
        assert defaults["thresholds"]["steps"][0] == {"color": "green", "value": None}
        assert panel["targets"], panel["title"]


@BOARDS
def test_titles_are_whole_on_a_laptop(path: Path):
    """1,280 pixels wide. As seen: of 50 a column, 16 go to the edges and 36 to each icon; a letter takes 8.2."""
    for panel in panels(load(path)):
        room_px = 50 * panel["gridPos"]["w"] - 16 - 36 * (1 + bool(panel.get("links")))
        assert 8.2 * len(panel["title"]) <= room_px, panel["title"]


@BOARDS
def test_a_number_that_is_unknown_reaches_the_word_for_it(path: Path):
    """Grafana's other reducers take NaN for no value at all, and show the text for that."""
    for panel in panels(load(path)):
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["last"], panel["title"]


@BOARDS
def test_runbooks_that_panels_link_to_exist(path: Path):
    board = load(path)
    links = [link["url"] for panel in panels(board) for link in panel.get("links", [])]
    assert links
    for url in links:
        base, _, name = url.rpartition("/")
        assert base == "${runbooks}"
        assert (ROOT / "docs/run/runbooks" / name).is_file(), url


@BOARDS
def test_panels_have_ids_of_their_own_and_lie_beside_each_other_on_the_grid(path: Path):
    board = load(path)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= WIDTH, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@BOARDS
def test_a_dashboard_follows_the_variables_for_prometheus_and_cluster(path: Path):
    board = load(path)
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert families.ROUNDS.name in variables["cluster"]["query"]
    for panel in panels(board):
        assert panel["datasource"]["uid"] == "${datasource}"
    assert len(board["uid"]) <= 40, "Grafana takes no longer uid"


def test_rows_are_not_mistaken_for_panels():
    board = Dashboard.from_json(load(DASHBOARDS[0]))
    assert any(isinstance(panel, RowPanel) for panel in board.panels or [])


def test_provisioning_finds_prometheus_and_the_dashboards_in_the_compose_file():
    deploy = ROOT / "deploy"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    source = yaml.safe_load((deploy / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    provider = yaml.safe_load((deploy / "grafana/provisioning/dashboards/trimtab.yaml").read_text())
    mounts = dict(volume.split(":")[:2] for service in services.values() for volume in service["volumes"])
    inside = {target: (deploy / host).resolve() for host, target in mounts.items() if host.startswith(".")}
    for host in inside.values():
        assert host.is_dir(), host
    assert inside[provider["providers"][0]["options"]["path"]] == (deploy / "grafana/dashboards").resolve()
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    folder, _, name = home.rpartition("/")
    assert (inside[folder] / name).is_file()
    listen = next(word for word in services["prometheus"]["command"] if "listen-address" in word)
    assert source["datasources"][0]["url"] == f"http://{listen.partition('=')[2]}"
    scraped = yaml.safe_load((deploy / "prometheus/prometheus.yml").read_text())
    assert source["datasources"][0]["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]
