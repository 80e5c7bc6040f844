"""Stopping, going on, and handing over: what is remembered, what a successor does, what is left behind."""

import pytest

from streaming.exits import FENCED
from tests.live.driving import TRIMTAB, Child, Warm, ask, until
from tests.live.loads import closing, leaning, played
from tests.live.stage import Stage, replayed

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_hits_survive_a_stop_and_a_successor_ends_the_idle_first_controller_and_goes_on_with_its_memory(
    stage: Stage, warm: Warm
) -> None:
    config = stage.settings()
    arguments = ("run", "--config", str(config), "--from", "earliest")
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2, "the third and the sixth hit fire"

    stage.send(played(range(2)))
    with warm.start(*arguments) as first:
        stage.wait_for(stage.topics.audit, 2, running=[first])
        assert first.terminate() == 0
    assert stage.values(stage.topics.actions) == []

    stage.send(played([2]))
    with warm.start(*arguments) as second:
        stage.wait_for(stage.topics.actions, 1, running=[second])
        stage.send(played(range(3, 5)))
        stage.wait_for(stage.topics.audit, 5, running=[second])
        with Child((*TRIMTAB, *arguments), stage.directory / "successor.log") as successor:
            assert second.wait() == FENCED
            assert "another controller" in second.said
            stage.send([*leaning(5), closing(5)])
            stage.wait_for_outputs(wanted, running=[successor])
            until(
                lambda: ask(f"{successor.url}/readyz").status == 200,
                what="the successor to be ready",
                running=[successor],
            )
            assert successor.terminate() == 0
            until(successor.is_gone, what="the end of all its children", timeout_s=20)

    assert stage.published() == wanted
    assert stage.epochs(stage.topics.audit) == [1, 1, 2, 2, 2, 3]
    assert stage.epochs(stage.topics.actions) == [2, 3]
