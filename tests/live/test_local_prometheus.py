"""The Prometheus of `make watch` and of the tests: found or fetched, started, stopped, and a remedy is named if it is missing."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from deploy.local import prometheus
from deploy.local.processes import STOP_TIMEOUT_S, LocalError, free_ports
from deploy.local.prometheus import Prometheus
from tests.deploy.promtool import need
from tests.live.driving import ROOT, ask, until

pytestmark = pytest.mark.live


def test_it_watches_until_it_is_stopped_and_leaves_nothing_behind(tmp_path: Path) -> None:
    need("prometheus")
    with Prometheus(tmp_path, target="127.0.0.1:1", port=free_ports(1)[0], interval_s=0.2) as running:
        until(
            lambda: json.loads(ask(f"{running.url}/api/v1/query?query=up").body)["data"]["result"],
            what="the first scrape",
        )
        running.check()
    assert ask(f"{running.url}/-/ready").status == 0


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    need("prometheus")
    with (
        Prometheus(tmp_path / "first", target="127.0.0.1:1", port=free_ports(1)[0]) as running,
        pytest.raises(LocalError, match=r"already in use.*another port"),
        Prometheus(tmp_path / "second", target="127.0.0.1:1", port=int(running.url.rpartition(":")[2])),
    ):
        pass


def test_make_watch_says_where_to_look_and_ends_with_ctrl_c() -> None:
    need("prometheus")
    port, grafana_port = free_ports(2)
    ports = {"--port": port, "--grafana-port": grafana_port, "--metrics-port": 1}
    arguments = [word for option, value in ports.items() for word in (option, str(value))]
    command = [sys.executable, "-m", "deploy.local.watch", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}/alerts" in process.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as answer:
            assert {group["name"] for group in json.load(answer)["data"]["groups"]} == {
                "trimtab",
                "trimtab-recording",
            }
        process.send_signal(signal.SIGINT)
        assert process.wait(2 * STOP_TIMEOUT_S + 5) == 0
    assert ask(f"http://127.0.0.1:{port}/-/ready").status == 0


def test_the_distributions_package_is_unpacked_into_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download is apt-get's business; a package made here stands in for the one it would leave."""
    made = tmp_path / "made"
    for program in ("prometheus", "promtool"):
        path = made / "usr/bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (made / "DEBIAN").mkdir()
    fields = {
        "Package": "prometheus",
        "Version": "0",
        "Architecture": "all",
        "Maintainer": "x",
        "Description": "x",
    }
    (made / "DEBIAN/control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    dpkg = prometheus.shutil.which("dpkg-deb")
    if dpkg is None:
        pytest.skip("packages are Debian's, and there is no dpkg-deb here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(prometheus, "_find_on_path", lambda _program: None)

    def download(_apt: str, directory: str) -> bool:
        return (
            subprocess.run([dpkg, "--build", made, directory], check=True, stdout=sys.stderr).returncode == 0
        )

    monkeypatch.setattr(prometheus, "_download", download)
    assert prometheus.find("promtool") is None
    assert prometheus.ensure() == tmp_path / "cache/trimtab/prometheus/usr/bin/prometheus"
    assert prometheus.find("promtool") == tmp_path / "cache/trimtab/prometheus/usr/bin/promtool"


def test_where_it_cannot_be_had_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prometheus.main() == 1
    assert prometheus.INSTALL in capsys.readouterr().err
    with (
        pytest.warns(UserWarning, match="NOT tested"),
        pytest.raises(pytest.skip.Exception, match="apt-get install"),
    ):
        need("promtool")
