"""What programs may rely on, whichever system the settings name: write, read, take up, remember and know what operators said."""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from uuid import uuid4

import pytest

from policies.throttle.lists import ThrottledLists
from state.outputs import rfc3339
from streaming.cli.published import newest_leaders
from streaming.contract.beat import Beat, encode
from streaming.executor.memory import Memory, Remembered, SetRate, control_of, memory_of
from streaming.process.exits import Refused
from streaming.settings import Settings
from streaming.systems import (
    beat_sink_of,
    create_all,
    event_sink_of,
    input_side,
    output_side,
    validate_all,
)
from streaming.transport.errors import PublishError, Taken
from streaming.transport.side import Actions, PartitionEpochs, Reader
from streaming.transport.topics import Outcome
from tests.support.processes import until

CLUSTER = "east-1"


def values(reader: Reader) -> list[bytes | None]:
    return [record.value for record in reader.read_to_end()]


def control(cluster: str, time_ms: int, *, paused: bool, id_: str = "") -> tuple[str, bytes]:
    """A control event, as a record."""
    event = {
        "specversion": "1.0",
        "id": id_ or uuid4().hex,
        "source": "/operator",
        "type": "trimtab.control.v1",
        "subject": "control",
        "time": rfc3339(time_ms),
        "cluster": cluster,
        "data": {"paused": paused, "mode": None, "settings": {}, "who": "ops", "why": "test"},
    }
    return cluster, json.dumps(event).encode()


class PortsSuite:
    """A subclass has a fixture ``settings`` with topics of the test's own, one input partition."""

    def test_topics_that_were_made_pass_the_check_and_are_made_once(self, settings: Settings):
        assert {each.outcome for each in create_all(settings, input_partitions=1)} == {Outcome.ALREADY_RIGHT}
        assert validate_all(settings) == []

    def test_what_was_written_is_read_with_its_key_in_its_order(self, settings: Settings):
        topic = settings.topics.input
        sink = event_sink_of(settings)
        with input_side(settings).reader(topic) as reader:
            assert reader.partitions_count == 1
            assert values(reader) == [], "the end of an empty topic is there at once"
            for number in range(100):
                sink.send(CLUSTER, b"%d" % number)
            sink.flush()
            records = list(reader.read_to_end())
            assert [record.value for record in records] == [b"%d" % number for number in range(100)]
            assert {record.key for record in records} == {CLUSTER.encode()}
            assert [record.offset for record in records] == sorted({record.offset for record in records})
            assert values(reader) == [], "each record once"
        sink.close()

    def test_a_controllers_beat_is_read_as_a_sign_that_it_runs(self, settings: Settings):
        written = Beat(name="main", instance="a:1", epoch=7, batch=3, at="then", version="1", session_s=10.0)
        with closing(beat_sink_of(settings)) as sink:
            sink.send(written.name, encode(written))
            sink.flush()
        with output_side(settings).reader(settings.topics.beats) as reader:
            found = newest_leaders(reader.read_to_end(), now_ms=round(time.time() * 1000))
        assert (found["main"].beat.instance, found["main"].beat.batch, found["main"].runs) == ("a:1", 3, True)

    def test_reading_begins_where_it_is_told_to(self, settings: Settings):
        topic = settings.topics.input
        input_side(settings).append(topic, [(CLUSTER, b"a"), (CLUSTER, b"b")])
        with input_side(settings).reader(topic) as reader:
            first, second = reader.read_to_end()
        until(lambda: time.time() * 1000 > second.timestamp + 1, what="a later moment")
        input_side(settings).append(topic, [(CLUSTER, b"c")])
        with input_side(settings).reader(topic, begin="latest") as reader:
            assert values(reader) == []
            input_side(settings).append(topic, [(CLUSTER, b"d")])
            assert next(reader.follow()).value == b"d"
        with input_side(settings).reader(topic, begin=second.timestamp + 1) as reader:
            assert [record.value for record in islice(reader.follow(), 2)] == [b"c", b"d"]
        with input_side(settings).reader(topic, partition=0) as only:
            assert values(only) == [b"a", b"b", b"c", b"d"]
        assert first.timestamp <= second.timestamp

    def test_reading_from_a_time_on_finds_all_that_came_since_and_nothing_else(self, settings: Settings):
        topic, hour_ms = settings.topics.input, 3_600_000
        with input_side(settings).reader(topic, begin=0) as reader:
            assert values(reader) == [], "nothing is there yet"
        input_side(settings).append(topic, [(CLUSTER, b"a"), (CLUSTER, b"b")])
        with input_side(settings).reader(topic) as reader:
            *_, last = reader.read_to_end()
        for _ in range(10):
            with input_side(settings).reader(topic, begin=last.timestamp - hour_ms) as reader:
                assert values(reader) == [b"a", b"b"]
            with input_side(settings).reader(topic, begin=last.timestamp + hour_ms) as reader:
                assert values(reader) == []

    def test_a_topic_that_is_not_there_is_refused_by_name(self, settings: Settings):
        with pytest.raises(Refused, match="nowhere"):
            input_side(settings).reader("nowhere")

    def test_the_newest_control_event_of_a_cluster_is_known_wherever_it_stands(self, settings: Settings):
        topic, now_ms = settings.topics.control, round(time.time() * 1000)
        with control_of(settings, cluster=CLUSTER, system="pulsar") as view:
            assert view.newest() is None
            events = [
                control(CLUSTER, now_ms, paused=True, id_="b"),
                control(CLUSTER, now_ms, paused=False, id_="a"),
                control("west-1", now_ms + 1, paused=False),
                (CLUSTER, b"no control event"),
            ]
            input_side(settings).append(topic, events)
            newest = view.newest()
            assert newest is not None
            assert newest.paused, "of one moment, the greater id"
            ahead = control(CLUSTER, now_ms + 86_400_000, paused=True, id_="a clock that is a day ahead")
            input_side(settings).append(topic, [ahead])
            later_ms = round(time.time() * 1000) + 5_000
            input_side(settings).append(topic, [control(CLUSTER, later_ms, paused=False)])
            newest = view.newest()
            assert newest is not None
            assert not newest.paused

    def test_actions_come_in_order_and_again_until_they_are_committed(self, settings: Settings):
        message = [b"%d" % number for number in range(5)]
        input_side(settings).append(settings.topics.actions, [(CLUSTER, value) for value in message])
        with ExitStack() as stack:
            actions = _actions(settings, stack)
            assert _poll(actions, 5) == message
            actions.drop()
            assert _poll(actions, 5) == message, "dropped and not committed"
            actions.keep_polled()
            actions.commit()
            until(actions.is_at_end, what="the end")
        input_side(settings).append(settings.topics.actions, [(CLUSTER, b"after")])
        with ExitStack() as stack:
            assert _poll(_actions(settings, stack), 1) == [b"after"], "what was committed does not come again"

    def test_what_was_put_on_a_cluster_is_remembered_by_cluster(self, settings: Settings):
        memory = memory_of(settings, cluster=CLUSTER)
        assert memory.read() == Remembered()
        put = Remembered(
            added=ThrottledLists(leader={"t": "0:1"}), rates={"leader:1": SetRate(ours=5, before=None)}
        )
        _write(memory, put)
        _write(memory_of(settings, cluster="west-1"), put)
        assert memory_of(settings, cluster=CLUSTER).read() == put
        _write(memory, Remembered())
        assert memory.read() == Remembered()
        assert memory_of(settings, cluster="west-1").read() == put

    def test_an_executor_whose_memory_was_taken_overwrites_nothing(self, settings: Settings):
        memory = memory_of(settings, cluster=CLUSTER)
        put = Remembered(added=ThrottledLists(leader={"t": "0:1"}))
        with memory.hold() as overtaken:
            _write(memory_of(settings, cluster=CLUSTER), put)
            with pytest.raises(Taken):
                overtaken.write(Remembered())
        with memory.hold() as again:
            assert again.remembered == put

    def test_without_topics_it_is_said_how_to_make_them(self, settings: Settings):
        names = settings.topics.__class__(executor_kafka="nowhere")
        bare = replace(settings, topics=names)
        with pytest.raises(PublishError, match=r"nowhere.*run `trimtab topics create`"):
            memory_of(bare, cluster=CLUSTER).read()


def _actions(settings: Settings, stack: ExitStack) -> Actions:
    side = output_side(settings)
    return stack.enter_context(
        side.actions(
            settings.topics.actions,
            group=f"trimtab-execute-{CLUSTER}",
            epochs=PartitionEpochs(),
            records_max=10,
        )
    )


def _poll(actions: Actions, count: int) -> Sequence[bytes]:
    """The next actions, in as many batches as they come in."""
    found: list[bytes] = []

    def are_there() -> bool:
        found.extend(record.value for record in actions.poll(timeout_s=0.3))
        return len(found) >= count

    until(are_there, what=f"{count} actions")
    return found


def _write(memory: Memory, remembered: Remembered) -> None:
    with memory.hold() as held:
        held.write(remembered)
