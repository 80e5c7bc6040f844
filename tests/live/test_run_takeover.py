"""Stopping, going on, handing over and standing by: what is remembered, what a successor does, what is left behind."""

import json
import shutil
import signal
import time
from collections import Counter
from contextlib import ExitStack
from socket import gethostname

import pytest

from state.outputs import rfc3339
from streaming.process.exits import FENCED, REFUSED
from tests.support.controllers import RAISED, leads, pair, signalled, standing, stands_by
from tests.support.loads import LENGTH_S, START_S, closing, leaning, played
from tests.support.processes import (
    TRIMTAB,
    Child,
    Warm,
    ask,
    cold,
    command,
    is_ready,
    query_failures,
    until,
    wait_until_unready,
)
from tests.support.stage import (
    QUICK,
    Stage,
    flatten,
    newest_start,
    read_manifest,
    remember_from_ever,
    replayed,
)

pytestmark = pytest.mark.live


def test_hits_survive_a_stop_and_a_successor_that_ends_the_idle_controller(stage: Stage, warm: Warm):
    config = stage.settings()
    arguments = ("run", "--config", str(config), "--from", "earliest")
    wanted = replayed(config, played(range(6)))
    assert wanted.actions_count == 2, "the third and the sixth hit fire"

    stage.send(played(range(2)))
    with warm.run(config) as first:
        stage.wait_for(stage.topics.audit, 2, running=[first])
    assert stage.values(stage.topics.actions) == []

    flatten(stage.checkpoint)
    stage.send(played([2]))
    with warm.start(*arguments) as second:
        stage.wait_for(stage.topics.actions, 1, running=[second])
        stage.send(played(range(3, 5)))
        stage.wait_for(stage.topics.audit, 5, running=[second])
        second.until(
            lambda: list(stage.checkpoint.iterdir()) == [newest_start(stage.checkpoint)],
            "the checkpoint of before, which lay there without a directory of its own, to be gone",
        )
        with cold(config, stage.directory / "successor.log") as successor:
            assert second.wait() == FENCED
            assert "another controller" in second.output
            assert f"It was {gethostname()}:" in second.output
            assert f"takes over from the process that led: {gethostname()}:" in successor.output
            stage.send([*leaning(5), closing(5)])
            stage.wait_for_outputs(wanted, running=[successor])
            successor.until(lambda: is_ready(successor), "the successor to be ready")
            assert successor.terminate() == 0
            until(successor.is_gone, what="the end of all its children", timeout_s=20)

    assert stage.published() == wanted
    epochs = stage.epochs(stage.topics.audit)
    first, second, third = sorted(set(epochs))
    assert epochs == [first, first, second, second, second, third]
    assert stage.epochs(stage.topics.actions) == [second, third]


@pytest.mark.slow
def test_a_newcomer_that_is_refused_leaves_the_running_controller_running(stage: Stage, warm: Warm):
    config = stage.settings()
    arguments = ("run", "--config", str(config), "--from", "earliest")
    stage.send(played(range(2)))
    with warm.start(*arguments) as running:
        stage.wait_for(stage.topics.audit, 2, running=[running])
        other = ("--checkpoint", str(stage.directory / "other"))
        with Child((*TRIMTAB, *arguments, *other), stage.directory / "newcomer.log") as newcomer:
            assert newcomer.wait() == REFUSED
            assert f"another one of this name runs ({gethostname()}:" in newcomer.output
            assert f"the checkpoint {stage.checkpoint})" in newcomer.output
            assert "give this one a controller.name, [topics] and a checkpoint of its own" in newcomer.output
        night = (*TRIMTAB, *arguments, *other, "--name", "night")
        with Child(night, stage.directory / "night.log") as newcomer:
            assert newcomer.wait() == REFUSED
            assert f'controller "{stage.name}" runs on the same topics ({gethostname()}:' in newcomer.output
        stage.send(played(range(2, 4)))
        stage.wait_for(stage.topics.audit, 4, running=[running])
        assert running.terminate() == 0
        assert not query_failures(running.output)
    assert stage.published() == replayed(config, played(range(4)))
    assert len(set(stage.epochs(stage.topics.audit))) == 1


@pytest.mark.slow
def test_of_two_controllers_that_start_together_on_the_same_topics_one_ends(stage: Stage):
    config = stage.settings()
    stage.create_topics()
    asked = (*TRIMTAB, "run", "--config", str(config), "--from", "earliest")
    other = ("--name", "night", "--checkpoint", str(stage.directory / "other"))
    with (
        Child(asked, stage.directory / "first.log") as first,
        Child((*asked, *other), stage.directory / "second.log") as second,
    ):
        both = (first, second)
        until(lambda: any(each.process.poll() is not None for each in both), what="the end of one")
        ended, running = both if first.process.poll() is not None else (second, first)
        assert ended.wait() == REFUSED
        assert "runs on the same topics" in ended.output
        until(lambda: "running, set to mode" in running.output, what="the other to run", running=[running])


@pytest.mark.slow
def test_a_checkpoint_that_is_not_on_a_disk_is_handed_over(stage: Stage, warm: Warm):
    """A file system of Hadoop's that trimtab does not take for a disk, although it keeps its files on one."""
    mount = f'"spark.hadoop.fs.viewfs.mounttable.store.link./disk" = "file://{stage.directory}"'
    config = stage.settings(
        base=f"{QUICK}\n[spark.extra]\n{mount}\n", spark__checkpoint="viewfs://store/disk/checkpoint"
    )
    remember_from_ever(config, stage.checkpoint)
    for number in range(3):
        stage.send(played([number]))
        with warm.start("run", "--config", str(config), "--from", "earliest") as run:
            stage.wait_for(stage.topics.audit, number + 1, running=[run])
            run.until(
                lambda: len(list(stage.checkpoint.glob("start-*"))) == 1, "older checkpoints to be gone"
            )
            assert run.terminate() == 0
            assert not query_failures(run.output)
    assert stage.published() == replayed(config, played(range(3)))


@pytest.mark.slow
def test_a_superseded_controller_that_is_to_stay_leaves_its_successor_alone(stage: Stage, warm: Warm):
    config = stage.settings(controller__when_refused="stay")
    arguments = ("run", "--config", str(config), "--from", "earliest")
    stage.send(played([0]))
    with warm.start(*arguments) as first:
        stage.wait_for(stage.topics.audit, 1, running=[first])
        with cold(config, stage.directory / "successor.log") as successor:
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
            assert is_ready(successor)
            assert successor.terminate() == 0
    epochs = stage.epochs(stage.topics.audit)
    assert epochs == [epochs[0], *[epochs[1]] * 3]
    assert epochs[0] < epochs[1]


@pytest.mark.slow
def test_a_standby_goes_on_where_a_leader_was_killed(stage: Stage):
    with ExitStack() as stack:
        leader, standby = pair(stage, stack)
        play(stage, range(3), leader, standby)
        leader.process.send_signal(signal.SIGKILL)
        standby.until(lambda: leads(standby), "the standby to lead")
        assert "has said goodbye" not in standby.output
        play(stage, range(3, 6), standby)
        assert standby.terminate() == 0
    assert_as_replayed(stage, 3, 3)


def play(stage: Stage, numbers: range, *running: Child) -> None:
    """Play these rounds, the next ones to come, and wait for them."""
    stage.send(played(numbers))
    stage.wait_for(stage.topics.audit, numbers.stop, running=running)


def assert_as_replayed(stage: Stage, *led: int) -> None:
    """Nothing was lost, repeated or altered, and each leader has led so many rounds."""
    config = stage.directory / "trimtab.toml"
    assert stage.published() == replayed(config, played(range(sum(led))))
    epochs = stage.epochs(stage.topics.audit)
    assert epochs == sorted(epochs)
    assert tuple(Counter(epochs).values()) == led


@pytest.mark.slow
def test_a_leader_that_was_frozen_finds_its_successor_and_says_nothing_any_more(stage: Stage):
    with ExitStack() as stack:
        leader, standby = pair(stage, stack)
        play(stage, range(3), leader, standby)
        signalled(leader, signal.SIGSTOP)
        standby.until(lambda: leads(standby), "the standby to lead")
        play(stage, range(3, 5), standby)
        signalled(leader, signal.SIGCONT)
        until(lambda: stands_by(leader), what="the old leader to stand by", running=[leader, standby])
        play(stage, range(5, 7), leader, standby)
        assert leads(standby)
        assert [each.terminate() for each in (leader, standby)] == [0, 0]
    assert_as_replayed(stage, 3, 4)


@pytest.mark.slow
def test_leadership_goes_to_and_fro_between_two_processes(stage: Stage):
    with ExitStack() as stack:
        one, other = pair(stage, stack)
        config = ("--config", str(stage.directory / "trimtab.toml"))
        for turn in range(4):
            play(stage, range(2 * turn, 2 * turn + 2), one, other)
            assert one.terminate() == 0
            one, other = other, standing(stage, stack, f"standby-{turn}")
            until(lambda: leads(one) and stands_by(other), what="both to have changed", running=[one, other])  # noqa: B023
            assert "has said goodbye" in one.output
        (shown,) = json.loads(command("status", *config, "-o", "json").output)
        assert shown["beat"]["instance"].endswith(f":{one.process.pid}")
        assert [each["instance"].rpartition(":")[2] for each in shown["standbys"]] == [str(other.process.pid)]
        assert [each.terminate() for each in (other, one)] == [0, 0]
    assert_as_replayed(stage, 2, 2, 2, 2)


@pytest.mark.slow
def test_after_an_upgrade_the_older_build_says_that_it_could_not_lead(stage: Stage):
    with ExitStack() as stack:
        older, newer = pair(stage, stack, build=RAISED)
        config = ("--config", str(stage.directory / "trimtab.toml"))
        play(stage, range(2), older, newer)
        assert older.terminate() == 0
        newer.until(lambda: leads(newer), "the new build to lead")
        play(stage, range(2, 4), newer)
        older = standing(stage, stack, "older")
        wait_until_unready(older, because="newer")
        until(
            lambda: "COULD NOT LEAD" in command("status", *config).output,
            what="its next beat to say so",
            running=[older, newer],
        )
        assert older.terminate() == 0
    assert_as_replayed(stage, 2, 2)


def test_after_fresh_nothing_of_the_past_is_decided_and_no_bundle_moves_within_its_cooldown(
    stage: Stage, warm: Warm
):
    """Event time runs ahead of the clock here, so that the test need not wait for the cooldown."""
    cooldown_s = 12 * LENGTH_S
    ahead = QUICK.replace("length_s = 10", "length_s = 10\nmax_ahead_s = 3600")
    config = stage.settings(base=f"{ahead}\n[pulsar.guards]\nbundle_cooldown_s = {cooldown_s}\n")
    now = int(time.time() - START_S) // LENGTH_S
    stage.send(played(range(now - 6, now)))
    with warm.run(config) as run:
        stage.wait_for(stage.topics.audit, 6, running=[run])
    before = stage.data(stage.topics.actions)
    assert before

    shutil.rmtree(stage.checkpoint)
    assert "--fresh" in warm.refused(config)
    rounds_count = 30
    stage.send(played(range(now + 3, now + rounds_count)))
    with warm.run(config, "--fresh") as run:
        until(lambda: len(stage.data(stage.topics.actions)) > len(before), what="an unload", running=[run])
        stage.wait_for(stage.topics.audit, 6 + 6 + rounds_count - 3, running=[run])
        assert "the first round that acts" in run.output

    start_ms = read_manifest(newest_start(stage.checkpoint)).memory_start.at_ms
    again = stage.data(stage.topics.actions)[len(before) :]
    ends_ms = {number: (number + 1) * LENGTH_S * 1000 for number in (each["round"] for each in again)}
    assert min(ends_ms.values()) > start_ms + cooldown_s * 1000
    held = [
        each
        for each in stage.data(stage.topics.audit, "round.v1")[6:]
        if each["candidates"]["outcomes"].get("starting")
    ]
    assert held, "the policies go on counting"

    events = [*played(range(now - 6, now)), *played(range(now + 3, now + rounds_count))]
    alike = replayed(config, events, "--started", rfc3339(start_ms), "--fresh")
    assert stage.published().rounds["east-1"][6:] == alike.rounds["east-1"]
    assert stage.published().actions["east-1"][len(before) :] == alike.actions["east-1"]
