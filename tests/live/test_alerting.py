"""A real Prometheus with our rules and a real Alertmanager with the configuration of docs/run/alerting.md tell people."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from deploy.local.processes import free_ports
from deploy.local.prometheus import RULES, HttpServer, Prometheus, configuration
from tests.support.processes import ROOT, until
from tests.support.programs import need

pytestmark = pytest.mark.live

PAGE = ROOT / "docs" / "run" / "alerting.md"


class Alertmanager(HttpServer):
    """A server on loopback that sends what the page says, at once, to one webhook instead of to Slack and a pager."""

    name = "Alertmanager"
    ready_path = "/-/ready"
    ready_timeout_s = 30.0

    def __init__(self, directory: Path, *, port: int, url: str) -> None:
        super().__init__(directory, port=port)
        (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        self._text = (
            text.replace("group_wait: 30s", "group_wait: 0s")
            .replace("group_interval: 5m", "group_interval: 1s")
            .replace("http://pager.example:9087/alert", f"{url}/pager")
            .replace("/etc/alertmanager/slack-url", str(directory / "slack-url"))
        )
        self._url = url

    def _prepare(self) -> list[str]:
        (self._directory / "slack-url").write_text(f"{self._url}/slack", encoding="utf-8")
        file = self._directory / "alertmanager.yml"
        file.write_text(self._text, encoding="utf-8")
        return [
            need("prometheus-alertmanager"),
            f"--config.file={file}",
            f"--storage.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--cluster.listen-address=",
        ]


class Alerting(Prometheus):
    """A Prometheus whose alerts fire at once and go to an Alertmanager."""

    def __init__(self, directory: Path, *, target: str, port: int, alertmanager: str) -> None:
        super().__init__(directory, target=target, port=port)
        rules = directory / "rules.yml"
        directory.mkdir()
        text = (RULES / "alerts.rules.yml").read_text(encoding="utf-8")
        rules.write_text(re.sub(r"for: \d+m", "for: 0s", text), encoding="utf-8")
        self._configuration = (
            configuration(target, interval_s=0.2).replace(f"{RULES}/*.rules.yml", str(rules))
            + f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{urlsplit(alertmanager).netloc}']}}]}}]}}\n"
        )


def test_waiting_proposals_and_a_cluster_without_a_leader_reach_slack_and_the_pager(tmp_path: Path):
    registry = CollectorRegistry()
    Gauge("trimtab_proposals_open", "", ["cluster"], registry=registry).labels("east-1").set(3)
    Gauge("trimtab_leader", "", ["controller"], registry=registry).labels("trimtab").set(0)
    port, alertmanager_port, prometheus_port = free_ports(3)
    server, thread = start_http_server(port, "127.0.0.1", registry)
    with (
        webhook() as (url, bodies),
        Alertmanager(tmp_path / "alertmanager", port=alertmanager_port, url=url) as sending,
        Alerting(
            tmp_path / "prometheus",
            target=f"127.0.0.1:{port}",
            port=prometheus_port,
            alertmanager=sending.url,
        ) as watching,
    ):
        to_slack = until(
            lambda: [str(body) for body in bodies if "attachments" in body and "east-1" in str(body)],
            what="a message to Slack",
            running=[sending, watching],
        )
        to_pager = until(
            lambda: [alert for body in bodies for alert in body.get("alerts", [])],
            what="a call of the pager",
            running=[sending, watching],
        )
    server.shutdown()
    thread.join()
    assert "Proposals of east-1 that wait for approval: 3." in to_slack[0]
    assert "trimtab actions list --pending --cluster east-1" in to_slack[0]
    assert {alert["labels"]["severity"] for alert in to_pager} == {"critical"}
    assert "TrimtabNoLeader" in {alert["labels"]["alertname"] for alert in to_pager}


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and what was posted there."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", bodies
        finally:
            server.shutdown()
            thread.join(timeout=10)
