"""Two controllers of one name: one leads, the other stands by and takes over, and nothing is lost, repeated or altered."""

import json
import signal
from contextlib import ExitStack

import pytest

from tests.live.driving import command, until, wait_until_unready
from tests.live.loads import played
from tests.live.stage import Stage, replayed
from tests.live.standing import RAISED, leads, pair, rounds, signalled, standing, stands_by

pytestmark = pytest.mark.live


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_standby_goes_on_where_a_leader_ended(stage: Stage, ending: signal.Signals) -> None:
    with ExitStack() as stack:
        leader, standby = pair(stage, stack)
        stage.send(played(range(3)))
        rounds(stage, 3, leader, standby)
        leader.process.send_signal(ending)
        until(lambda: leads(standby), what="the standby to lead", running=[standby])
        assert ("has said goodbye" in standby.output) == (ending == signal.SIGTERM)
        stage.send(played(range(3, 6)))
        rounds(stage, 6, standby)
        assert standby.terminate() == 0
    config = stage.directory / "trimtab.toml"
    assert stage.published() == replayed(config, played(range(6)))
    first, second = sorted(set(stage.epochs(stage.topics.audit)))
    assert stage.epochs(stage.topics.audit) == [first] * 3 + [second] * 3


@pytest.mark.slow
def test_a_leader_that_was_frozen_finds_its_successor_and_says_nothing_any_more(stage: Stage) -> None:
    with ExitStack() as stack:
        leader, standby = pair(stage, stack)
        stage.send(played(range(3)))
        rounds(stage, 3, leader, standby)
        signalled(leader, signal.SIGSTOP)
        until(lambda: leads(standby), what="the standby to lead", running=[standby])
        stage.send(played(range(3, 5)))
        rounds(stage, 5, standby)
        signalled(leader, signal.SIGCONT)
        until(lambda: stands_by(leader), what="the old leader to stand by", running=[leader, standby])
        stage.send(played(range(5, 7)))
        rounds(stage, 7, leader, standby)
        assert leads(standby)
        assert [each.terminate() for each in (leader, standby)] == [0, 0]
    assert stage.published() == replayed(stage.directory / "trimtab.toml", played(range(7)))
    first, second = sorted(set(stage.epochs(stage.topics.audit)))
    assert stage.epochs(stage.topics.audit) == [first] * 3 + [second] * 4


@pytest.mark.slow
def test_leadership_goes_to_and_fro_between_two_processes_and_nothing_is_lost_repeated_or_altered(
    stage: Stage,
) -> None:
    with ExitStack() as stack:
        one, other = pair(stage, stack)
        config = ("--config", str(stage.directory / "trimtab.toml"))
        for turn in range(4):
            stage.send(played(range(2 * turn, 2 * turn + 2)))
            rounds(stage, 2 * turn + 2, one, other)
            assert one.terminate() == 0
            one, other = other, standing(stage, stack, f"standby-{turn}")
            until(lambda: leads(one) and stands_by(other), what="both to have changed", running=[one, other])  # noqa: B023
        (shown,) = json.loads(command("status", *config, "-o", "json").output)
        assert shown["beat"]["instance"].endswith(f":{one.process.pid}")
        assert [each["instance"].rpartition(":")[2] for each in shown["standbys"]] == [str(other.process.pid)]
        assert [each.terminate() for each in (other, one)] == [0, 0]
    assert stage.published() == replayed(stage.directory / "trimtab.toml", played(range(8)))
    assert len(set(stage.epochs(stage.topics.audit))) == 4


@pytest.mark.slow
def test_an_upgrade_has_no_gap_and_the_older_build_then_says_that_it_could_not_lead(stage: Stage) -> None:
    with ExitStack() as stack:
        older, newer = pair(stage, stack, build=RAISED)
        config = ("--config", str(stage.directory / "trimtab.toml"))
        stage.send(played(range(2)))
        rounds(stage, 2, older, newer)
        assert older.terminate() == 0
        until(lambda: leads(newer), what="the new build to lead", running=[newer])
        stage.send(played(range(2, 4)))
        rounds(stage, 4, newer)
        older = standing(stage, stack, "older")
        wait_until_unready(older, because="newer")
        until(
            lambda: "COULD NOT LEAD" in command("status", *config).output,
            what="its next beat to say so",
            running=[older, newer],
        )
        assert older.terminate() == 0
    assert stage.published() == replayed(stage.directory / "trimtab.toml", played(range(4)))
