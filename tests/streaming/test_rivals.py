"""What a process says of the controller that leads in its place: which one, since when, and with which checkpoint."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from streaming.contract.beat import Beat
from streaming.controller import rivals
from streaming.controller.application import Application
from streaming.controller.leadership import Leading
from streaming.controller.rivals import (
    describe_last,
    describe_rival,
    find_leader,
    hear_leader,
    leader_text,
    refuse_company,
)
from streaming.process.exits import Refused
from streaming.settings import ControllerSettings, Settings, SparkSettings
from tests.streaming.records import BEAT, beat_on_topic

SETTINGS = Settings(
    controller=ControllerSettings(name="main", session_s=1.0), spark=SparkSettings(checkpoint="/here")
)
LEADER = msgspec.structs.replace(BEAT, epoch=1_800_000_000, checkpoint="/data/main", session_s=1.0)


def beat(**fields: Any) -> Beat:
    return msgspec.structs.replace(LEADER, **fields)


def heard(monkeypatch: pytest.MonkeyPatch, *reads: list[Beat]) -> None:
    """What the topic of beats holds at each read; the last one holds from then on."""
    left = list(reads)

    def records() -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [beat_on_topic(each, at_ms=0) for each in found]

    side = SimpleNamespace(
        reader=lambda *_, **__: nullcontext(SimpleNamespace(read_to_end=lambda: iter(records())))
    )
    monkeypatch.setattr(rivals, "output_side", lambda _settings: side)


@pytest.mark.parametrize(
    ("beats", "above", "found"),
    [
        ([], 0, None),
        ([LEADER], 0, "a:1"),
        ([LEADER, beat(instance="b:2", epoch=1_800_000_009), LEADER], 0, "b:2"),
        ([LEADER], 1_800_000_000, None),
        ([beat(name="other"), beat(role="standby")], 0, None),
        ([LEADER, beat(is_leaving=True)], 0, None),
    ],
)
def test_who_leads_is_the_process_with_the_highest_epoch_that_has_not_left(
    monkeypatch: pytest.MonkeyPatch, beats: list[Beat], above: int, found: str | None
):
    heard(monkeypatch, beats)
    leader = find_leader(SETTINGS, above=above)
    assert (leader.instance if leader else None) == found


@pytest.mark.parametrize(
    ("beats", "runs"),
    [([[LEADER], [beat(at="later")]], True), ([[LEADER]], False), ([[LEADER], []], False), ([[]], False)],
    ids=["it beats on", "it was killed", "its beat is gone", "nobody"],
)
def test_another_one_runs_only_if_a_new_beat_of_it_comes(
    monkeypatch: pytest.MonkeyPatch, beats: list[list[Beat]], *, runs: bool
):
    heard(monkeypatch, *beats)
    assert (hear_leader(SETTINGS) is not None) is runs


def test_without_the_topic_of_beats_nobody_is_named(monkeypatch: pytest.MonkeyPatch):
    def refused(_settings: Settings) -> None:
        raise Refused("no such topic")

    monkeypatch.setattr(rivals, "output_side", refused)
    assert find_leader(SETTINGS, wait_s=60.0) is None


@pytest.mark.parametrize(
    ("beats", "said"),
    [
        ([], []),
        ([beat(is_leaving=True)], []),
        (
            [LEADER],
            [
                "controller main takes over from the process that led: a:1, since 2027-01-15T08:00:00Z, with the checkpoint /data/main"
            ],
        ),
    ],
    ids=["nobody led", "it has left", "it leads"],
)
def test_a_controller_that_takes_over_logs_from_whom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, beats: list[Beat], said: list[str]
):
    heard(monkeypatch, beats)
    leading = SimpleNamespace(
        taken_over=lambda _: nullcontext(SimpleNamespace(epoch=1_800_000_009)), lead=lambda *_, **__: None
    )
    starting = SimpleNamespace(_settings=SETTINGS, _wait_out=None, _skip_lost=False)
    Application._lead(cast("Application", starting), cast("Leading", leading))
    assert caplog.messages == said


@pytest.mark.parametrize(
    "reads",
    [
        [[beat(name="other", session_s=0.1)]],
        [[LEADER], [beat(at="later")]],
        [[beat(name="other", is_leaving=True)]],
        [[beat(name="other", role="standby")], [beat(name="other", role="standby", at="later")]],
    ],
    ids=["it was killed", "it is this one", "it has left", "it stands by"],
)
def test_a_start_is_not_kept_by_what_does_not_lead_on_its_topics(
    monkeypatch: pytest.MonkeyPatch, reads: list[list[Beat]]
):
    heard(monkeypatch, *reads)
    refuse_company(SETTINGS)


def test_a_controller_does_not_start_where_one_of_another_name_leads_on_its_topics(
    monkeypatch: pytest.MonkeyPatch,
):
    other = beat(name="other")
    heard(monkeypatch, [LEADER, other], [LEADER, msgspec.structs.replace(other, at="later")])
    with pytest.raises(Refused, match="topics of its own") as refused:
        refuse_company(SETTINGS)
    assert 'controller "other" runs on the same topics (a:1, since 2027-01-15' in refused.value.message


OTHER = beat(name="other")
LATER = beat(name="other", at="later")
OWN = beat(epoch=1_900_000_000)


@pytest.mark.parametrize(
    ("reads", "gives_way"),
    [
        ([[OTHER, OWN], [OTHER, OWN], [OTHER, OWN, LATER]], True),
        ([[OWN, OTHER], [OWN, OTHER], [OWN, OTHER, LATER]], False),
        ([[], [OTHER], [OTHER, OWN], [OTHER, OWN], [OTHER, OWN, LATER]], True),
        ([[LEADER, OTHER, OWN], [LEADER, OTHER, OWN], [OTHER, OWN, LATER]], True),
        ([[OTHER, OWN]], False),
    ],
    ids=["after", "before", "neither was there at the first look", "a predecessor's do not count", "killed"],
)
def test_of_two_that_start_together_the_one_whose_beats_begin_later_gives_way(
    monkeypatch: pytest.MonkeyPatch, reads: list[list[Beat]], *, gives_way: bool
):
    heard(monkeypatch, *reads)
    with pytest.raises(Refused, match="topics of its own") if gives_way else nullcontext():
        refuse_company(SETTINGS, epoch=OWN.epoch)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([], ""),
        ([beat(checkpoint="/here")], ""),
        (
            [beat(is_leaving=True)],
            "It ran last as a:1, since 2027-01-15T08:00:00Z, with the checkpoint /data/main",
        ),
    ],
)
def test_a_start_without_its_checkpoint_hears_where_the_last_one_was(
    monkeypatch: pytest.MonkeyPatch, last: list[Beat], said: str
):
    heard(monkeypatch, last)
    assert describe_last(SETTINGS).strip(". ") == said


def test_the_message_names_both_checkpoints_and_what_to_do():
    said = describe_rival(LEADER, SETTINGS)
    assert (
        "another one of this name runs (a:1, since 2027-01-15T08:00:00Z, with the checkpoint /data/main)"
        in said
    )
    assert "the checkpoint of this one, /here." in said
    assert "a controller.name, [topics] and a checkpoint of its own" in said
    assert "--fresh" not in said, "it would end the one that runs"
    assert leader_text(beat(epoch=7, checkpoint="")) == "a:1, epoch 7", "of an older version"
