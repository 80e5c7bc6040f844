"""What a control command answers: what stands, what became of its event, and what makes no sense."""

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.cli.control import Standing, check_taken, check_written, find_standings
from streaming.cli.operate import pause_edit
from streaming.cli.request import overlay_text
from streaming.process.exits import Refused
from tests.streaming.test_control_commands import FULL, NOW_MS, SETTINGS, planned, record, stands


def test_what_stands_is_shown_with_who_and_why() -> None:
    assert overlay_text("east-1", stands(FULL)) == (
        "east-1: jo at 2023-11-14T21:56:40.000Z: x\n"
        "  paused: yes\n"
        "  mode: act\n"
        "  pulsar.avg_shedder.low_threshold_points = 10\n"
    )
    assert overlay_text("east-1", Standing()) == "east-1: as configured, no control event\n"


def test_a_write_that_met_another_ones_is_told() -> None:
    event = planned(pause_edit(), FULL)
    mine, theirs = record(event.value, offset=2), record(FULL, offset=1)
    before = [record(FULL, offset=0)]
    check_written([event], before, [*before, mine])
    check_written([event], before, [*before, record(FULL, key="west", offset=1), mine])
    with pytest.raises(Refused, match="somebody else wrote"):
        check_written([event], before, [*before, theirs, mine])
    with pytest.raises(Refused, match="not on the topic"):
        check_written([event], before, before)


def test_a_write_that_the_controller_refuses_is_told_with_the_remedy() -> None:
    event = planned(pause_edit(), FULL)
    before = record(FULL, offset=0)

    def found(appended_ms: int) -> dict[str, Standing]:
        return find_standings([before, record(event.value, offset=1, appended_ms=appended_ms)], SETTINGS)

    check_taken([event], found(NOW_MS))
    with pytest.raises(
        Refused, match=r"east-1: .*the controller refuses it: .*ahead of its log.*set the clock"
    ):
        check_taken([event], found(NOW_MS - 60_000))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["pause", "--cluster", "a"], "--why"),
        (["pause", "--cluster", "a", "--why", " "], "give a reason"),
        (["policy", "set", "--cluster", "a", "--why", "x", "pulsar.zzz=1"], "pulsar.zzz: unknown setting"),
        (["forget", "--all", "--why", "x"], "name the clusters to forget"),
        (["control", "delete", "--all", "--why", "x"], "name the clusters to set back"),
        (["pause", "--cluster", "a", "--why", "x", "--for", "soon"], "expected a duration such as 90s"),
        (["mode", "stop", "--cluster", "a", "--why", "x"], "'stop' is not one of"),
    ],
)
def test_a_command_that_makes_no_sense_ends_with_code_2_before_it_connects(
    arguments: list[str], complaint: str
) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
