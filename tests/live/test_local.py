"""The local Kafka, Prometheus and Grafana: they start, keep what they were given, leave nothing behind, and say what is missing."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import kafka as local_kafka
from deploy.local import prometheus, watch
from deploy.local.kafka import LocalKafka
from deploy.local.processes import STOP_TIMEOUT_S, LocalError, free_ports
from deploy.local.prometheus import Prometheus
from deploy.local.watch import Grafana
from tests.support.processes import ROOT, ask, until
from tests.support.programs import need
from tests.support.queries import DASHBOARDS
from tests.support.stage import Follower, Stage

pytestmark = pytest.mark.live

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="reads /proc; parent-death signals are Linux's"
)


def brokers_of(pid: int) -> list[int]:
    """The pids of the brokers that the process `pid` started and that are still there."""
    tasks = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    pids = [int(child) for children in tasks for child in children]
    return [child for child in pids if b"kafka.Kafka" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def sent(kafka: LocalKafka, directory: Path, value: bytes) -> None:
    stage = Stage(kafka.bootstrap, "kept", directory)
    stage.send_raw(b"key", value)
    stage.close()


@pytest.mark.slow
@linux_only
def test_what_was_produced_survives_a_restart_at_the_same_address_and_a_kill(tmp_path: Path):
    before = brokers_of(os.getpid())
    with LocalKafka(tmp_path) as kafka:
        address, stage = kafka.bootstrap, Stage(kafka.bootstrap, "kept", tmp_path)
        stage.create_topics()
        sent(kafka, tmp_path, b"1")
        kafka.restart()
        assert kafka.bootstrap == address
        sent(kafka, tmp_path, b"2")
        assert len(brokers_of(os.getpid())) == len(before) + 1
        kafka.kill()
        assert brokers_of(os.getpid()) == before
    with LocalKafka(tmp_path) as reopened:
        follower = Follower(reopened.bootstrap, stage.topics.input)
        assert [record.value for record in follower.read()] == [b"1", b"2"]
        follower.close()
    assert brokers_of(os.getpid()) == before


def test_starting_twice_is_refused(kafka: LocalKafka):
    with pytest.raises(LocalError, match="already running"):
        kafka.start()


def test_a_broker_that_does_not_come_up_is_reported_with_the_end_of_its_log(tmp_path: Path):
    store = tmp_path / "node1"
    store.mkdir()
    (store / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=9\n")
    with pytest.raises(LocalError, match=r"(?s)node1 ended with 1; .*node1\.log:.*node.id"):
        LocalKafka(tmp_path).start()


@pytest.mark.slow
def test_a_port_lost_before_it_was_bound_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        choose = local_kafka.free_ports
        answers = iter([[choose(1)[0], port], choose(2)])
        monkeypatch.setattr(local_kafka, "free_ports", lambda _count: next(answers))
        with LocalKafka(tmp_path) as kafka:
            assert kafka.bootstrap != f"127.0.0.1:{port}"


@linux_only
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_broker_ends_with_the_command_that_runs_it(tmp_path: Path, number: signal.Signals, code: int):
    command = [sys.executable, "-m", "deploy.local.kafka", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        (broker,) = brokers_of(process.pid)
        ended = os.pidfd_open(broker)
        process.send_signal(number)
        assert select.select([ended], [], [], 20)[0], "the broker is still there"
        os.close(ended)
        assert process.wait(20) == code


def answer(url: str) -> Any:
    return json.loads(ask(url).body)


def watched(directory: Path, *, port: int = 0) -> Prometheus:
    """A Prometheus that looks at nothing."""
    return Prometheus(directory, target="127.0.0.1:1", port=port or free_ports(1)[0], interval_s=0.2)


def test_prometheus_watches_until_it_is_stopped_and_one_that_cannot_start_says_why(tmp_path: Path):
    need("prometheus")
    with watched(tmp_path / "first") as running:
        url = f"{running.url}/api/v1/query?query=up"
        until(lambda: answer(url)["data"]["result"], what="the first scrape")
        running.check()
        with (
            pytest.raises(LocalError, match=r"already in use.*another port"),
            watched(tmp_path / "second", port=int(running.url.rpartition(":")[2])),
        ):
            pass
    assert ask(f"{running.url}/-/ready").status == 0


def targets(port: int) -> set[tuple[str, str]]:
    """Jobs and pages that a Prometheus asks."""
    found = answer(f"http://127.0.0.1:{port}/api/v1/targets")["data"]["activeTargets"]
    return {(each["scrapePool"], each["scrapeUrl"]) for each in found}


def test_make_watch_says_where_to_look_and_ends_with_ctrl_c():
    need("prometheus")
    port, grafana_port = free_ports(2)
    ports = {"--port": port, "--grafana-port": grafana_port, "--metrics-port": 1}
    arguments = [word for option, value in ports.items() for word in (option, str(value))]
    arguments += ["--program-ports", "2", "3"]
    command = [sys.executable, "-m", "deploy.local.watch", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}/alerts" in process.stdout.readline()
        groups = answer(f"http://127.0.0.1:{port}/api/v1/rules")["data"]["groups"]
        assert {group["name"] for group in groups} == {"trimtab", "trimtab-recording"}
        scraped = {
            ("trimtab", "http://127.0.0.1:1/metrics"),
            ("trimtab-programs", "http://127.0.0.1:2/metrics"),
            ("trimtab-programs", "http://127.0.0.1:3/metrics"),
        }
        until(lambda: targets(port) == scraped, what="what it scrapes")
        process.send_signal(signal.SIGINT)
        assert process.wait(2 * STOP_TIMEOUT_S + 5) == 0
    assert ask(f"http://127.0.0.1:{port}/-/ready").status == 0


def test_the_distributions_package_goes_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The download is apt-get's business; a package made here stands in for the one it would leave."""
    made, place = tmp_path / "made", tmp_path / "cache/trimtab/prometheus/usr/bin"
    for program in ("prometheus", "promtool"):
        path = made / "usr/bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (made / "DEBIAN").mkdir()
    (made / "DEBIAN/control").write_text(
        "Package: prometheus\nVersion: 0\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    )
    dpkg = prometheus.shutil.which("dpkg-deb")
    if dpkg is None:
        pytest.skip("packages are Debian's, and there is no dpkg-deb here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(prometheus, "_find_on_path", lambda _program: None)

    def download(_apt: str, directory: str) -> bool:
        return not subprocess.run(
            [dpkg, "--build", made, directory], check=True, stdout=sys.stderr
        ).returncode

    monkeypatch.setattr(prometheus, "_download", download)
    assert prometheus.find("promtool") is None
    assert prometheus.ensure() == place / "prometheus"
    assert prometheus.find("promtool") == place / "promtool"


def test_where_it_cannot_be_had_its_installation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prometheus.main() == 1
    assert prometheus.INSTALL in capsys.readouterr().err
    with (
        pytest.warns(UserWarning, match="NOT tested"),
        pytest.raises(pytest.skip.Exception, match="apt-get install"),
    ):
        need("promtool")
    with (
        pytest.raises(LocalError, match=r"not installed: https://grafana\."),
        Grafana(tmp_path, prometheus_url="http://127.0.0.1:1", port=free_ports(1)[0]),
    ):
        pass


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


def test_whoever_reaches_grafana_sees_the_dashboards_their_data_and_the_runbooks(tmp_path: Path):
    need("prometheus")
    if watch.find() is None:
        text = (
            f"there is no grafana on the PATH, so the dashboards are NOT shown by a real one: {watch.INSTALL}"
        )
        warnings.warn(text, stacklevel=2)
        pytest.skip(text)
    with (
        watched(tmp_path / "p") as asked,
        Grafana(tmp_path / "g", prometheus_url=asked.url, port=free_ports(1)[0]) as shown,
    ):
        wanted, search = {path.stem for path in DASHBOARDS}, f"{shown.url}/api/search?type=dash-db"
        until(
            lambda: {board["uid"] for board in answer(search)} == wanted,
            what="the dashboards, which it reads once it answers",
            running=[shown],
        )
        assert answer(f"{shown.url}/api/dashboards/home")["dashboard"]["uid"] == "trimtab-overview"
        until(lambda: asked_of_prometheus(shown.url, "up"), what="the first scrape", running=[shown])
        assert ask(f"{shown.url}/public/runbooks/down.md").body.startswith("# ")
    assert ask(f"{shown.url}/api/health").status == 0
