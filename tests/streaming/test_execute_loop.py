"""The loop of executors: what a failing topic, a pause, a freeze and a hang do to a batch. Topics are lists, tests set the clock."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from state.round_settings import RoundSettings
from streaming.contract.leader import encode_leader
from streaming.contract.messages import ControlData
from streaming.executor.metrics import ExecutorMetrics
from streaming.executor.orders import Done, Order, Skip
from streaming.executor.pulsar import ExecutorLoop
from streaming.ports.actions import ActionRecord, Epochs
from streaming.ports.control import ControlView
from streaming.ports.publishing import PublishError
from streaming.process.deadline import poll
from streaming.process.pulse import Pulse

NOW_S = 1_800_000_000.0


@dataclass(slots=True)
class Topic:
    """An actions topic as the loop sees it."""

    values: list[bytes] = field(default_factory=list)
    epochs: dict[bytes, bytes] = field(default_factory=dict)
    """Epoch headers by record value; the header is 1 for a value that is not here."""
    epochs_heard: Epochs | None = None
    """The loop's epochs; ``drop`` makes them begin anew."""
    position: int = 0
    committed: int = 0
    commits_failing: int = 0
    is_lost: bool = False
    stays: int = 0

    def poll(self, *, timeout_s: float) -> list[ActionRecord]:
        del timeout_s
        self.is_lost = False
        found, self.position = self.values[self.position :], len(self.values)
        return [ActionRecord(value=value, epoch_header=self.epochs.get(value, b"1")) for value in found]

    def keep_polled(self) -> None:
        self.stays += 1
        if self.is_lost:
            raise PublishError("this executor lost its actions")

    def commit(self) -> None:
        if self.commits_failing:
            self.commits_failing -= 1
            raise PublishError("not committed")
        self.committed = self.position

    def drop(self) -> None:
        self.position = self.committed
        if self.epochs_heard is not None:
            self.epochs_heard.begin(0, {})

    def is_at_end(self) -> bool:
        return self.position == len(self.values)


class Control(ControlView):
    def __init__(self) -> None:
        super().__init__("east-1", RoundSettings())
        self.data: ControlData | None = None
        self.failing = 0
        self.asked = 0

    def newest(self) -> ControlData | None:
        self.asked += 1
        if self.failing:
            self.failing -= 1
            raise PublishError("no leader")
        return self.data

    def close(self) -> None:
        pass


@dataclass(slots=True)
class Results:
    """A sink whose writes are lost while ``failing``."""

    failing: int = 0
    handed: list[dict[str, object]] = field(default_factory=list)
    written: list[dict[str, object]] = field(default_factory=list)

    def send(self, key: str, value: bytes) -> None:
        del key
        self.handed.append(json.loads(value))

    def flush(self) -> None:
        handed, self.handed = self.handed, []
        if self.failing:
            self.failing -= 1
            raise PublishError("not written")
        self.written += handed

    def close(self) -> None:
        pass


@dataclass(slots=True)
class World:
    """An executor's loop with everything around it."""

    topic: Topic = field(default_factory=Topic)
    control: Control = field(default_factory=Control)
    results: Results = field(default_factory=Results)
    now_s: float = NOW_S
    called: list[str] = field(default_factory=list)
    before_call: Callable[[str], None] = lambda _: None
    loop: ExecutorLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = ExecutorLoop(
            self,  # type: ignore[arg-type]
            ExecutorMetrics("east-1"),
            cluster="east-1",
            actions=self.topic,
            control=self.control,
            results=self.results,
            epochs=Epochs(),
            concurrent_count=4,
            clock_s=lambda: self.now_s,
        )
        self.loop._pulse = Pulse(lambda: self.now_s)

    def carry_out(self, order: Order, still: Callable[[], None]) -> Done | Skip:
        """Stands in for the executor: looks at the cluster, which may take a while, then makes the call."""
        self.before_call(order.id)
        still()
        self.called.append(order.id)
        return Done(outcome="succeeded")

    def say(self, id_: str, *, namespace: str = "t/n", lives_s: float = 60.0) -> None:
        data = {
            "bundle": f"{namespace}/0x00000000_0x40000000",
            "precondition": {"owner": "b1:8080", "range": "0x00000000_0x40000000"},
            "expires_at": datetime.fromtimestamp(NOW_S + lives_s, UTC).isoformat(),
            "dry_run": False,
        }
        event = {
            "id": id_,
            "source": "/c",
            "type": "trimtab.action.unload.v1",
            "cluster": "east-1",
            "data": data,
        }
        self.topic.values.append(json.dumps(event).encode())

    def outcomes(self) -> dict[str, str]:
        return {
            str(each["subject"]): _said(each["data"])  # type: ignore[arg-type]
            for each in self.results.written
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.loop.run)
        thread.start()
        try:
            yield
        finally:
            self.loop.stop()
            thread.join(30)
            assert not thread.is_alive()


def _said(data: Mapping[str, str | None]) -> str:
    return " ".join(filter(None, (data["outcome"], (data.get("reason") or "").partition(":")[0])))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("streaming.executor.loop._POLL_S", 0.01)
    monkeypatch.setattr("streaming.executor.loop._RETRY_S", 0.01)
    made = World()
    yield made
    made.loop.close()


def wait_for(condition: Callable[[], object]) -> None:
    assert poll(lambda: bool(condition()), timeout_s=30, pause_s=0.01), "waited 30 s in vain"


@pytest.mark.parametrize("broken", ["commits_failing", "failing"])
def test_a_batch_that_cannot_be_told_or_committed_is_polled_again_and_not_kept_for_ever(
    world: World, broken: str
) -> None:
    setattr(world.topic if broken == "commits_failing" else world.results, broken, 1)
    world.say("a1")
    with world.running():
        wait_for(lambda: world.topic.committed == 1)
    assert world.called == ["a1"], "taken up once more, from the topic, and not carried out again"
    assert world.results.written.count(world.results.written[0]) == len(world.results.written)
    assert world.results.written[0]["id"] == "result/a1"
    metric = world.loop.metrics.registry.get_sample_value
    assert metric("trimtab_executor_dropped_batches_total", {"cluster": "east-1"}) == 1


def test_what_succeeded_in_a_batch_that_is_dropped_is_not_carried_out_again_and_what_did_not_is(
    world: World,
) -> None:
    world.say("a1")
    world.say("a2")

    def lose_control(called: str) -> None:
        if called == "a2" and not world.topic.committed and world.control.asked < 5:
            world.control.failing = 1
        world.now_s += 1

    world.before_call = lose_control
    with world.running():
        wait_for(lambda: world.topic.committed == 2)
    assert world.called == ["a1", "a2"]
    assert [each["id"] for each in world.results.written].count("result/a2") == 1
    first = [each for each in world.results.written if each["id"] == "result/a1"]
    assert all(each == first[0] for each in first), "the same result, also its time"


def test_an_action_that_expires_while_it_is_looked_at_or_waits_for_its_turn_is_not_called(
    world: World,
) -> None:
    """After a freeze, the clock has moved on since the batch began."""
    world.say("quick")
    world.say("slow")
    world.say("behind it")

    def before(id_: str) -> None:
        if id_ == "slow":
            world.now_s += 61.0

    world.before_call = before
    world.loop.run(once=True)
    assert world.called == ["quick"]
    assert world.outcomes() == {
        "quick": "succeeded",
        "slow": "skipped expired",
        "behind it": "skipped expired",
    }


def test_a_predecessors_actions_are_carried_out_up_to_the_word_of_its_successor_and_refused_after_it(
    world: World,
) -> None:
    """The same holds when the batch is repeated after a failure."""
    world.say("before")
    world.topic.values.append(leader := encode_leader("c", epoch=2, time_ms=0).replace(b"/trimtab/c", b"/c"))
    world.topic.epochs[leader] = b"2"
    world.say("zombie")
    world.topic.epochs_heard = world.loop._epochs
    tried: list[str] = []

    def fail_once(id_: str) -> None:
        tried.append(id_)
        if len(tried) == 1:
            raise PublishError("no leader")

    world.before_call = fail_once
    with world.running():
        wait_for(lambda: world.topic.committed == 3)
    assert (tried, world.called) == (["before", "before"], ["before"])
    assert world.outcomes() == {"before": "succeeded", "zombie": "skipped old-epoch"}


def test_a_pause_is_obeyed_between_the_actions_of_one_namespace(world: World) -> None:
    world.say("a1")
    world.say("a2")

    def before(id_: str) -> None:
        if id_ == "a2":
            world.control.data = ControlData(paused=True, who="ann")

    world.before_call = before
    world.loop.run(once=True)
    assert world.called == ["a1"]
    assert world.outcomes() == {"a1": "succeeded", "a2": "skipped paused"}


def test_after_a_stop_nothing_more_is_begun_and_the_rest_of_the_batch_comes_to_whoever_is_next(
    world: World,
) -> None:
    for id_ in ("a1", "a2", "a3"):
        world.say(id_)

    def before(id_: str) -> None:
        if id_ == "a2":
            world.loop.stop()

    world.before_call = before
    world.loop.run()
    assert world.called == ["a1"]
    assert world.outcomes() == {"a1": "succeeded"}, "a result is published only for what was done"
    assert world.topic.committed == 0

    world.topic.drop()
    successor = World(topic=world.topic)
    successor.loop.run(once=True)
    successor.loop.close()
    assert successor.called == ["a1", "a2", "a3"]
    assert world.topic.committed == 3


def test_nothing_is_called_while_the_control_topic_cannot_be_read_and_a_batch_waits_for_it_once(
    world: World,
) -> None:
    for number in range(4):
        world.say(f"a{number}", namespace=f"t/n{number}")
    world.control.failing = 1
    with pytest.raises(PublishError, match="no leader"):
        world.loop.run(once=True)
    assert (world.called, world.control.asked) == ([], 1)


def test_it_stays_in_the_group_while_it_works_and_calls_nothing_any_more_once_the_batch_is_anothers(
    world: World,
) -> None:
    world.say("a1")
    world.say("a2")

    def before(id_: str) -> None:
        if id_ == "a2" and not world.topic.stays:
            wait_for(lambda: world.topic.stays > 3)
            world.topic.is_lost = True
            wait_for(lambda: world.loop._lost is not None)

    world.before_call = before
    with world.running():
        wait_for(lambda: world.topic.committed == 2)
    assert world.called == ["a1", "a2"], "a2 was called only after it had come again"
    assert (
        world.loop.metrics.registry.get_sample_value(
            "trimtab_executor_dropped_batches_total", {"cluster": "east-1"}
        )
        == 1
    )


def test_it_is_alive_while_actions_are_asked_for_and_not_when_a_batch_hangs(world: World) -> None:
    hanging, go_on = threading.Event(), threading.Event()
    world.say("a1", lives_s=9_999.0)

    def before(_: str) -> None:
        hanging.set()
        assert go_on.wait(30)

    world.before_call = before
    with world.running():
        assert hanging.wait(30)
        assert all(check.ok for check in world.loop.liveness())
        world.now_s += 1_000.0
        wait_for(lambda: [check.name for check in world.loop.liveness() if not check.ok] == ["batch"])
        go_on.set()
        wait_for(lambda: all(check.ok for check in world.loop.liveness()))
    world.now_s += 1_000.0
    assert [check.name for check in world.loop.liveness() if not check.ok] == ["loop"], (
        "the loop no longer polls"
    )


def test_a_batch_comes_again_only_when_nothing_of_it_runs_any_more(world: World) -> None:
    """One action fails while one of another namespace still runs: a repeat now would run two of that namespace at once."""
    stumbled, begun_twice = threading.Event(), threading.Event()
    at_work: list[str] = []
    most_at_once: list[int] = []

    def look_around(action: str) -> None:
        if action == "stumbling" and not stumbled.is_set():
            stumbled.set()
            raise PublishError("no leader")
        if action == "slow":
            at_work.append(action)
            most_at_once.append(len(at_work))
            if len(at_work) > 1:
                begun_twice.set()
            stumbled.wait(30)
            begun_twice.wait(0.3)
            at_work.remove(action)

    world.before_call = look_around
    world.say("stumbling", namespace="t/a")
    world.say("slow", namespace="t/b")
    with world.running():
        wait_for(lambda: world.topic.committed == 2)
    assert most_at_once == [1], "it was not begun again while it ran"
