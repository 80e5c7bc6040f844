"""Kafka goes away and comes back while the application runs, or is down when it, an executor or a collector starts."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from deploy.local.kafka import LocalKafka
from streaming.spark.failures import REPEATS_MAX
from tests.support.loads import played
from tests.support.processes import (
    TRIMTAB,
    Child,
    Warm,
    ask,
    is_ready,
    samples,
    wait_until_unready,
)
from tests.support.stage import Stage, replayed, staged

pytestmark = pytest.mark.live

RESTARTS = ("trimtab_query_restarts_total", frozenset[tuple[str, str]]())


@pytest.fixture
def stage(own_kafka: LocalKafka, tmp_path: Path) -> Iterator[Stage]:
    with staged(own_kafka.bootstrap, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka that may be stopped; a test that stops it starts it again."""
    with LocalKafka(tmp_path_factory.mktemp("own-kafka")) as running:
        yield running


def test_an_outage_loses_nothing_and_shows_in_readiness(own_kafka: LocalKafka, stage: Stage, warm: Warm):
    config = stage.settings()
    wanted = replayed(config, played(range(7)))
    assert wanted.actions_count == 2
    stage.send(played(range(2)))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        run.until(lambda: is_ready(run), "readiness")

        stage.close()
        own_kafka.stop()
        run.until(lambda: ask(f"{run.url}/readyz").status == 503, "unreadiness")
        run.until(lambda: samples(run.url)[RESTARTS] >= 1, "a restart of the query")
        assert ask(f"{run.url}/healthz").status == 200

        own_kafka.start()
        stage.send(played(range(2, 7)))
        stage.wait_for_outputs(wanted, running=[run])
        run.until(lambda: is_ready(run), "readiness again")
    assert stage.published() == wanted
    assert stage.rejected() == []


@pytest.mark.slow
def test_many_outages_at_one_batch_are_waited_out(own_kafka: LocalKafka, stage: Stage, warm: Warm):
    config = stage.settings()
    stage.send(played([0]))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 1, running=[run])
        stage.close()
        for count in range(1, REPEATS_MAX + 2):
            own_kafka.stop()
            run.until(lambda: samples(run.url)[RESTARTS] >= count, "a restart of the query")  # noqa: B023
            own_kafka.start()
            run.until(lambda: is_ready(run), "readiness again")
        stage.send(played([1]))
        stage.wait_for(stage.topics.audit, 2, running=[run])


@pytest.mark.slow
def test_brokers_that_are_down_at_the_start_are_waited_for(own_kafka: LocalKafka, stage: Stage, warm: Warm):
    stage.send(played([0]))
    stage.close()
    config = stage.settings()
    own_kafka.stop()
    with warm.run(config) as run:
        wait_until_unready(run, because="waiting for the brokers")
        assert own_kafka.bootstrap in ask(f"{run.url}/readyz").body
        own_kafka.start()
        stage.wait_for(stage.topics.audit, 1, running=[run])
        run.until(lambda: is_ready(run), "readiness")


@pytest.mark.slow
def test_an_executor_and_a_collector_wait_for_brokers_at_the_start(
    own_kafka: LocalKafka, stage: Stage, tmp_path: Path
):
    stage.close()
    config = stage.settings(base=f'[targets.east-1.kafka]\nbootstrap = "{stage.bootstrap}"\n')
    own_kafka.stop()
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                Child((*TRIMTAB, name, "kafka", "east-1", "--config", str(config)), tmp_path / f"{name}.log")
            )
            for name in ("execute", "collect")
        ]
        for child in children:
            wait_until_unready(child, because="waiting for the brokers")
            assert own_kafka.bootstrap in ask(f"{child.url}/readyz").body
        own_kafka.start()
        for child in children:
            child.until(partial(is_ready, child), "readiness")
            assert child.terminate() == 0
