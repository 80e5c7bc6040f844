"""Stopping, going on, and handing over: what is remembered, what a successor does, what is left behind."""

import pytest

from streaming.process.exits import FENCED, REFUSED
from tests.live.checkpoints import flatten, newest_start
from tests.live.driving import TRIMTAB, Child, Warm, ask, query_failures, until
from tests.live.loads import closing, leaning, played
from tests.live.stage import QUICK, Stage, replayed

pytestmark = pytest.mark.live


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

    flatten(stage.checkpoint)
    stage.send(played([2]))
    with warm.start(*arguments) as second:
        stage.wait_for(stage.topics.actions, 1, running=[second])
        stage.send(played(range(3, 5)))
        stage.wait_for(stage.topics.audit, 5, running=[second])
        until(
            lambda: (
                [path.name for path in stage.checkpoint.iterdir()] == [newest_start(stage.checkpoint).name]
            ),
            what="the checkpoint of before, which lay there without a directory of its own, to be gone",
            running=[second],
        )
        with Child((*TRIMTAB, *arguments), stage.directory / "successor.log") as successor:
            assert second.wait() == FENCED
            assert "another controller" in second.output
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
    epochs = stage.epochs(stage.topics.audit)
    first, second, third = sorted(set(epochs))
    assert epochs == [first, first, second, second, second, third]
    assert stage.epochs(stage.topics.actions) == [second, third]


@pytest.mark.slow
def test_a_newcomer_that_is_refused_leaves_the_running_controller_running(stage: Stage, warm: Warm) -> None:
    config = stage.settings()
    arguments = ("run", "--config", str(config), "--from", "earliest")
    stage.send(played(range(2)))
    with warm.start(*arguments) as running:
        stage.wait_for(stage.topics.audit, 2, running=[running])
        other = ("--checkpoint", str(stage.directory / "other"))
        with Child((*TRIMTAB, *arguments, *other), stage.directory / "newcomer.log") as newcomer:
            assert newcomer.wait() == REFUSED
            assert "the checkpoint was deleted or replaced by a new one" in newcomer.output
        stage.send(played(range(2, 4)))
        stage.wait_for(stage.topics.audit, 4, running=[running])
        assert running.terminate() == 0
        assert not query_failures(running.output)
    assert stage.published() == replayed(config, played(range(4)))
    assert len(set(stage.epochs(stage.topics.audit))) == 1


@pytest.mark.slow
def test_a_checkpoint_that_is_not_on_a_disk_is_handed_over_from_start_to_start(
    stage: Stage, warm: Warm
) -> None:
    """A file system of Hadoop's that trimtab does not take for a disk, although it keeps its files on one."""
    mount = f'"spark.hadoop.fs.viewfs.mounttable.store.link./disk" = "file://{stage.directory}"'
    config = stage.settings(
        base=f"{QUICK}\n[spark.extra]\n{mount}\n", spark__checkpoint="viewfs://store/disk/checkpoint"
    )
    for number in range(3):
        stage.send(played([number]))
        with warm.start("run", "--config", str(config), "--from", "earliest") as run:
            stage.wait_for(stage.topics.audit, number + 1, running=[run])
            until(
                lambda: len(list(stage.checkpoint.glob("start-*"))) == 1,
                what="older checkpoints to be gone",
                running=[run],
            )
            assert run.terminate() == 0
            assert not query_failures(run.output)
    assert stage.published() == replayed(config, played(range(3)))


@pytest.mark.slow
def test_a_superseded_controller_that_is_to_stay_leaves_its_successor_alone(stage: Stage, warm: Warm) -> None:
    config = stage.settings(controller__when_refused="stay")
    arguments = ("run", "--config", str(config), "--from", "earliest")
    stage.send(played([0]))
    with warm.start(*arguments) as first:
        stage.wait_for(stage.topics.audit, 1, running=[first])
        with Child((*TRIMTAB, *arguments), stage.directory / "successor.log") as successor:
            until(
                lambda: "another controller" in ask(f"{first.url}/readyz").body,
                what="the first one to say that it was superseded",
                running=[first, successor],
            )
            assert ask(f"{first.url}/readyz").status == 503
            assert ask(f"{first.url}/healthz").status == 200
            stage.send(played(range(1, 4)))
            stage.wait_for(stage.topics.audit, 4, running=[first, successor])
            assert first.terminate() == FENCED
            assert ask(f"{successor.url}/readyz").status == 200
            assert successor.terminate() == 0
    epochs = stage.epochs(stage.topics.audit)
    assert epochs == [epochs[0], *[epochs[1]] * 3]
    assert epochs[0] < epochs[1]
