"""The HTTP port: what a probe and a scrape may rely on. Real sockets, no mocks."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from streaming.process.serve import Check, HealthServer


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
    server = HealthServer(registry, readiness, host="127.0.0.1", port=0, **checks)  # type: ignore[arg-type]
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


def test_metrics_are_served_in_the_text_format_and_as_openmetrics_when_asked_for() -> None:
    with serving() as url:
        status, kind, text = get(f"{url}/metrics")
        _, open_kind, open_text = get(f"{url}/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "trimtab_things_total 1.0" in text
    assert open_kind.startswith("application/openmetrics-text")
    assert open_text.endswith("# EOF\n")


def test_healthz_answers_while_the_process_lives_even_if_it_is_not_ready() -> None:
    with serving(not_ready) as url:
        assert get(f"{url}/healthz") == (200, "application/json", '{"ok":true}')


def test_healthz_is_503_and_names_what_failed_when_the_application_is_not_live() -> None:
    with serving(liveness=not_ready) as url:
        status, _, body = get(f"{url}/healthz")
    failed = [{"name": "publish", "ok": False, "detail": "the broker does not answer"}]
    assert (status, json.loads(body)) == (503, {"ok": False, "failed": failed})
    with serving(liveness=broken) as url:
        assert get(f"{url}/healthz")[0] == 503
    with serving(liveness=ready) as url:
        assert get(f"{url}/healthz") == (200, "application/json", '{"ok":true}')


def test_readyz_lists_every_check_and_is_200_when_all_hold() -> None:
    with serving() as url:
        status, _, body = get(f"{url}/readyz")
    assert (status, json.loads(body)) == (200, [{"name": "query", "ok": True, "detail": "active"}])


def test_readyz_is_503_when_one_check_fails_and_says_which() -> None:
    with serving(not_ready) as url:
        status, _, body = get(f"{url}/readyz")
    assert status == 503
    assert json.loads(body)[1] == {"name": "publish", "ok": False, "detail": "the broker does not answer"}


def test_readyz_is_503_when_the_checks_themselves_fail() -> None:
    with serving(broken) as url:
        status, _, body = get(f"{url}/readyz")
    assert status == 503
    assert "no driver" in body


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/../etc/passwd"])
def test_every_other_path_is_404_and_names_the_paths_there_are(path: str) -> None:
    with serving() as url:
        status, _, body = get(f"{url}{path}")
    assert status == 404
    assert "/readyz" in body


def test_a_slow_client_does_not_keep_others_waiting() -> None:
    with serving() as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert get(f"{url}/healthz")[0] == 200


def test_stopping_frees_the_port_and_may_be_repeated() -> None:
    server = HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=0)
    port = int(server.start().rpartition(":")[2])
    server.stop()
    server.stop()
    again = HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=port)
    assert again.start() == f"http://127.0.0.1:{port}"
    again.stop()


def test_a_port_in_use_is_refused_by_name() -> None:
    with serving() as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*choose another one with --metrics-port"):
            HealthServer(CollectorRegistry(), ready, host="127.0.0.1", port=port).start()
