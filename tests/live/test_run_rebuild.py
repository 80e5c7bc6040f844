"""Two controllers that share no checkpoint: the second rebuilds its memory, and nothing is lost, repeated or altered."""

import signal
from contextlib import ExitStack

import pytest

from streaming.process.exits import REFUSED
from tests.live.driving import command, until
from tests.live.loads import closing, leaning, played
from tests.live.rebuilding import assert_same, controller, rebuilt, settings
from tests.live.stage import Stage, replayed
from tests.live.standing import RAISED, SESSION_S, leads, rounds, signalled, stands_by

pytestmark = pytest.mark.live


def test_a_start_with_another_checkpoint_rebuilds_what_a_killed_controller_knew(stage: Stage) -> None:
    with ExitStack() as stack:
        first = controller(stage, stack, "first")
        *reports, tick = played(range(5))
        waiting, *others = leaning(5)
        stage.send([*reports, waiting, tick])
        rounds(stage, 5, first)
        signalled(first, signal.SIGKILL)
        stage.send([*others, closing(5), *played([6])])
        second = controller(stage, stack, "second", controller__rebuild=True)
        rounds(stage, 6, second)
        stage.send(played(range(7, 10)))
        rounds(stage, 9, second)
        assert second.terminate() == 0
        again = controller(stage, stack, "second")
        stage.send(played(range(10, 12)))
        rounds(stage, 11, again)
        assert again.terminate() == 0
    found = stage.published()
    assert_same(found, replayed(stage.directory / "first.toml", played(range(12))))
    (said,) = rebuilt(found)
    assert said["unpublished_rounds"] == []
    refused = command("run", "--config", str(stage.directory / "first.toml"), code=REFUSED)
    assert "a query that is over" in refused.output


@pytest.mark.slow
def test_standbys_with_a_checkpoint_each_take_over_from_each_other(stage: Stage) -> None:
    standby = {
        "controller__standby": True,
        "controller__session_s": SESSION_S,
        "controller__rebuild": True,
    }
    with ExitStack() as stack:
        one = controller(stage, stack, "one", **standby)
        until(lambda: leads(one), what="one to lead", running=[one])
        other = controller(stage, stack, "other", **standby)
        until(lambda: stands_by(other), what="the other to stand by", running=[one, other])
        stage.send(played(range(4)))
        rounds(stage, 4, one, other)
        signalled(one, signal.SIGKILL)
        until(lambda: leads(other), what="the other to lead", running=[other])
        stage.send(played(range(4, 6)))
        rounds(stage, 6, other)
        one = controller(stage, stack, "one", **standby)
        until(lambda: stands_by(one), what="the first to stand by", running=[one, other])
        assert other.terminate() == 0
        other = controller(stage, stack, "another", **standby)
        until(lambda: leads(one) and stands_by(other), what="both to have changed", running=[one, other])
        stage.send(played(range(6, 8)))
        rounds(stage, 8, one, other)
        assert [each.terminate() for each in (other, one)] == [0, 0]
    found = stage.published()
    assert_same(found, replayed(stage.directory / "one.toml", played(range(8))))
    assert len(rebuilt(found)) == 2


@pytest.mark.slow
def test_the_way_back_from_a_newer_layout_of_the_state_is_a_rebuild(stage: Stage) -> None:
    shared = {"spark__checkpoint": str(stage.checkpoint)}
    with ExitStack() as stack:
        newer = controller(stage, stack, "newer", RAISED, **shared)
        stage.send(played(range(4)))
        rounds(stage, 4, newer)
        assert newer.terminate() == 0
        config = settings(stage, "older", **shared)
        assert "newer trimtab" in command("run", "--config", str(config), code=REFUSED).output
        older = controller(stage, stack, "older", **shared, controller__rebuild=True)
        stage.send(played(range(4, 8)))
        rounds(stage, 8, older)
        assert older.terminate() == 0
    found = stage.published()
    assert_same(found, replayed(stage.directory / "older.toml", played(range(8))))
    assert len(rebuilt(found)) == 1
