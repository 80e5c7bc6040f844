"""`trimtab record` keeps what a controller was given: replaying it gives what the live one published, dead letters included."""

import pytest
from kafka import KafkaProducer

from tests.support.loads import LENGTH_S, START_S, closing, leaning, played, said
from tests.support.processes import Warm
from tests.support.stage import Stage, assert_replayed_alike

pytestmark = pytest.mark.live

CLUSTER = "east-1"
MAX_RECORD_BYTES = 20_000


def send_garbage(stage: Stage) -> int:
    """Send records that are refused, each for another reason; returns how many there are."""
    good = leaning(0)[0]
    garbage: list[tuple[bytes | None, bytes | None]] = [
        (b"east-1", b"not json"),
        (b"east-1", b'{"a":\n1}'),
        (b"east-1", b'{"\xff":1}'),
        (b"east-1", None),
        (b"east-1", b""),
        (b"west-1", good),
        (None, good),
        (b"\xff\xfe", good),
        (b"east-1", said(paused=True, time_s=START_S)),
        (b"east-1", b'{"a":"' + b"x" * MAX_RECORD_BYTES + b'"}'),
    ]
    for key, value in garbage:
        stage.send_raw(key, value)
    stage.flush()
    return len(garbage)


def test_a_replay_of_the_record_repeats_all_that_was_odd(stage: Stage, warm: Warm):
    stage.repartition(2)
    config = stage.settings(controller__max_record_bytes=MAX_RECORD_BYTES)
    stage.send([said(paused=True, time_s=START_S)], to=stage.topics.control)
    with KafkaProducer(bootstrap_servers=stage.bootstrap) as producer:

        def send_to(partition: int, events: list[bytes]) -> None:
            for value in events:
                producer.send(stage.topics.input, key=CLUSTER.encode(), value=value, partition=partition)
            producer.flush()

        with warm.run(config) as run:
            send_to(0, played(range(4)))
            stage.wait_for(stage.topics.audit, 4, running=[run])
            send_to(1, leaning(4))
            refused_count = 2 + send_garbage(stage)
            run.until(lambda: len(stage.rejected()) >= refused_count, "dead letters")
            late = START_S + LENGTH_S
            stage.send([said(paused=False, time_s=late)], to=stage.topics.control)
            send_to(0, [*leaning(4), closing(4)])
            stage.wait_for(stage.topics.audit, 5, running=[run])
            send_to(0, played(range(5, 9)))
            stage.wait_for(stage.topics.audit, 9, running=[run])
    published = stage.published()
    assert published.actions_count > 0
    assert len(stage.rejected()) == refused_count
    reasons = {letter["reason"] for letter in stage.rejected()}
    assert reasons >= {"wrong-partition", "too-large", "wrong-topic"}
    assert_replayed_alike(stage, config)
