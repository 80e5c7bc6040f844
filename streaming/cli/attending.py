"""A collector or executor from its first moment to its end: health, metrics, a stop, and brokers that are down at its start."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol, TypeVar

from streaming.cli.targets import serve
from streaming.process.stopping import stopped_by_signals
from streaming.process.waiting import OutageWait, StoppedWaiting
from streaming.settings import Program, Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streaming.process.serve import Check

_TRY_AGE_S_MAX = 300.0
"""An attempt connects a few clients, one after the other, and each gives up after 20 s; the wait between two attempts is 15 s."""


class Service(Protocol):
    """What runs once its brokers have answered."""

    def readiness(self) -> "Sequence[Check]":
        """For ``/readyz``."""

    def liveness(self) -> "Sequence[Check]":
        """For ``/healthz``."""

    def stop(self) -> None:
        """Ask it to end soon; may be called from any thread."""


ServiceKind = TypeVar("ServiceKind", bound=Service)


def attend(
    program: Program,
    settings: Settings,
    registry: "CollectorRegistry",
    start: Callable[[ExitStack], ServiceKind],
    run: Callable[[ServiceKind], None],
) -> None:
    """Start the service, try again while its brokers do not answer, and run it until a stop is asked for.

    ``start`` opens what it needs on the stack; what an attempt has opened is closed before the next. Raises ``NotReached`` after
    ``start_wait_s``, ``Refused`` where the port is taken, and what ``start`` and ``run`` raise.
    """
    starting = _Starting()
    wait = OutageWait(
        settings.controller.start_wait_s, outage_of=_outage_of, pause=starting.pause, show=starting.show
    )
    with ExitStack() as stack:
        serve(stack, program, settings, registry, starting.readiness, starting.liveness)
        stack.enter_context(stopped_by_signals(lambda _: starting.stop()))
        try:
            service = wait.run(lambda: starting.attempt(stack, start))
        except StoppedWaiting:
            return
        starting.hand_over_to(service)
        run(service)


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
    from streaming.systems import passes  # noqa: PLC0415  the brokers' clients are imported late

    return "the brokers" if passes(error) or passes(error.__cause__) else None
