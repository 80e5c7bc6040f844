"""Metrics and health on one HTTP port: `/metrics`, `/healthz`, `/readyz`.

`/healthz` asks the liveness function and `/readyz` the readiness function on every request; each says 503 when one of
its checks fails. Both must be quick, because they run in the request's thread. Without a liveness function `/healthz` answers
200 as long as the process answers at all. No authentication: bind it to an address that only the monitoring reaches.

Both are answered by a heartbeat. A program's loop gives signs: it turns, its brokers answer, a batch moves on. A check fails when the
next sign of its name does not come in time. A program that waits for brokers goes on giving signs, because a restart would not bring
them back.
"""

import errno
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from streaming.contract.families import Family

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LOG = logging.getLogger(__name__)
_STOP_POLL_S = 0.1
"""How soon serving notices that it is to stop."""
_STOP_S = 5.0
"""The serving thread is a daemon: if something holds it up, the process can end all the same."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of readiness or liveness; `detail` says what was found."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that a healthy program does again and again."""

    name: str
    """Name of its check; a sign replaces the one before of the same name."""
    detail: Callable[[float], str]
    """What the check says, so many seconds after the sign."""
    within_s: float = math.inf
    """The next one has to come within this time; below 0: the check fails until then."""


class Heartbeat:
    """Written by the loop, read by the threads of the HTTP server. Its clock is monotonic: setting the system clock kills nothing."""

    def __init__(self, *first: Sign, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._newest: dict[str, tuple[Sign, float]] = {}
        for sign in first:
            self.give(sign)

    def give(self, sign: Sign) -> None:
        """A sign, now."""
        self._newest[sign.name] = sign, self._clock_s()

    def check(self, name: str, *, remark: str = "", ok: bool = True) -> Check:
        """Whether the newest sign of this name is young enough, if nothing else is wrong (``ok``); the remark is added to what it says."""
        sign, given_s = self._newest[name]
        age_s = self._clock_s() - given_s
        detail = "; ".join(filter(None, (sign.detail(age_s), remark)))
        return Check(name=name, ok=ok and age_s <= sign.within_s, detail=detail)


Checks = Callable[[], Sequence[Check]]


class HealthServer:
    """Serves until `stop`; `start` returns the URL, with the port that was found when 0 was asked for."""

    def __init__(
        self,
        registry: CollectorRegistry,
        readiness: Checks,
        *,
        liveness: Checks = tuple,
        host: str,
        port: int,
    ) -> None:
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self._readiness = readiness
        self._liveness = liveness
        self._host = host
        self._port = port
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Bind and serve in a thread. Raises `OSError` naming the address when it cannot be used."""
        try:
            server = make_server(self._host, self._port, self._answer, _Server, _QuietHandler)
        except OSError as error:
            text = f"metrics cannot be served on {self._host}:{self._port} ({error.strerror}): "
            if error.errno == errno.EADDRINUSE:
                text += (
                    "another trimtab may run on this host (`trimtab status` says which controller leads). Of two controllers with one "
                    "name only one runs: the second takes over, unless it is a standby (--standby). If both programs are to run, "
                )
            raise OSError(error.errno, f"{text}choose another port with --metrics-port") from error
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_STOP_POLL_S,), name="health", daemon=True
        )
        self._thread.start()
        return f"http://{self._host}:{server.server_port}"

    def stop(self) -> None:
        """Stop serving and free the port; a second call does nothing."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.shutdown()
        self._thread.join(_STOP_S)
        server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answer(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return self._metrics(environ, start_response)
        if path == "/healthz":
            failed = [check for check in _run_checks(self._liveness, "liveness") if not check.ok]
            body = {"ok": False, "failed": failed} if failed else {"ok": True}
            return _json(_status(failed), body, start_response)
        if path == "/readyz":
            checks = _run_checks(self._readiness, "readiness")
            return _json(_status([check for check in checks if not check.ok]), checks, start_response)
        return _json("404 Not Found", {"paths": ["/metrics", "/healthz", "/readyz"]}, start_response)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    """Logs requests only at debug level: scrapes come every few seconds and are not worth a line each."""

    timeout = 5.0
    """Seconds after which a connection that says nothing is closed: each holds a thread."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        _LOG.debug(format, *args)


def _run_checks(checks: Checks, name: str) -> Sequence[Check]:
    try:
        return checks()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the checks, they did not pass
        _LOG.exception("the %s checks failed", name)
        return [Check(name=name, ok=False, detail=f"the checks themselves failed: {error!r}")]


def _status(failed: Sequence[Check]) -> str:
    return "503 Service Unavailable" if failed else "200 OK"


def _json(status: str, body: object, start_response: "StartResponse") -> list[bytes]:
    start_response(status, [("Content-Type", "application/json")])
    return [msgspec.json.encode(body)]


def counter(registry: CollectorRegistry, family: Family) -> Counter:
    """The counter of a family."""
    return Counter(family.name, family.text, family.labels, registry=registry)


def gauge(registry: CollectorRegistry, family: Family) -> Gauge:
    """The gauge of a family."""
    return Gauge(family.name, family.text, family.labels, registry=registry)


def histogram(registry: CollectorRegistry, family: Family) -> Histogram:
    """The histogram of a family."""
    return Histogram(family.name, family.text, family.labels, registry=registry, buckets=family.buckets)
