"""A collector or executor from its first moment to its end: health, metrics, a stop, and brokers that are down at its start."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from streaming.cli.options import (
    Option,
    SettingOption,
    metrics_port_option,
    verbose_option,
    with_options,
    with_settings,
)
from streaming.process.exits import Refused, raised_as
from streaming.process.logs import log_to_stderr
from streaming.process.outage import StoppedWaiting, wait_out
from streaming.process.stop_signals import stopped_by_signals
from streaming.settings import MetricsSettings, Program, Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streaming.process.serve import Check

_LOG = logging.getLogger(__name__)
_TRY_AGE_S_MAX = 300.0
"""An attempt connects a few clients, one after the other, and each gives up after 20 s; the wait between two attempts is 15 s."""


class Service(Protocol):
    """What runs once its brokers have answered."""

    def readiness(self) -> "Sequence[Check]":
        """For ``/readyz``."""

    def liveness(self) -> "Sequence[Check]":
        """For ``/healthz``."""

    def run(self) -> None:
        """Work until it is asked to end."""

    def stop(self) -> None:
        """Ask it to end soon; may be called from any thread."""


ServiceKind = TypeVar("ServiceKind", bound=Service)


def service_options(program: Program, *overrides: SettingOption) -> Option:
    """The options of a program that runs until it is stopped; it gets ``settings``, and its log is set up."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*, settings: Settings, verbose: bool, **others: Any) -> None:
            log_to_stderr(settings.controller.log_format, verbose=verbose)
            command(settings=settings, **others)

        port = metrics_port_option(f"metrics.{program}_port")
        return with_options(with_settings(*overrides, port), verbose_option)(run)

    return decorate


def run_service(
    program: Program,
    settings: Settings,
    registry: "CollectorRegistry",
    start: Callable[[ExitStack], ServiceKind],
    once: Callable[[ServiceKind], None] | None = None,
) -> None:
    """Start the service, try again while its brokers do not answer, and run it until a stop is asked for; or only do ``once`` with it.

    ``start`` opens what it needs on the stack; what an attempt has opened is closed before the next. With ``once``, nothing is waited
    for or served. Raises ``NotReached`` after ``start_wait_s``, ``Refused`` where the port is taken, and what the calls raise.
    """
    if once is not None:
        with ExitStack() as stack:
            service = start(stack)
            stack.enter_context(stopped_by_signals(lambda _: service.stop()))
            once(service)
        return
    starting = _Starting()
    with ExitStack() as stack:
        serve(stack, program, settings, registry, starting.readiness, starting.liveness)
        stack.enter_context(stopped_by_signals(lambda _: starting.stop()))
        try:
            service = wait_out(
                lambda: starting.attempt(stack, start),
                settings.controller.start_wait_s,
                outage_of=_outage_of,
                pause=starting.pause,
                show=starting.show,
            )
        except StoppedWaiting:
            return
        starting.hand_over_to(service)
        service.run()


class _Starting:
    """Stands in for a service until there is one. Other threads read its checks and stop it."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._service: Service | None = None
        self._phase = "starting"
        self._tried_s = time.monotonic()

    def attempt(self, stack: ExitStack, start: Callable[[ExitStack], ServiceKind]) -> ServiceKind:
        self._tried_s = time.monotonic()
        with ExitStack() as opened:
            service = start(opened)
            stack.push(opened.pop_all())
        return service

    def hand_over_to(self, service: Service) -> None:
        self._service = service
        if self._stop.is_set():
            service.stop()

    def pause(self, seconds: float) -> bool:
        return not self._stop.wait(seconds)

    def show(self, text: str) -> None:
        self._phase = text

    def stop(self) -> None:
        self._stop.set()
        if self._service is not None:
            self._service.stop()

    def readiness(self) -> "Sequence[Check]":
        if self._service is not None:
            return self._service.readiness()
        return [_check(ok=False, detail=self._phase)]

    def liveness(self) -> "Sequence[Check]":
        if self._service is not None:
            return self._service.liveness()
        age_s = time.monotonic() - self._tried_s
        return [_check(ok=age_s < _TRY_AGE_S_MAX, detail=f"the newest attempt began {age_s:.0f} s ago")]


def _check(*, ok: bool, detail: str) -> "Check":
    from streaming.process.serve import Check  # noqa: PLC0415  prometheus_client is imported late

    return Check(name="start", ok=ok, detail=detail)


def _outage_of(error: Exception) -> str | None:
    """The brokers, if they do not answer; our own errors are judged by the error that caused them. None for any other error."""
    from streaming.systems import is_outage  # noqa: PLC0415  the brokers' clients are imported late

    return "the brokers" if is_outage(error) else None


def serve(
    stack: ExitStack,
    program: Program,
    settings: Settings,
    registry: "CollectorRegistry",
    readiness: "Callable[[], Sequence[Check]]",
    liveness: "Callable[[], Sequence[Check]]",
) -> None:
    """Serve metrics and health until the stack is closed. Raises ``Refused`` where the port is taken."""
    from streaming.process.serve import HealthServer  # noqa: PLC0415  prometheus_client is imported late

    metrics = settings.metrics
    host, port = metrics.host, metrics.port_of(program)
    if metrics.port not in {0, MetricsSettings().port} and getattr(metrics, f"{program}_port") is None:
        _LOG.warning(
            "metrics.port = %d is the controller's; this %s listens on %d: metrics.%s_port or --metrics-port chooses another",
            metrics.port,
            program,
            port,
            program,
        )
    server = HealthServer(registry, readiness, liveness=liveness, host=host, port=port)
    with raised_as(Refused, OSError):
        url = server.start()
    stack.callback(server.stop)
    _LOG.info("metrics and health at %s", url)
