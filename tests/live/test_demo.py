"""The demo: its fleet behaves like brokers do, its screen fits, and the whole of it balances, stops and says why not."""

import os
import re
import socket
import subprocess
import sys
from contextlib import suppress
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from deploy.local.demo.bundles import HOT_BUNDLE
from deploy.local.demo.fleet import BROKERS, CLUSTER, Fleet
from deploy.local.demo.screen import render, save_picture
from deploy.local.demo.story import CALM_ROUNDS
from deploy.local.demo.topics import reports_of
from deploy.local.demo.trimtab import USUAL_PORTS, Trimtab, free_metrics_port, members
from deploy.local.demo.wording import Lines
from deploy.local.demo.worlds import FLEET_SETTINGS
from deploy.local.processes import LocalError, claim
from state.events import LoadReport, TopicStats
from streaming.contract.decode import decode
from tests.live.rehearsal import START_MS, SWEEP_MS, assert_skipped, bundle_of, listed_by, play, unload_of
from tests.live.terminal import assert_ctrl_c_ends, output_without_terminal

ROOT = Path(__file__).parents[2]
STOP_S_MAX = 15.0
LEAVING = """
import subprocess
worker = subprocess.Popen(["sleep", "600"], process_group=0)
print(worker.pid, flush=True)
worker.wait()
"""


def test_every_message_is_valid_and_two_brokers_are_hot_and_one_nearly_empty():
    sweep = Fleet().sweep(START_MS)
    for report in reports_of(sweep):
        cluster, event, _ = decode(msgspec.json.encode(report), key=CLUSTER)
        assert cluster == CLUSTER
        assert isinstance(event, LoadReport | TopicStats), event
    usages = sorted(broker.usage_points for broker in sweep.brokers)
    assert usages[0] < 10
    assert usages[-2] > 70
    assert usages[-1] > 85
    assert sum(broker.bundles_count for broker in sweep.brokers) == sweep.bundles_count == 64


def test_the_same_seed_gives_the_same_reports():
    first, second = ([Fleet().sweep(START_MS + step) for step in (0, SWEEP_MS)] for _ in range(2))
    assert first[0] == second[0]
    assert Fleet(seed=8).sweep(START_MS) != first[0]


def test_a_moving_bundle_is_listed_by_both_brokers_in_one_sweep_and_its_traffic_is_kept():
    fleet = Fleet()
    bundle = bundle_of(fleet.sweep(START_MS), BROKERS[0])
    assert fleet.follow("a", unload_of(fleet, bundle, to=BROKERS[4]), now_ms=START_MS) is None
    sweeps = [fleet.sweep(START_MS + number * SWEEP_MS) for number in (1, 2, 3)]
    assert [listed_by(sweep, bundle) for sweep in sweeps] == [
        {BROKERS[0], BROKERS[4]},
        {BROKERS[4]},
        {BROKERS[4]},
    ]
    assert [[result.outcome for result in sweep.finished] for sweep in sweeps] == [[], ["succeeded"], []]
    totals = [sum(broker.messages_per_s for broker in sweep.brokers) for sweep in sweeps]
    assert max(totals) / min(totals) < 1.02


def test_an_unload_without_destination_goes_to_the_idlest_broker():
    fleet = Fleet()
    bundle = bundle_of(fleet.sweep(START_MS), BROKERS[0])
    assert fleet.follow("a", unload_of(fleet, bundle, to=None), now_ms=START_MS) is None
    fleet.sweep(START_MS + SWEEP_MS)
    assert fleet.owner(bundle) == BROKERS[4]


def test_an_unload_that_no_longer_fits_is_skipped_with_the_reason():
    fleet = Fleet()
    bundle = bundle_of(fleet.sweep(START_MS), BROKERS[0])
    good = unload_of(fleet, bundle, to=BROKERS[4])
    cases = {
        "expired": unload_of(fleet, bundle, to=BROKERS[4], expires_at="2027-01-15T08:00:00.000Z"),
        "belongs to": msgspec.structs.replace(good, precondition={**good.precondition, "owner": BROKERS[2]}),
        "no bundle": msgspec.structs.replace(good, bundle="shop/orders/0x00000001_0x00000002"),
        "no broker": unload_of(fleet, bundle, to="broker-9:8080"),
    }
    assert_skipped(fleet, cases)
    assert fleet.follow("a", good, now_ms=START_MS) is None
    again = fleet.follow("b", good, now_ms=START_MS)
    assert again is not None
    assert "moving already" in again.reason


def test_the_shipped_settings_balance_the_fleet_within_a_minute_and_keep_it_so():
    story, sweeps = play(120)
    assert story.balanced_after_s is not None
    assert story.balanced_after_s <= 60
    assert story.is_balanced
    assert story.problems() == []
    apart = [np.ptp([broker.usage_points for broker in sweep.brokers]) for sweep in sweeps]
    assert apart[0] > 80
    assert max(apart[35:]) < 20


def test_an_unbalanced_story_says_what_is_wrong():
    story, _ = play(4)
    assert not story.is_balanced
    assert any("no unload was followed" in problem for problem in story.problems())
    assert any(f"{CALM_ROUNDS} are needed" in problem for problem in story.problems())


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (140, 50)])
@pytest.mark.parametrize("sweeps_count", [0, 1, 5, 9, 60])
def test_the_screen_fits_the_terminal(width: int, height: int, sweeps_count: int):
    story, _ = play(sweeps_count)
    console = Console(width=width, height=height, file=StringIO(), force_terminal=True)
    lines = console.render_lines(render(story, width=width, height=height), pad=False)
    assert len(lines) <= height
    assert max(sum(segment.cell_length for segment in line) for line in lines) <= width


def test_the_picture_loads_nothing_from_the_network(tmp_path: Path):
    story, _ = play(30)
    save_picture(story, tmp_path / "demo.svg")
    picture = (tmp_path / "demo.svg").read_text()
    assert "broker-1" in picture.replace("&#160;", " ")
    assert "url(http" not in picture
    assert "@font-face" not in picture


def test_plain_lines_tell_decisions_moves_and_rounds_once_each():
    out = StringIO()
    lines = Lines(out)
    story, _ = play(40)
    lines.show(story)
    lines.show(story)
    text = out.getvalue()
    assert text.count("decided: ") == story.decided_count
    assert text.count("moved: ") == story.moved_count > 0
    assert text.count("decided: split ") == text.count("  split: ") == story.split_count > 0
    assert text.count("  round ") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_stop_ends_processes_that_left_the_group_of_trimtab_but_not_its_session(tmp_path: Path) -> None:
    trimtab = Trimtab(tmp_path, bootstrap="127.0.0.1:1", metrics_port=1, settings=FLEET_SETTINGS)
    trimtab.process.process = subprocess.Popen(
        [sys.executable, "-c", LEAVING],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    session = trimtab.process.process.pid
    assert trimtab.process.process.stdout is not None
    worker = int(trimtab.process.process.stdout.readline())
    assert os.getpgid(worker) == worker != session
    assert set(members(session)) == {session, worker}
    trimtab.process.process.stdout.close()
    trimtab.stop()
    assert members(session) == []


@pytest.mark.parametrize("command", ["run", "collect", "execute"])
def test_each_program_serves_its_metrics_where_prometheus_looks_unless_that_is_taken(command: str):
    usual = USUAL_PORTS[command]
    with suppress(OSError):
        claim(usual)
        assert free_metrics_port(command) == usual
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # by another demo, which is as good
            other.bind(("127.0.0.1", usual))
            other.listen()
        assert free_metrics_port(command) != usual


@pytest.mark.live
def test_a_child_that_fails_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    trimtab = Trimtab(
        tmp_path, bootstrap="127.0.0.1:1", metrics_port=free_metrics_port("run"), settings=FLEET_SETTINGS
    )
    with pytest.raises(
        LocalError, match=r"(?s)topics create ended with 6; .*nothing listens at 127\.0\.0\.1:1"
    ):
        trimtab.create_topics()


@pytest.mark.slow
@pytest.mark.live
def test_without_a_terminal_it_balances_the_fleet_and_leaves_nothing_behind(tmp_path: Path):
    picture = tmp_path / "demo.svg"
    temporary = tmp_path / "t"
    temporary.mkdir()
    message = output_without_terminal(
        "deploy.local.demo", temporary, "--picture", str(picture), timeout_s=400
    )
    assert re.search(r"balanced, first after \d+ s: spread", message)
    assert "decided: " in message
    assert "moved: " in message
    assert f"decided: split {HOT_BUNDLE} into " in message
    assert f"  split: {HOT_BUNDLE} into " in message
    assert re.search(r"├─+┼[─┼]*┤", message)
    assert picture.exists()


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("moment", ["starting Kafka", "starting trimtab", "broker-6"])
def test_ctrl_c_stops_everything_within_15_s_whenever_it_comes(tmp_path: Path, moment: str):
    assert_ctrl_c_ends("deploy.local.demo", tmp_path, moment=moment, within_s=STOP_S_MAX)
