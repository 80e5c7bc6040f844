"""A rebuild on Pulsar: what a cut batch has published stays, and the first summary names the rounds that never come."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from tests.live.crashing import KILLED, start_dying
from tests.live.loads import played
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.stage import PulsarStage
from tests.live.rebuilding import controller, rebuilt, settings
from tests.live.stage import Outputs, replayed
from tests.live.standing import rounds

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1200)]

DYING = "tests.live.pulsar.dying"


@pytest.fixture
def on_pulsar(pulsar: LocalPulsar, tmp_path: Path) -> Iterator[PulsarStage]:
    """A stage with both sides on Pulsar."""
    made = PulsarStage.of(Lab(pulsar), tmp_path)
    yield made
    made.close()


def rounds_of(values: list[bytes]) -> list[int]:
    return [json.loads(value)["data"]["round"] for value in values]


def cut(stage: PulsarStage, point: str) -> tuple[Outputs, Outputs]:
    """What two controllers publish: one dies at the point of its first batch, of three rounds, and the other one rebuilds.

    Returned with what would have been published if none had died. The batch refuses a record.
    """
    stage.send(played(range(3)))
    stage.send_raw(b"east-1", b"no event")
    stage.flush()
    with start_dying(stage, settings(stage, "first"), [f"{point}:0"], program=DYING) as dying:
        assert dying.wait() == KILLED, dying.output
    with ExitStack() as stack:
        second = controller(stage, stack, "second", controller__rebuild=True)
        stage.send(played(range(3, 8)))
        rounds(stage, 5, second)
        assert second.terminate() == 0
    wanted = replayed(stage.directory / "first.toml", played(range(8)))
    return stage.published(), wanted


@pytest.mark.parametrize("point", ["begun", "before-finish"])
def test_a_record_that_a_cut_batch_refused_has_one_dead_letter(on_pulsar: PulsarStage, point: str) -> None:
    cut(on_pulsar, point)
    (letter,) = on_pulsar.rejected()
    assert base64.b64decode(str(letter["head_base64"])) == b"no event"


def test_an_action_that_is_out_stands_and_rests_as_if_its_batch_were_whole(on_pulsar: PulsarStage) -> None:
    found, wanted = cut(on_pulsar, "first-message")
    assert found.actions == wanted.actions
    (said,) = rebuilt(found)
    (numbers,), (all_numbers,) = map(rounds_of, found.rounds.values()), map(rounds_of, wanted.rounds.values())
    assert said["unpublished_rounds"] == all_numbers[: len(all_numbers) - len(numbers)]
    assert len(said["unpublished_rounds"]) > 0
    assert numbers == all_numbers[-len(numbers) :]


def test_an_action_that_is_not_out_was_never_decided_and_the_next_round_decides_anew(
    on_pulsar: PulsarStage,
) -> None:
    found, wanted = cut(on_pulsar, "begun")
    (actions,), (all_actions,) = found.actions.values(), wanted.actions.values()
    (said,) = rebuilt(found)
    first, first_wanted = json.loads(actions[0])["data"], json.loads(all_actions[0])["data"]
    assert first_wanted["round"] in said["unpublished_rounds"]
    assert first["round"] == said["unpublished_rounds"][-1] + 1
    assert first["bundle"] == first_wanted["bundle"]
    targets = [json.loads(each)["data"]["bundle"] for each in actions]
    assert len(targets) == len(set(targets)), "a bundle that was told to move rests"
