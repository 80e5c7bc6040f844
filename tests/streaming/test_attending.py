"""A collector or executor whose brokers are down, wrong, or back again while it starts: what it serves, and how it ends."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry

from streaming.cli import service
from streaming.cli.service import attend, serve
from streaming.kafka.client import ClusterError
from streaming.process.exits import NotReached, Refused
from streaming.process.serve import Check, HealthServer
from streaming.pulsar.http import AdminError
from streaming.settings import MetricsSettings, Settings, load
from streaming.transport.errors import PublishError
from tests.support.processes import Answer, ask

OUTAGES = (
    KafkaTimeoutError("Unable to bootstrap"),
    AdminError("unreachable", call="GET /", answer="refused"),
    AdminError("broker-failed", call="GET /", answer="not ready", status=503),
)
MISTAKES = (
    TopicAuthorizationFailedError(),
    AdminError("unauthorized", call="GET /", answer="no token", status=401),
    None,
)
"""Causes of an error; None: nothing failed, the topic does not exist."""


class Service:
    """A service that runs until it is stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def readiness(self) -> Sequence[Check]:
        return [Check(name="service", ok=True, detail="at work")]

    def liveness(self) -> Sequence[Check]:
        return self.readiness()

    def stop(self) -> None:
        self.stopped.set()


class World:
    """Settings, the URLs that it serves at, and the error that each try of a start meets."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self.service = Service()
        self.wait_s = 600.0
        self.meets: Callable[[int], Exception | None] = lambda _: None
        self.seen: list[tuple[Answer, Answer]] = []
        self.opened: list[int] = []
        self.tries = 0
        self.runs = 0

    def start(self, stack: ExitStack) -> Service:
        self.tries += 1
        stack.enter_context(self._connection())
        self.seen.append((ask(f"{self._urls[-1]}/healthz"), ask(f"{self._urls[-1]}/readyz")))
        error = self.meets(self.tries)
        if error is not None:
            raise error
        return self.service

    def run(self, service: Service) -> None:
        self.runs += 1
        self.seen.append((ask(f"{self._urls[-1]}/healthz"), ask(f"{self._urls[-1]}/readyz")))
        assert self.opened == [self.tries], "only the connections of the last try"
        assert service is self.service

    def attend(self) -> None:
        flags = {"metrics.port": 0, "controller.start_wait_s": self.wait_s}
        settings = load(file=None, flags=flags, environ={}).settings
        attend("collector", settings, CollectorRegistry(), self.start, self.run)

    @contextmanager
    def _connection(self) -> Iterator[None]:
        number = self.tries
        self.opened.append(number)
        try:
            yield
        finally:
            self.opened.remove(number)


@pytest.mark.parametrize(
    ("metrics", "ports"),
    [
        ({}, (9464, 9465, 9466)),
        ({"port": 9500}, (9500, 9465, 9466)),
        ({"port": 0}, (0, 0, 0)),
        ({"port": 0, "collector_port": 9475}, (0, 9475, 0)),
        ({"executor_port": 0}, (9464, 9465, 0)),
    ],
)
def test_all_three_programs_with_one_settings_file_listen_on_ports_of_their_own(
    metrics: dict[str, int], ports: tuple[int, int, int]
) -> None:
    found = MetricsSettings(**metrics)  # type: ignore[arg-type]
    assert (found.port_of("controller"), found.port_of("collector"), found.port_of("executor")) == ports


@pytest.mark.parametrize(
    ("port", "own", "is_warned"),
    [(9464, None, False), (0, None, False), (9500, None, True), (9500, 9500, False)],
)
def test_who_gave_a_collector_the_controllers_port_is_told_the_new_setting(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    own: int | None,
    *,
    is_warned: bool,
) -> None:
    monkeypatch.setattr(HealthServer, "start", lambda _: "http://here")
    settings = Settings(metrics=MetricsSettings(port=port, collector_port=own))
    with ExitStack() as stack:
        serve(stack, "collector", settings, CollectorRegistry(), list, list)
    assert ("metrics.collector_port or --metrics-port chooses another" in caplog.text) is is_warned


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    urls: list[str] = []

    class Server(HealthServer):
        def start(self) -> str:
            urls.append(super().start())
            return urls[-1]

    monkeypatch.setattr("streaming.process.serve.HealthServer", Server)
    monkeypatch.setattr("streaming.process.waiting._PAUSE_FIRST_S", 0.01)
    return World(urls)


def raised(kind: type[Exception], text: str, cause: KafkaError | AdminError | None) -> Exception:
    error = kind(text)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("cause", OUTAGES)
@pytest.mark.parametrize("kind", [PublishError, ClusterError])
def test_brokers_that_are_down_at_the_start_are_waited_for_alive_unready_and_told(
    world: World, kind: type[Exception], cause: KafkaError | AdminError
) -> None:
    world.meets = lambda count: raised(kind, "no consumer at b1:9092", cause) if count < 3 else None
    world.attend()
    assert world.runs == 1
    assert not world.opened
    for alive, ready in world.seen[1:3]:
        assert (alive.status, ready.status) == (200, 503)
        assert "waiting for the brokers: no consumer at b1:9092" in ready.body
    assert [each.status for each in world.seen[3]] == [200, 200]
    assert "at work" in world.seen[3][1].body


@pytest.mark.parametrize("cause", MISTAKES)
def test_what_is_set_up_wrong_ends_a_start_at_once(
    world: World, cause: KafkaError | AdminError | None
) -> None:
    world.meets = lambda _: raised(PublishError, "wrong", cause)
    with pytest.raises(Refused, match="wrong"), service.refuse_errors(ClusterError):
        world.attend()
    assert world.tries == 1


def test_a_start_that_waited_in_vain_ends_with_a_code_that_a_supervisor_restarts(world: World) -> None:
    world.wait_s = 0.02
    world.meets = lambda _: raised(PublishError, "no consumer at b1:9092", KafkaTimeoutError())
    with pytest.raises(NotReached, match=r"b1:9092(?s:.*)controller\.start_wait_s"):
        world.attend()


def test_a_stop_ends_the_wait_and_one_that_comes_during_the_last_try_the_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[Callable[[object], None]] = []

    @contextmanager
    def listening(stop: Callable[[object], None]) -> Iterator[None]:
        stops.append(stop)
        yield

    def stopped(_: int) -> Exception:
        stops[-1](None)
        return raised(PublishError, "no consumer", KafkaTimeoutError())

    monkeypatch.setattr("streaming.cli.service.stopped_by_signals", listening)
    world.meets = stopped
    world.attend()
    assert (world.tries, world.runs) == (1, 0)

    world.meets = lambda _: stops[-1](None)
    world.attend()
    assert world.service.stopped.is_set()
