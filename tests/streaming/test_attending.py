"""Brokers that are down, wrong, or back again while a program starts: what is waited for, for how long, what is served meanwhile."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from prometheus_client import CollectorRegistry

from streaming.cli.service_runner import run_service, serve
from streaming.controller.leadership import outage_of
from streaming.kafka.client import ClusterError
from streaming.process import deadline
from streaming.process.deadline import Deadline, poll
from streaming.process.exits import NotReached, Refused, raised_as
from streaming.process.outage import StoppedWaiting, wait_out
from streaming.process.serve import Check, HealthServer
from streaming.pulsar.http import AdminError
from streaming.settings import MetricsSettings, Settings, load
from streaming.spark.files import UnsafeStore
from streaming.transport.errors import CheckpointError, NotAllowed, PublishError, TopicsWrong, Unreachable
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
    """A service whose work is ``run``."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.stopped = threading.Event()
        self.run = run

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
        self.service = Service(self.run)
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

    def run(self) -> None:
        self.runs += 1
        self.seen.append((ask(f"{self._urls[-1]}/healthz"), ask(f"{self._urls[-1]}/readyz")))
        assert self.opened == [self.tries], "only the connections of the last try"

    def start_and_run(self) -> None:
        flags = {"metrics.port": 0, "controller.start_wait_s": self.wait_s}
        settings = load(file=None, flags=flags, environ={}).settings
        run_service("collector", settings, CollectorRegistry(), self.start)

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
):
    found = MetricsSettings(**metrics)
    assert (found.port_of("controller"), found.port_of("collector"), found.port_of("executor")) == ports


@pytest.mark.parametrize(
    ("port", "own", "is_warned"),
    [(9464, None, False), (0, None, False), (9500, None, True), (9500, 9500, False), (9500, 9475, False)],
)
def test_who_gave_a_collector_the_controllers_port_is_told_the_new_setting(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    port: int,
    own: int | None,
    *,
    is_warned: bool,
):
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
    monkeypatch.setattr("streaming.process.outage._PAUSE_FIRST_S", 0.01)
    return World(urls)


def raised(kind: type[Exception], text: str, cause: KafkaError | AdminError | None) -> Exception:
    error = kind(text)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("cause", OUTAGES)
@pytest.mark.parametrize("kind", [PublishError, ClusterError])
def test_brokers_that_are_down_at_the_start_are_waited_for_alive_unready_and_told(
    world: World, kind: type[Exception], cause: KafkaError | AdminError
):
    world.meets = lambda count: raised(kind, "no consumer at b1:9092", cause) if count < 3 else None
    world.start_and_run()
    assert world.runs == 1
    assert not world.opened
    for alive, ready in world.seen[1:3]:
        assert (alive.status, ready.status) == (200, 503)
        assert "waiting for the brokers: no consumer at b1:9092" in ready.body
    assert [each.status for each in world.seen[3]] == [200, 200]
    assert "at work" in world.seen[3][1].body


@pytest.mark.parametrize("cause", MISTAKES)
def test_what_is_set_up_wrong_ends_a_start_at_once(world: World, cause: KafkaError | AdminError | None):
    world.meets = lambda _: raised(PublishError, "wrong", cause)
    with pytest.raises(Refused, match="wrong"), raised_as(Refused, PublishError, ClusterError):
        world.start_and_run()
    assert world.tries == 1


def test_a_start_that_waited_in_vain_ends_with_a_code_that_a_supervisor_restarts(world: World):
    world.wait_s = 0.02
    world.meets = lambda _: raised(PublishError, "no consumer at b1:9092", KafkaTimeoutError())
    with pytest.raises(NotReached, match=r"b1:9092(?s:.*)controller\.start_wait_s"):
        world.start_and_run()


def test_a_stop_ends_the_wait_and_during_the_last_try_the_service(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    stops: list[Callable[[object], None]] = []

    @contextmanager
    def listening(stop: Callable[[object], None]) -> Iterator[None]:
        stops.append(stop)
        yield

    def stopped(_: int) -> Exception:
        stops[-1](None)
        return raised(PublishError, "no consumer", KafkaTimeoutError())

    monkeypatch.setattr("streaming.cli.service_runner.stopped_by_signals", listening)
    world.meets = stopped
    world.start_and_run()
    assert (world.tries, world.runs) == (1, 0)

    world.meets = lambda _: stops[-1](None)
    world.start_and_run()
    assert world.service.stopped.is_set()


class Time:
    """A clock that a pause moves."""

    def __init__(self, stop_after_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self.shown: list[str] = []
        self._stop_after_s = stop_after_s

    def pause(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.now_s < self._stop_after_s

    def wait_out(self, limit_s: float, step: Callable[[], str]) -> str:
        return wait_out(
            step,
            limit_s,
            outage_of=lambda error: "the brokers" if isinstance(error, ConnectionError) else None,
            pause=self.pause,
            show=self.shown.append,
        )


class Broker:
    """A broker that answers from ``up_at_s`` on."""

    def __init__(self, time: Time, up_at_s: float) -> None:
        self._time, self._up_at_s = time, up_at_s

    def ask(self) -> str:
        if self._time.now_s < self._up_at_s:
            raise ConnectionError("b1 does not answer")
        return "here"


Times = Callable[..., Time]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """Makes a clock; the newest one is this process's."""

    def make(stop_after_s: float = float("inf")) -> Time:
        time = Time(stop_after_s)
        monkeypatch.setattr(deadline.time, "monotonic", lambda: time.now_s)
        return time

    return make


def test_an_outage_shorter_than_the_limit_is_waited_out_and_shown(times: Times):
    time = times()
    assert time.wait_out(600, Broker(time, up_at_s=100).ask) == "here"
    assert 100 <= time.now_s < 120
    assert time.shown[0] == "waiting for the brokers: b1 does not answer"


def test_a_longer_one_ends_at_the_limit_with_its_error_and_own_code_and_0_does_not_wait(times: Times):
    for limit_s in (600, 0):
        time = times()
        with pytest.raises(NotReached, match=f"b1(?s:.*){limit_s} s"):
            time.wait_out(limit_s, Broker(time, up_at_s=1000).ask)
        assert time.now_s == limit_s


def test_what_waiting_does_not_mend_is_raised_at_once(times: Times):
    time = times()

    def wrong() -> None:
        raise ValueError("topics missing")

    with pytest.raises(ValueError, match="topics missing"):
        time.wait_out(600, wrong)
    assert time.now_s == 0


def test_a_stop_ends_the_wait(times: Times):
    time = times(stop_after_s=50)
    with pytest.raises(StoppedWaiting):
        time.wait_out(600, Broker(time, up_at_s=1000).ask)
    assert time.now_s < 70


def of_store(cause: Exception | None) -> CheckpointError:
    error = CheckpointError("the checkpoint cannot be read or written")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [KafkaTimeoutError(), PublishError("no answer"), Unreachable("no answer")])
def test_brokers_that_do_not_answer_are_waited_for(error: Exception):
    assert outage_of(error) == "the brokers"


@pytest.mark.parametrize(
    "cause",
    [OSError(errno.ENOSPC, "No space left on device"), ConnectionRefusedError("namenode"), TimeoutError()],
)
def test_a_full_disk_and_a_store_that_does_not_answer_are_waited_for(cause: Exception):
    assert outage_of(of_store(cause)) == "the checkpoint's store"


@pytest.mark.parametrize(
    "error",
    [
        of_store(None),
        of_store(PermissionError(errno.EACCES, "Permission denied")),
        of_store(UnsafeStore("its store does not rename a file")),
        NotAllowed("no Write"),
        TopicsWrong("topics missing"),
        TopicAuthorizationFailedError(),
    ],
)
def test_what_a_person_has_to_mend_is_not_waited_for(error: Exception):
    assert outage_of(error) is None


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each sleep; the clock shows their sum."""
    found: list[float] = []
    monkeypatch.setattr(deadline.time, "monotonic", lambda: sum(found))
    monkeypatch.setattr(deadline.time, "sleep", found.append)
    return found


def test_a_deadline_is_over_when_its_seconds_have_passed(slept: list[float]):
    until = Deadline(10.0)
    slept.append(9.0)
    assert (until.left_s, until.is_over) == (1.0, False)
    slept.append(2.0)
    assert (until.left_s, until.is_over, until.timeout_s) == (0.0, True, 10.0)


def test_what_is_done_already_is_not_waited_for(slept: list[float]):
    assert poll(lambda: True, timeout_s=0.0, pause_s=1.0)
    assert slept == []


def test_what_becomes_true_in_time_is_noticed_at_the_next_look(slept: list[float]):
    assert poll(lambda: sum(slept) >= 2.5, timeout_s=10.0, pause_s=1.0)
    assert slept == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(("timeout_s", "expected"), [(0.0, []), (2.5, [1.0, 1.0, 0.5])])
def test_after_the_limit_there_is_one_last_look(slept: list[float], timeout_s: float, expected: list[float]):
    looks: list[float] = []
    assert not poll(lambda: bool(looks.append(sum(slept))), timeout_s=timeout_s, pause_s=1.0)
    assert slept == expected
    assert looks[-1] == timeout_s
