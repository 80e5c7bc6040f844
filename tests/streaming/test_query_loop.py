"""When the loop around the query ends, and after which failures it goes on. Spark, brokers and files are stand-ins."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from streaming.controller import query_loop
from streaming.controller.environment import Changed
from streaming.controller.health import Health
from streaming.controller.query_loop import QueryLoop, describe_run
from streaming.process.exits import Refused
from streaming.pulsar.positions import DataLoss
from streaming.settings import OutputSettings, PulsarTarget, Settings, TargetSection
from streaming.spark.failures import REPEATS_MAX, SparkGone
from streaming.spark.query import Query
from streaming.transport.errors import CheckpointError, Fenced, PublishError
from streaming.transport.side import Progress


def failing_with(*each: Exception) -> Callable[[], Any]:
    """A function that raises these errors one after another, the last one again and again."""
    left = [*each]

    def call(*_: object) -> None:
        raise left.pop(0) if len(left) > 1 else left[0]

    return call


class Enough(Exception):
    """Raised when the loop has gone on for long enough for the test."""


class World:
    """Everything around a loop; all of it works until a test replaces a part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_query: Callable[[], Any] = failing_with(Enough())
        self.ensure_owner: Callable[[], None] = lambda: None
        self.require_now: Callable[[], None] = lambda: None
        self.planned: Callable[[], Progress] = Progress
        self.raised: Exception | None = None
        """The error that the batch function raised."""
        self.problem: str | None = None
        self.told: list[str] = []
        """What others were told about why the query fails."""
        monkeypatch.setattr(query_loop, "failed_probe", lambda *_: self.problem)
        monkeypatch.setattr(query_loop, "damaged_files", lambda *_: [])

    def loop(self) -> QueryLoop:
        found: dict[str, Any] = {
            "settings": Settings(),
            "runs": SimpleNamespace(
                frames=SimpleNamespace(spark=None),
                start_next=lambda _name: self.run_query(),
                is_past_gaps=False,
            ),
            "publisher": SimpleNamespace(ensure_owner=self.ensure_owner),
            "checkpoint": SimpleNamespace(planned_batch=self.planned),
            "watch": SimpleNamespace(require_now=self.require_now, require=lambda: None),
            "batches": SimpleNamespace(
                take_raised=lambda: self.raised,
                newest_batch_id=7,
                error=None,
                published_count=0,
                reports=SimpleNamespace(attempt=lambda *_: None, forget_silent=lambda _now_s: None),
            ),
            "metrics": SimpleNamespace(count=lambda _family: None),
        }
        return QueryLoop(
            **found,
            health=Health(trigger_interval_s=1),
            wait=lambda _seconds: True,
            is_stopping=lambda: False,
            write_last_beat=lambda: None,
            tell_problem=self.told.append,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def at_second_call(error: Exception) -> Callable[[], None]:
    """A check of who owns the topic that raises this error from its second call on."""
    calls = iter([None])

    def ask() -> None:
        try:
            next(calls)
        except StopIteration:
            raise error from None

    return ask


LOST = DataLoss("ledger 7 is gone")
TAKEN_OVER = Fenced("another controller has taken over")


@pytest.mark.parametrize(
    ("around", "error", "message"),
    [
        pytest.param({"raised": LOST}, Refused, "has not read yet: ledger 7 is gone$", id="data is lost"),
        pytest.param(
            {"raised": LOST, "ensure_owner": at_second_call(TAKEN_OVER)},
            Fenced,
            None,
            id="of a superseded controller it is the successor's doing",
        ),
        pytest.param(
            {
                "require_now": failing_with(Changed("the checkpoint was deleted")),
                "ensure_owner": at_second_call(TAKEN_OVER),
            },
            Fenced,
            None,
            id="a checkpoint that a successor deleted",
        ),
        pytest.param(
            {
                "require_now": failing_with(Changed("the topic was deleted")),
                "ensure_owner": at_second_call(PublishError("no answer")),
            },
            Changed,
            "the topic was deleted",
            id="nobody answers whether there is a successor",
        ),
        pytest.param(
            {"planned": failing_with(ConnectionRefusedError(111, "Connection refused"))},
            SparkGone,
            None,
            id="after an OutOfMemoryError the JVM does not answer any more",
        ),
    ],
)
def test_a_final_failure_ends_it_with_its_cause(
    world: World, around: dict[str, Any], error: type[Exception], message: str | None
):
    world.run_query = failing_with(Py4JError("the query ended"))
    for name, value in around.items():
        setattr(world, name, value)
    with pytest.raises(error, match=message):
        world.loop().run()


def test_a_store_that_cannot_be_read_between_two_runs_is_waited_for(world: World):
    world.run_query = failing_with(CheckpointError("the store does not answer"), Enough())
    outage = [CheckpointError("the store does not answer")] * (3 * REPEATS_MAX)
    world.problem = "the store cannot be written"

    def planned() -> Progress:
        if outage:
            raise outage.pop()
        return Progress()

    world.planned = planned
    with pytest.raises(Enough):
        world.loop().run()
    assert not outage


def test_a_jvm_that_a_probe_finds_gone_ends_it(world: World, monkeypatch: pytest.MonkeyPatch):
    world.run_query = failing_with(CheckpointError("start-7/offsets/3 cannot be read"))
    monkeypatch.setattr(query_loop, "failed_probe", failing_with(SparkGone("connection refused")))
    with pytest.raises(SparkGone):
        world.loop().run()


def test_a_checkpoint_that_cannot_be_read_although_its_store_works_ends_it(world: World):
    world.run_query = failing_with(CheckpointError("start-7/offsets/3 cannot be read"))
    world.planned = failing_with(CheckpointError("start-7/offsets/3 cannot be read"))
    with pytest.raises(Refused, match=f"{REPEATS_MAX} times in a row"):
        world.loop().run()


def test_a_query_that_fails_while_it_is_stopped_does_not_count_as_running(world: World):
    query: Any = SimpleNamespace(
        isActive=True,
        status={"isTriggerActive": True},
        awaitTermination=failing_with(Py4JError("the query ended")),
        lastProgress=None,
        stop=lambda: None,
    )
    spark: Any = None
    runs = iter([Query(query, spark)])

    def run_query() -> Any:
        for each in runs:
            return each
        raise Enough

    world.run_query = run_query
    loop = world.loop()
    with pytest.raises(Enough):
        loop.run()
    shown = {check.name: check.detail for check in loop.health.readiness()}
    assert "the query ended" in shown["query"]


def test_a_failing_query_is_told_to_others_until_it_has_finished_a_batch_again(
    world: World, caplog: pytest.LogCaptureFixture
):
    query = IdleQuery()
    outcomes = [CheckpointError("No space left on device: '/checkpoint/offsets/3'")] * 2

    def run_query() -> Any:
        if outcomes:
            raise outcomes.pop()
        return query

    world.run_query = run_query
    loop = world.loop()
    loop.is_stopping = lambda: query.looks_count > 5
    with caplog.at_level("INFO"):
        loop.run()
    fault = "its query fails and is started again: a disk is full: No space left on device: '/checkpoint/offsets/3'"
    assert world.told == [fault, fault, ""]
    assert "the query works again, after 2 failures" in caplog.text


class IdleQuery:
    """A query that has finished a batch and waits for input."""

    is_active, is_in_batch, finished_batch_id = True, False, 3
    looks_count = 0

    def has_ended_within(self, _seconds: float) -> bool:
        self.looks_count += 1
        return False

    def batch_progress(self) -> None:
        return None

    def stop(self) -> None:
        pass


class BusyQuery:
    """A query that always has a batch under way, as its input never ends. Each batch ends after ``_LOOKS_A_BATCH`` looks."""

    is_active = is_in_batch = True
    _LOOKS_A_BATCH = 3

    def __init__(self) -> None:
        self.looks_count = 0
        self.has_stopped_after: int | None = None

    @property
    def finished_batch_id(self) -> int:
        return self.looks_count // self._LOOKS_A_BATCH

    def has_ended_within(self, _seconds: float) -> bool:
        self.looks_count += 1
        return False

    def stop(self) -> None:
        self.has_stopped_after = self.finished_batch_id


def test_a_stop_waits_for_the_batch_under_way_and_not_for_an_input_that_never_ends(world: World):
    query = BusyQuery()
    world.run_query = lambda: query
    loop = world.loop()
    asked = iter([False])
    loop.is_stopping = lambda: next(asked, True)
    loop.run()
    assert query.has_stopped_after == 1


def test_the_line_about_a_controller_that_runs_names_what_it_reads_writes_and_decides_with():
    settings = Settings(
        targets={"east": TargetSection(pulsar=PulsarTarget(admin_url="http://b:8080"))},
        output=OutputSettings(url="kafka://out:9092"),
    )
    assert describe_run(settings, metrics_url="http://h:9465") == (
        "running, set to mode dry-run and, for Pulsar, the policy avg-shedder (a control event goes before that): reads trimtab.input and "
        "trimtab.control at kafka://127.0.0.1:9092, writes trimtab.actions (in dry-run trimtab.actions.dry-run) and trimtab.audit "
        "at kafka://out:9092; the settings know 1 cluster by name (east), and any other that reports is decided on as well; "
        "metrics and health at http://h:9465"
    )
    assert "; the settings know no cluster by name, and any that reports is decided on; " in describe_run(
        Settings(), metrics_url="http://h:9465"
    )
