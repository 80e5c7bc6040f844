"""A standby whose topics are on Pulsar: it takes over from a leader that was killed and from one that stopped."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.driving import until
from tests.live.loads import played
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.stage import replayed
from tests.live.standing import leads, pair, rounds, standing, stands_by

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def on_pulsar(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage with both sides on Pulsar."""
    made = PulsarStage.of(Lab(pulsar), tmp_path)
    yield made
    made.close()


def test_leadership_is_given_up_and_lost_and_nothing_is_lost_repeated_or_altered(
    on_pulsar: PulsarStage,
) -> None:
    stage = on_pulsar
    with ExitStack() as stack:
        one, other = pair(stage, stack)
        stage.send(played(range(2)))
        rounds(stage, 2, one, other)
        assert one.terminate() == 0
        one = standing(stage, stack, "again")
        until(lambda: leads(other) and stands_by(one), what="both to have changed", running=[one, other])
        stage.send(played(range(2, 4)))
        rounds(stage, 4, one, other)
        other.process.send_signal(signal.SIGKILL)
        until(lambda: leads(one), what="the first one to lead again", running=[one])
        stage.send(played(range(4, 6)))
        rounds(stage, 6, one)
        third = standing(stage, stack, "third")
        until(lambda: stands_by(third), what="a third one to stand by", running=[one, third])
        assert one.terminate() == 0
        until(lambda: leads(third), what="the third one to lead", running=[third])
        stage.send(played(range(6, 8)))
        rounds(stage, 8, third)
        assert third.terminate() == 0
    assert stage.published() == replayed(stage.directory / "trimtab.toml", played(range(8)))
    assert len(set(stage.epochs(stage.topics.audit))) == 4
