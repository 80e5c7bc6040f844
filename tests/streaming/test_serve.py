"""What a probe and a scrape may rely on: the HTTP port, and when a controller or collector is alive and ready."""

import json
import math
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from streaming.collector.collector import Cadence, Collector
from streaming.collector.metrics import CollectorMetrics
from streaming.controller.health import BATCH_S, START_S, TURN_S, Health
from streaming.process.serve import Check, HealthServer, Heartbeat
from streaming.transport.side import LineEvents


def ready() -> Sequence[Check]:
    return [Check(name="query", ok=True, detail="active")]


def not_ready() -> Sequence[Check]:
    return [*ready(), Check(name="publish", ok=False, detail="the broker does not answer")]


def broken() -> Sequence[Check]:
    raise RuntimeError("no driver")


@contextmanager
def serving(readiness: object = ready, **checks: object) -> Iterator[str]:
    registry = CollectorRegistry()
    Counter("trimtab_things_total", "Things.", registry=registry).inc()
    server = HealthServer(registry, readiness, host="127.0.0.1", port=0, **checks)
    try:
        yield server.start()
    finally:
        server.stop()


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 - our own server
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - our own server
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_are_served_in_the_text_format_and_as_openmetrics_when_asked_for():
    with serving() as url:
        status, kind, text = get(f"{url}/metrics")
        _, open_kind, open_text = get(f"{url}/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "trimtab_things_total 1.0" in text
    assert open_kind.startswith("application/openmetrics-text")
    assert open_text.endswith("# EOF\n")


PUBLISH = {"name": "publish", "ok": False, "detail": "the broker does not answer"}
QUERY = {"name": "query", "ok": True, "detail": "active"}
FAILED = {"ok": False, "failed": [PUBLISH]}


@pytest.mark.parametrize(
    ("path", "checks", "status", "found"),
    [
        pytest.param("healthz", {"readiness": not_ready}, 200, {"ok": True}, id="alive though not ready"),
        pytest.param("healthz", {"liveness": not_ready}, 503, FAILED, id="not alive: what failed is named"),
        pytest.param("healthz", {"liveness": broken}, 503, None, id="whether it is alive cannot be told"),
        pytest.param("healthz", {"liveness": ready}, 200, {"ok": True}, id="alive"),
        pytest.param("readyz", {}, 200, [QUERY], id="every check is listed"),
        pytest.param("readyz", {"readiness": not_ready}, 503, [QUERY, PUBLISH], id="one check fails"),
        pytest.param("readyz", {"readiness": broken}, 503, None, id="the checks themselves fail"),
    ],
)
def test_a_probe_is_answered_by_its_checks(path: str, checks: dict[str, Any], status: int, found: object):
    with serving(**checks) as url:
        answered, kind, body = get(f"{url}/{path}")
    assert (answered, kind) == (status, "application/json")
    assert json.loads(body) == found if found is not None else "no driver" in body


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../etc/passwd"])
def test_every_other_path_is_404_and_names_the_paths_there_are(path: str):
    with serving() as url:
        status, _, body = get(f"{url}{path}")
    assert status == 404
    assert "/readyz" in body


def test_a_slow_client_does_not_keep_others_waiting():
    with serving() as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert get(f"{url}/healthz")[0] == 200


def test_a_connection_that_says_nothing_is_closed_because_each_holds_a_thread():
    with serving() as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as silent:
            assert silent.recv(1) == b""


def test_stopping_frees_the_port_and_may_be_repeated():
    server = HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=0)
    port = int(server.start().rpartition(":")[2])
    server.stop()
    server.stop()
    again = HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=port)
    assert again.start() == f"http://127.0.0.1:{port}"
    again.stop()


def test_a_port_in_use_is_refused_by_name_and_another_controller_is_thought_of_first():
    with serving() as url:
        port = int(url.rpartition(":")[2])
        said = f"127.0.0.1:{port} .*: another trimtab may run .* takes over.* choose another port with --metrics-port"
        with pytest.raises(OSError, match=said):
            HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=port).start()


def test_an_address_that_is_not_this_machines_is_refused_without_a_word_of_another_trimtab():
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0 \([^)]*\): choose another port with --metrics-port"):
        HealthServer(CollectorRegistry(), ready, host="192.0.2.1", port=0).start()


class Time:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def dead(health: Health) -> list[str]:
    return [check.name for check in health.liveness() if not check.ok]


def test_a_loop_that_turns_is_alive_and_one_that_spark_keeps_waiting_is_not():
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for _ in range(1000):
        time.now_s += 1
        health.note_turn(None)
        assert dead(health) == []
    time.now_s += TURN_S + 1
    assert dead(health) == ["driver"]
    health.note_turn(None)
    assert dead(health) == [], "it came back"


def test_a_batch_that_moves_on_is_alive_however_long_it_takes_and_one_that_stands_still_is_not():
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for done in range(5):
        for _ in range(int(BATCH_S) - 1):
            time.now_s += 1
            health.note_turn(("getting batch", done))
            assert dead(health) == []
    for _ in range(3):
        time.now_s += 1
        health.note_turn(("getting batch", 4))
    assert dead(health) == ["batch"]
    health.note_turn(None)
    assert dead(health) == []


def test_without_input_waiting_for_brokers_and_staying_are_alive():
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    for _ in range(100):
        time.now_s += TURN_S - 1
        health.note_turn(None)
        assert dead(health) == []
    for _ in range(100):
        health.begin("waiting for the brokers", START_S)
        time.now_s += START_S - 1
        assert dead(health) == []
    health.begin("staying after a refusal", math.inf)
    time.now_s += 10_000_000
    assert dead(health) == []


def test_a_start_that_hangs_is_noticed_and_named():
    time = Time()
    health = Health(trigger_interval_s=1, clock_s=time)
    time.now_s = START_S + 1
    (driver, _) = health.liveness()
    assert not driver.ok
    assert driver.detail == "starting for 601 s, 600 s are allowed"


def test_a_standby_is_ready_and_says_whom_it_stands_by_for_unless_it_could_not_lead():
    health = Health(trigger_interval_s=1)
    health.stand_by("standing by: a:1 leads", "")
    (check,) = health.readiness()
    assert (check.ok, check.detail) == (True, "standing by: a:1 leads")
    health.stand_by("standing by: a:1 leads", "the checkpoint was written by a newer trimtab")
    (check,) = health.readiness()
    assert (check.ok, check.detail) == (False, "the checkpoint was written by a newer trimtab")


def test_a_process_that_leads_is_ready_when_its_query_runs():
    health = Health(trigger_interval_s=1)
    health.stand_by("standing by: a:1 leads", "")
    health.lead()
    found = {check.name: check.ok for check in health.readiness()}
    assert found == {"query": False}, "nothing triggers and nothing is published without a query"


def test_a_leader_whose_beats_nobody_hears_is_unready_and_says_what_follows():
    problem = ""
    health = Health(trigger_interval_s=1)
    health.has_standbys(lambda: problem)
    health.lead()
    beats = {check.name: check for check in health.readiness()}["beats"]
    assert beats.ok
    problem = "User:trimtab lacks the permission Write on topic trimtab.beats"
    beats = {check.name: check for check in health.readiness()}["beats"]
    assert not beats.ok
    assert "take over after each session" in beats.detail
    assert problem in beats.detail


class Hanging(Collector):
    """A collector whose second sweep hangs until ``go_on`` is set."""

    def __init__(self) -> None:
        cadence = Cadence(length_s=0.02, lateness_s=0.0, sweeps_per_round=2)
        sink = LineEvents(BytesIO())
        super().__init__(CollectorMetrics("c"), cluster="c", sink=sink, cadence=cadence, clock_s=lambda: 0.0)
        self.now_s = 0.0
        self._heartbeat = Heartbeat(self._begun, clock_s=lambda: self.now_s)
        self._heartbeat.give(self._swept)
        self.hangs, self.go_on = threading.Event(), threading.Event()
        self.count = 0

    def sweep(self) -> bool:
        self.count += 1
        if self.count == 2:
            self.hangs.set()
            assert self.go_on.wait(30)
            self.stop()
        return False

    def close(self) -> None:
        pass


def test_a_collector_whose_sweep_hangs_is_not_alive_and_one_whose_cluster_does_not_answer_is():
    made = Hanging()
    thread = threading.Thread(target=made.run)
    thread.start()
    assert made.hangs.wait(30)
    assert all(check.ok for check in made.liveness()), "its first sweep failed"
    made.now_s = 100.0
    assert not all(check.ok for check in made.readiness())
    made.now_s = 601.0
    assert not all(check.ok for check in made.liveness())
    made.go_on.set()
    thread.join(30)
    assert not thread.is_alive()
