"""The Grafana of `make watch`, where one is installed: the dashboards as provisioned, asking a real Prometheus."""

import json
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import pytest

from deploy.local import watch
from deploy.local.processes import LocalError, free_ports
from deploy.local.prometheus import Prometheus
from deploy.local.watch import Grafana
from tests.deploy.promtool import need
from tests.deploy.queries import DASHBOARDS
from tests.live.driving import ask, until

pytestmark = pytest.mark.live


def need_grafana() -> None:
    if watch.find() is None:
        text = (
            f"there is no grafana on the PATH, so the dashboards are NOT shown by a real one: {watch.INSTALL}"
        )
        warnings.warn(text, stacklevel=2)
        pytest.skip(text)


def answer(url: str) -> Any:
    return json.loads(ask(url).body)


def uids(shown: Grafana) -> set[str]:
    return {board["uid"] for board in answer(f"{shown.url}/api/search?type=dash-db")}


def asked_of_prometheus(url: str, expr: str) -> list[Any]:
    """The frames Grafana makes of what its Prometheus answers, as a panel gets them."""
    query = {"refId": "A", "datasource": {"uid": "prometheus"}, "expr": expr, "instant": True}
    request = urllib.request.Request(  # noqa: S310  http on loopback
        f"{url}/api/ds/query",
        data=json.dumps({"queries": [query], "from": "now-5m", "to": "now"}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answered:  # noqa: S310  http on loopback
        frames: list[Any] = json.load(answered)["results"]["A"]["frames"]
    return [frame for frame in frames if any(frame["data"]["values"])]


def test_whoever_reaches_it_sees_the_dashboards_their_data_and_the_runbooks(tmp_path: Path) -> None:
    need("prometheus")
    need_grafana()
    ports = free_ports(2)
    with (
        Prometheus(tmp_path / "p", target="127.0.0.1:1", port=ports[0], interval_s=0.2) as prometheus,
        Grafana(tmp_path / "g", prometheus_url=prometheus.url, port=ports[1]) as shown,
    ):
        until(
            lambda: uids(shown) == {path.stem for path in DASHBOARDS},
            what="the dashboards, which it reads once it answers",
            running=[shown],
        )
        home = answer(f"{shown.url}/api/dashboards/home")
        assert home["dashboard"]["uid"] == "trimtab-overview"
        until(lambda: asked_of_prometheus(shown.url, "up"), what="the first scrape", running=[shown])
        page = ask(f"{shown.url}/public/runbooks/down.md")
        assert page.body.startswith("# ")
    assert ask(f"{shown.url}/api/health").status == 0


def test_where_there_is_none_it_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(LocalError, match=r"not installed: https://grafana\."),
        Grafana(tmp_path, prometheus_url="http://127.0.0.1:1", port=free_ports(1)[0]),
    ):
        pass
