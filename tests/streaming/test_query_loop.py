"""When the loop around the query ends, and after which failures it goes on. Spark, brokers and files are stand-ins."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from streaming.controller import query_loop
from streaming.controller.health import Health
from streaming.controller.query_loop import QueryLoop
from streaming.controller.surroundings import Changed
from streaming.ports.checkpoint import CheckpointError
from streaming.ports.places import Progress
from streaming.ports.publishing import Fenced, PublishError
from streaming.process.exits import Refused
from streaming.pulsar.positions import DataLoss
from streaming.settings import Settings
from streaming.spark.failures import REPEATS_MAX, SparkGone
from streaming.spark.query import Query


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
        monkeypatch.setattr(query_loop, "failed_probe", lambda *_: self.problem)
        monkeypatch.setattr(query_loop, "damaged_files", lambda *_: [])

    def loop(self) -> QueryLoop:
        found: dict[str, Any] = {
            "settings": Settings(),
            "runs": SimpleNamespace(
                frames=SimpleNamespace(spark=None), start_next=lambda _name: self.run_query()
            ),
            "publisher": SimpleNamespace(ensure_owner=self.ensure_owner),
            "checkpoint": SimpleNamespace(planned_batch=self.planned),
            "watch": SimpleNamespace(require_now=self.require_now),
            "batches": SimpleNamespace(
                take_raised=lambda: self.raised, newest_batch_id=7, error=None, published_count=0
            ),
            "metrics": SimpleNamespace(count=lambda _family: None),
        }
        return QueryLoop(
            **found,
            health=Health(trigger_interval_s=1),
            wait=lambda _seconds: True,
            is_stopping=lambda: False,
            write_last_beat=lambda: None,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def superseded_after(calls: int) -> Callable[[], None]:
    """A check that raises ``Fenced`` after so many calls, as a successor has taken over."""
    left = [calls]

    def ask() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Fenced("another controller has taken over")

    return ask


def test_data_that_is_lost_ends_it_with_the_remedy(world: World):
    world.run_query = failing_with(Py4JError("the query ended"))
    world.raised = DataLoss("ledger 7 is gone")
    with pytest.raises(Refused, match="ledger 7 is gone"):
        world.loop().run()


def test_a_final_failure_of_a_superseded_controller_is_its_successors_doing(world: World):
    world.run_query = failing_with(Py4JError("the query ended"))
    world.raised = DataLoss("ledger 7 is gone")
    world.ensure_owner = superseded_after(1)
    with pytest.raises(Fenced):
        world.loop().run()


def test_a_checkpoint_that_is_gone_because_a_successor_deleted_it_is_no_refusal(world: World):
    world.run_query = failing_with(Py4JError("the query ended"))
    world.require_now = failing_with(Changed("the checkpoint was deleted"))
    world.ensure_owner = superseded_after(1)
    with pytest.raises(Fenced):
        world.loop().run()


def test_a_final_failure_is_told_also_when_nobody_answers_whether_there_is_a_successor(world: World):
    world.run_query = failing_with(Py4JError("the query ended"))
    world.require_now = failing_with(Changed("the topic was deleted"))
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        if len(asked) > 1:
            raise PublishError("no answer")

    world.ensure_owner = ask
    with pytest.raises(Changed, match="the topic was deleted"):
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


def test_a_jvm_that_has_ended_between_two_runs_ends_it_instead_of_being_waited_for(world: World):
    """After an OutOfMemoryError, the query fails, and then the JVM does not answer py4j any more."""
    world.run_query = failing_with(Py4JError("the query ended"))
    world.planned = failing_with(ConnectionRefusedError(111, "Connection refused"))
    with pytest.raises(SparkGone):
        world.loop().run()


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
