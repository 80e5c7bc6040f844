"""The loop of executors: what a failing topic, a pause, a freeze and a hang do to a batch. Topics are lists, tests set the clock."""

import threading
from collections.abc import Callable, Iterator

import pytest

from streaming.contract.encode import encode_leader
from streaming.contract.messages import ControlData
from streaming.process.deadline import poll
from streaming.transport.errors import PublishError
from tests.streaming.looping import World


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
def test_a_batch_that_cannot_be_told_or_committed_is_polled_again(
    world: World, broken: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    setattr(world.topic if broken == "commits_failing" else world.results, broken, 1)
    world.say("a1")
    with world.running():
        wait_for(lambda: world.topic.committed == 1)
    assert world.called == ["a1"], "taken up once more, from the topic, and not carried out again"
    told = [each.getMessage() for each in caplog.records if "a1" in each.getMessage()]
    assert [" succeeded in " in each for each in told] == [True, False]
    assert told[1].endswith(" had been done before")
    assert world.results.written.count(world.results.written[0]) == len(world.results.written)
    assert world.results.written[0]["id"] == "result/a1"
    metric = world.loop.metrics.registry.get_sample_value
    assert metric("trimtab_executor_batches_dropped_total", {"cluster": "east-1"}) == 1


def test_of_a_dropped_batch_only_what_did_not_succeed_is_carried_out_again(world: World):
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


def test_an_action_that_expires_while_it_is_looked_at_or_waits_for_its_turn_is_not_called(world: World):
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


def test_a_predecessors_actions_are_carried_out_until_its_successor_speaks(world: World):
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


@pytest.mark.parametrize(("kind", "most"), [("unload", 3), ("split", 1)])
def test_unloads_of_a_namespace_happen_at_once_but_not_beside_a_split(world: World, kind: str, most: int):
    world.say("first", kind=kind)
    world.say("second", range_="0x40000000_0x80000000")
    world.say("third", range_="0x80000000_0xc0000000")
    begun: set[str] = set()
    all_at_once = threading.Barrier(most)

    def before(id_: str) -> None:
        begun.add(id_)
        all_at_once.wait(30)
        if most == 1:
            assert len(begun - set(world.called)) == 1

    world.before_call = before
    world.loop.run(once=True)
    assert set(world.outcomes().values()) == {"succeeded"}
    assert most > 1 or world.called == ["first", "second", "third"]


def test_a_pause_is_obeyed_between_the_actions_of_one_bundle(world: World):
    world.say("a1")
    world.say("a2")

    def before(id_: str) -> None:
        if id_ == "a2":
            world.control.data = ControlData(paused=True, who="ann")

    world.before_call = before
    world.loop.run(once=True)
    assert world.called == ["a1"]
    assert world.outcomes() == {"a1": "succeeded", "a2": "skipped paused"}


def test_after_a_stop_nothing_more_is_begun_and_the_rest_of_the_batch_comes_to_whoever_is_next(world: World):
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


def test_nothing_is_called_while_the_control_topic_cannot_be_read(world: World):
    for number in range(4):
        world.say(f"a{number}", namespace=f"t/n{number}")
    world.control.failing = 1
    with pytest.raises(PublishError, match="no leader"):
        world.loop.run(once=True)
    assert (world.called, world.control.asked) == ([], 1)


def test_it_stays_in_the_group_while_it_works_and_calls_nothing_of_anothers_batch(world: World):
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
            "trimtab_executor_batches_dropped_total", {"cluster": "east-1"}
        )
        == 1
    )


def test_it_is_alive_while_actions_are_asked_for_and_not_when_a_batch_hangs(world: World):
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


def test_a_batch_comes_again_only_when_nothing_of_it_runs_any_more(world: World):
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


def test_once_says_so_where_there_is_nothing_to_do(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    world.loop.run(once=True)
    assert [record.getMessage() for record in caplog.records] == [
        "there is nothing to do: no new action for east-1"
    ]
    caplog.clear()
    world.say("a1")
    world.loop.run(once=True)
    assert "nothing to do" not in caplog.text
