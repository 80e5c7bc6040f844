"""`trimtab record` keeps what a controller was given: replaying it gives what the live one published, dead letters included."""

from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.streaming.events import control
from tests.support.loads import LENGTH_S, START_S, closing, leaning, played
from tests.support.processes import Warm, command
from tests.support.stage import Outputs, Stage

pytestmark = pytest.mark.live

CLUSTER = "east-1"
MAX_RECORD_BYTES = 20_000


def pause(*, paused: bool, time_s: float) -> bytes:
    return control(
        time_s=time_s,
        cluster=CLUSTER,
        id=f"{'pause' if paused else 'resume'}-{time_s:g}",
        data={"paused": paused, "who": "ops", "why": "test"},
    )


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
        (b"east-1", pause(paused=True, time_s=START_S)),
        (b"east-1", b'{"a":"' + b"x" * MAX_RECORD_BYTES + b'"}'),
    ]
    for key, value in garbage:
        stage.send_raw(key, value)
    stage.flush()
    return len(garbage)


def recorded(config: Path, file: Path) -> list[bytes]:
    """What replay makes of what record writes."""
    command("record", "--config", str(config), "--until-now", str(file))
    return command("replay", "--config", str(config), "--keep-open", str(file)).stdout_bytes.splitlines()


def check_equal(stage: Stage, config: Path, file: Path) -> None:
    replayed = recorded(config, file)
    assert stage.published() == Outputs.of(replayed)
    letters = [value for value in replayed if b'"trimtab.rejected.v1"' in value]
    assert sorted(stage.values(stage.topics.dead_letter)) == sorted(letters)


def test_a_replay_of_the_record_repeats_all_that_was_odd(stage: Stage, warm: Warm, tmp_path: Path):
    stage.repartition(2)
    config = stage.settings(controller__max_record_bytes=MAX_RECORD_BYTES)
    stage.send([pause(paused=True, time_s=START_S)], to=stage.topics.control)
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
            stage.send([pause(paused=False, time_s=late)], to=stage.topics.control)
            send_to(0, [*leaning(4), closing(4)])
            stage.wait_for(stage.topics.audit, 5, running=[run])
            send_to(0, played(range(5, 9)))
            stage.wait_for(stage.topics.audit, 9, running=[run])
    published = stage.published()
    assert published.actions_count > 0
    assert len(stage.rejected()) == refused_count
    assert {letter["reason"] for letter in stage.rejected()} >= {
        "wrong-partition",
        "too-large",
        "wrong-topic",
    }
    check_equal(stage, config, tmp_path / "run.ndjson.gz")
