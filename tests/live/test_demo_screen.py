"""The demo's screen says all that there is room for: whole reasons, a command to paste, what people changed meanwhile."""

import re
import shlex
import signal
import subprocess
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from deploy.local.demo import wording
from deploy.local.demo.screen import render
from deploy.local.demo.story import Story
from deploy.local.demo.topics import Closed
from deploy.local.demo.wording import Lines
from state.events import Control
from state.overlay import ControlData, MaintenanceWindow
from tests.live.rehearsal import COMMAND, START_MS, play
from tests.live.terminal import ROOT, on_terminal
from tests.streaming.summaries import CONTROL


def drawn(story: Story, *, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=StringIO())
    lines = console.render_lines(render(story, width=width, height=height), pad=False)
    return ["".join(segment.text for segment in line).strip(" │") for line in lines]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 50)])
def test_a_command_to_paste_stands_whole_on_a_line_of_its_own(width: int, height: int):
    story, _ = play(9)
    assert COMMAND in drawn(story, width=width, height=height)


@pytest.mark.parametrize(("width", "height", "shown_count"), [(80, 24, 0), (100, 30, 2), (100, 50, 7)])
def test_where_there_is_room_reasons_are_shown_whole_the_newest_first(
    width: int, height: int, shown_count: int
):
    story, _ = play(60)
    text = " ".join(drawn(story, width=width, height=height))
    newest = list(story.decisions)[::-1][:shown_count]
    assert all(wording.reason(decision) in text for decision in newest)


NOW = datetime.fromtimestamp(START_MS / 1000, UTC)
DRAINED = {"broker-2:8080": MaintenanceWindow(since=NOW)}
POLICY = {"pulsar": {"fleet_planner": {"acceptable_spread_points": 5}}}


@pytest.mark.parametrize(
    ("overlays", "told"),
    [
        ([ControlData(paused=True)], ["paused"]),
        ([ControlData(mode="dry-run", approval="required")], ["mode dry-run, approval required"]),
        ([ControlData(drained_brokers=DRAINED)], ["drain of broker-2:8080"]),
        ([ControlData(settings=POLICY)], ["pulsar.fleet_planner.acceptable_spread_points = 5"]),
        (
            [ControlData(paused=True), ControlData(paused=True, mode="act"), ControlData(mode="act")],
            ["paused", "mode act", "no longer paused"],
        ),
        ([ControlData(paused=True), ControlData()], ["paused", "no longer paused"]),
        ([ControlData(paused=True, until=NOW), ControlData(mode="act")], ["paused until", "mode act"]),
        ([ControlData(forget=True)], ["all memory forgotten"]),
        ([ControlData()], ["nothing new"]),
    ],
)
def test_a_demo_shows_what_people_changed_and_ends_with_it(overlays: list[ControlData], told: list[str]):
    story, _ = play(9)
    for number, data in enumerate(overlays, start=1):
        who = msgspec.structs.replace(data, who="jane", why="a look")
        story.observe(Control(id=f"c{number}", time_ms=START_MS + 1000 * number, data=who))
    out = StringIO()
    Lines(out).show(story)
    for lines in (out.getvalue().splitlines(), wording.ending(story)):
        changes = [line for line in lines if "by jane (a look): " in line]
        assert len(changes) == len(told)
        for change, what in zip(changes, told, strict=True):
            assert change.partition("by jane (a look): ")[2].startswith(what)
    [newest] = [line for line in drawn(story, width=100, height=30) if "by jane" in line]
    assert told[-1] in newest


def with_round(
    story: Story, *, above_mean_points: float, drained: bool = False, acceptable_points: float | None = None
) -> None:
    """A round as the last one, but one broker is so far above the mean."""
    last = story.last_round
    assert last is not None
    assert last.usage is not None
    first, *others = last.brokers
    usage_points = last.usage.mean_points + above_mean_points
    far = msgspec.structs.replace(first, usage_points=usage_points, excluded=drained)
    over = {"pulsar": {"fleet_planner": {"acceptable_spread_points": acceptable_points}}}
    control = msgspec.structs.replace(CONTROL, settings={} if acceptable_points is None else over)
    summary = msgspec.structs.replace(last, brokers=[far, *others], control=control)
    story.observe(Closed(summary=summary, lag_s=1.0))


def test_whether_it_is_balanced_is_judged_by_what_people_have_set():
    story, _ = play(50)
    assert story.is_balanced
    with_round(story, above_mean_points=50.0, drained=True)
    with_round(story, above_mean_points=25.0, acceptable_points=30.0)
    assert story.is_balanced
    with_round(story, above_mean_points=45.0, acceptable_points=40.0)
    assert not story.is_balanced
    assert "45.0 points from the mean, 40 are allowed" in "".join(story.problems())


def output_of(command: str) -> str:
    """What a command prints in a second terminal, in the folder of the demo."""
    done = subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.live
@pytest.mark.slow
def test_the_command_on_the_screen_works_and_the_demo_ends_with_what_it_changed(tmp_path: Path):
    with on_terminal("deploy.local.demo", tmp_path) as (terminal, process):
        assert terminal.wait_for("acting", 300), terminal.text
        shown = re.search(r"\S*trimtab status --input kafka://[\d.:]+", terminal.text)
        assert shown is not None
        assert "demo (pulsar): acts" in output_of(shown[0])
        output_of(shown[0].replace(" status ", " pause --cluster demo --who jane --why enough "))
        assert terminal.wait_for("by jane (enough): paused", 60), terminal.text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, terminal.text
    _, _, end = terminal.text.rpartition("changed from another terminal:")
    assert "by jane (enough): paused" in end
