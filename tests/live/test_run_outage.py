"""Kafka goes away and comes back while the application runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.kafka import LocalKafka
from tests.live.driving import Warm, ask, samples, until
from tests.live.loads import played
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

RESTARTS = ("trimtab_query_restarts_total", frozenset[tuple[str, str]]())


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[LocalKafka]:
    """One that may be stopped."""
    with LocalKafka(tmp_path / "kafka") as running:
        yield running


def test_a_kafka_outage_loses_nothing_is_counted_and_shows_in_readiness(
    own_kafka: LocalKafka, warm: Warm, tmp_path: Path
) -> None:
    stage = Stage(own_kafka.bootstrap, "outage", tmp_path)
    stage.create_topics()
    config = stage.settings()
    wanted = replayed(config, played(range(7)))
    assert wanted.actions_count == 2
    stage.send(played(range(2)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        stage.wait_for(stage.topics.audit, 2, running=[run])
        until(lambda: ask(f"{run.url}/readyz").status == 200, what="readiness", running=[run])

        stage.close()
        own_kafka.stop()
        until(lambda: ask(f"{run.url}/readyz").status == 503, what="unreadiness", running=[run])
        until(lambda: samples(run.url)[RESTARTS] >= 1, what="a restart of the query", running=[run])
        assert ask(f"{run.url}/healthz").status == 200

        own_kafka.start()
        stage.send(played(range(2, 7)))
        stage.wait_for_outputs(wanted, running=[run])
        until(lambda: ask(f"{run.url}/readyz").status == 200, what="readiness again", running=[run])
        assert run.terminate() == 0
    assert stage.published() == wanted
    assert stage.rejected() == []
    stage.close()
