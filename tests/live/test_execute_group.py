"""The executor's consumer on a real Kafka, in its group: while a batch is worked on, and when another executor joins."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from streaming.kafka.executor import ActionsTopic
from streaming.kafka.link import Link
from streaming.process.deadline import Deadline
from streaming.transport.errors import PublishError
from streaming.transport.side import ActionRecord, Epochs
from tests.live.driving import until
from tests.live.stage import Stage

pytestmark = pytest.mark.live

POLL_INTERVAL_S = 7.0
"""Seconds after which the client leaves the group if it is not polled; no shorter than the session, whose minimum is 6 s."""


def consumer(stage: Stage, stack: ExitStack) -> ActionsTopic:
    options = {
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 1_000,
        "max_poll_interval_ms": round(1000 * POLL_INTERVAL_S),
    }
    return stack.enter_context(
        ActionsTopic(
            Link(stage.bootstrap),
            stage.topics.actions,
            group=f"trimtab-execute-{stage.name}",
            epochs=Epochs(),
            records_max=10,
            **options,
        )
    )


def say(stage: Stage, value: bytes) -> None:
    stage.send_raw(b"c", value, to=stage.topics.actions)
    stage.flush()


def polled(*actions: ActionsTopic) -> list[bytes]:
    """The next batch that any of them gets."""
    found: list[ActionRecord] = until(
        lambda: next(filter(None, (each.poll(timeout_s=0.3) for each in actions)), []), what="a batch"
    )
    return [record.value for record in found]


def stays(actions: ActionsTopic, *, while_: Callable[[], bool]) -> None:
    while while_():
        actions.keep_polled()


def test_a_batch_that_takes_longer_than_the_poll_interval_is_kept_and_what_comes_meanwhile_is_not_lost(
    stage: Stage,
) -> None:
    with ExitStack() as stack:
        actions = consumer(stage, stack)
        say(stage, b"long")
        assert polled(actions) == [b"long"]
        say(stage, b"meanwhile")
        deadline = Deadline(2 * POLL_INTERVAL_S)
        stays(actions, while_=lambda: not deadline.is_over)
        actions.commit()
        assert polled(actions) == [b"meanwhile"]


def test_what_was_polled_before_the_group_changed_is_not_committed_but_comes_again_to_whoever_has_it_then(
    stage: Stage,
) -> None:
    with ExitStack() as stack:
        first = consumer(stage, stack)
        say(stage, b"a1")
        assert polled(first) == [b"a1"]
        second = consumer(stage, stack)
        found: list[ActionRecord] = []

        def taken() -> bool:
            found.extend(second.poll(timeout_s=0.3))
            try:
                first.keep_polled()
            except PublishError as error:
                return "this executor lost its actions" in str(error)
            return False

        until(taken, what="the group to change")
        with pytest.raises(PublishError, match="this executor lost its actions"):
            first.commit()
        first.drop()
        assert ([record.value for record in found] or polled(first, second)) == [b"a1"]


def test_a_replica_that_joins_waits_for_work_that_another_one_has(stage: Stage) -> None:
    """The executor that has the partition keeps it, and the other one gets it only when the first one ends."""
    with ExitStack() as stack:
        with ExitStack() as own:
            first = consumer(stage, own)
            say(stage, b"a1")
            assert polled(first) == [b"a1"]
            first.commit()
            second = consumer(stage, stack)
            until(lambda: _has_joined(second, first), what="the other one to join")
            for value in (b"a2", b"a3"):
                say(stage, value)
                until(lambda: first.poll(timeout_s=0.3), what="the next action")
                first.commit()
                assert second.poll(timeout_s=0.3) == []
        say(stage, b"a4")
        assert polled(second) == [b"a4"]


def _has_joined(second: ActionsTopic, first: ActionsTopic) -> bool:
    """Poll both; whether the group has settled with both."""
    polled_by = [each.poll(timeout_s=0.3) for each in (first, second)]
    assert polled_by == [[], []]
    members = second._consumer._coordinator._generation.member_id, second._consumer._coordinator.state
    return bool(members[0]) and "STABLE" in str(members[1]).upper() and bool(first._consumer.assignment())


def test_a_dropped_batch_comes_again_to_the_same_executor(stage: Stage) -> None:
    with ExitStack() as stack:
        actions = consumer(stage, stack)
        say(stage, b"a1")
        assert polled(actions) == [b"a1"]
        actions.commit()
        say(stage, b"a2")
        assert polled(actions) == [b"a2"]
        actions.drop()
        assert polled(actions) == [b"a2"]


def test_a_partition_that_leaves_while_its_beginning_is_asked_for_is_left_to_whoever_has_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        first = consumer(stage, stack)
        say(stage, b"a1")
        client = first._consumer
        committed = client.committed

        def committed_and_taken(*arguments: object, **named: object) -> object:
            found = committed(*arguments, **named)
            client.unsubscribe()
            return found

        monkeypatch.setattr(client, "committed", committed_and_taken)
        until(lambda: first.poll(timeout_s=0.3) == [] and not client.assignment(), what="it to leave")
        monkeypatch.undo()
        assert first.poll(timeout_s=0.3) == []
