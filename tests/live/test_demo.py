"""The demo: its fleet behaves like brokers do, its screen fits, and the whole of it balances, stops and says why not."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from deploy.local.demo.child import SETTINGS, ChildError, Trimtab, free_metrics_port
from deploy.local.demo.fleet import BROKERS, CLUSTER, Fleet, Sweep
from deploy.local.demo.lines import Lines
from deploy.local.demo.link import Closed, Decided, reports_of
from deploy.local.demo.screen import render, save_picture
from deploy.local.demo.story import CALM_ROUNDS, Story
from state.controller import Controller
from state.events import LoadReport
from state.outputs import Output, RoundSummary, Unload
from state.rounds import Identity
from state.store import DictStore
from streaming.settings import ClusterSettingsSource, load
from streaming.wire.decode import decode

ROOT = Path(__file__).parents[2]
START_MS = 1_800_000_001_000
SWEEP_MS = 2_000
STOP_S_MAX = 15.0


def unload_of(
    fleet: Fleet, bundle: str, *, to: str | None, expires_at: str = "2999-01-01T00:00:00.000Z"
) -> Unload:
    owner = fleet.owner(bundle)
    assert owner is not None
    return Unload(
        cluster=CLUSTER,
        round=1,
        policy="avg-shedder",
        trigger="low-threshold",
        reason="a test",
        evidence={"bundle_messages_per_s": 1.0},
        expected={},
        precondition={"owner": owner},
        expires_at=expires_at,
        dry_run=False,
        bundle=bundle,
        source_broker=owner,
        destination_broker=to,
    )


def listed_by(sweep: Sweep, bundle: str) -> set[str]:
    return {broker.broker for broker in sweep.brokers if bundle in (broker.report.bundles or [])}


def bundle_of(sweep: Sweep, broker: str) -> str:
    return next(
        name
        for now in sweep.brokers
        if now.broker == broker
        for name in now.report.bundles or []
        if not name.startswith("pulsar/")
    )


def play(sweeps_count: int) -> tuple[Story, list[Sweep]]:
    """The demo without Kafka and Spark: decisions arrive one sweep after the one that closed their round."""
    settings = load(file=SETTINGS, flags={}, environ={}).settings
    identity = Identity(mode=settings.controller.mode, action_ttl_s=settings.controller.action_ttl_s)
    controller = Controller(CLUSTER, DictStore(), identity=identity, settings=ClusterSettingsSource(settings))
    fleet, waiting, sweeps = Fleet(), list[Output](), list[Sweep]()
    story = Story(
        bundles_count=fleet.bundles_count,
        low_threshold_points=settings.pulsar.avg_shedder.low_threshold_points,
        metrics_url="http://127.0.0.1:9464/metrics",
        bootstrap="127.0.0.1:29092",
        settings_file="deploy/local/demo/demo.toml",
        clock=lambda: sweeps[-1].time_ms / 1000 if sweeps else 0.0,
    )
    for number in range(sweeps_count):
        now_ms = START_MS + number * SWEEP_MS
        for output in waiting:
            hear(story, fleet, output, now_ms)
        sweeps.append(fleet.sweep(now_ms))
        story.swept(sweeps[-1])
        events = [decode(msgspec.json.encode(report))[1] for report in reports_of(sweeps[-1])]
        waiting = [output for event in events for output in controller.step(event).outputs]  # type: ignore[arg-type]
    return story, sweeps


def hear(story: Story, fleet: Fleet, output: Output, now_ms: int) -> None:
    if output.kind == "round":
        story.closed(Closed(summary=msgspec.json.decode(output.data, type=RoundSummary), lag_s=1.5))
        return
    unload = msgspec.json.decode(output.data, type=Unload)
    story.decided(Decided(action_id=output.id, unload=unload))
    assert fleet.follow(output.id, unload, now_ms=now_ms) is None


def test_every_report_is_valid_and_two_brokers_are_hot_and_one_nearly_empty() -> None:
    sweep = Fleet().sweep(START_MS)
    for report in reports_of(sweep):
        cluster, event = decode(msgspec.json.encode(report), key=CLUSTER, appended_ms=START_MS, partition=0)
        assert cluster == CLUSTER
        assert isinstance(event, LoadReport), event
    usages = sorted(broker.usage_points for broker in sweep.brokers)
    assert usages[0] < 10
    assert usages[-2] > 70
    assert usages[-1] > 85
    assert sum(broker.bundles_count for broker in sweep.brokers) == 64


def test_the_same_seed_gives_the_same_reports() -> None:
    first, second = ([Fleet().sweep(START_MS + step) for step in (0, SWEEP_MS)] for _ in range(2))
    assert first[0] == second[0]
    assert Fleet(seed=8).sweep(START_MS) != first[0]


def test_a_moving_bundle_is_listed_by_both_brokers_in_one_sweep_and_its_traffic_is_kept() -> None:
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


def test_an_unload_without_destination_goes_to_the_idlest_broker() -> None:
    fleet = Fleet()
    bundle = bundle_of(fleet.sweep(START_MS), BROKERS[0])
    assert fleet.follow("a", unload_of(fleet, bundle, to=None), now_ms=START_MS) is None
    fleet.sweep(START_MS + SWEEP_MS)
    assert fleet.owner(bundle) == BROKERS[4]


def test_an_unload_that_no_longer_fits_is_skipped_with_the_reason() -> None:
    fleet = Fleet()
    bundle = bundle_of(fleet.sweep(START_MS), BROKERS[0])
    good = unload_of(fleet, bundle, to=BROKERS[4])
    cases = {
        "expired": unload_of(fleet, bundle, to=BROKERS[4], expires_at="2027-01-15T08:00:00.000Z"),
        "belongs to": msgspec.structs.replace(good, precondition={"owner": BROKERS[2]}),
        "no bundle": msgspec.structs.replace(good, bundle="shop/orders/0x00000001_0x00000002"),
        "no broker": unload_of(fleet, bundle, to="broker-9:8080"),
    }
    for reason, unload in cases.items():
        result = fleet.follow("a", unload, now_ms=START_MS)
        assert result is not None
        assert result.outcome == "skipped"
        assert reason in result.reason
    assert fleet.follow("a", good, now_ms=START_MS) is None
    again = fleet.follow("b", good, now_ms=START_MS)
    assert again is not None
    assert "moving already" in again.reason


def test_the_shipped_settings_balance_the_fleet_within_a_minute_and_keep_it_so() -> None:
    story, sweeps = play(120)
    assert story.balanced_after_s is not None
    assert story.balanced_after_s <= 70
    assert story.is_balanced
    assert story.problems() == []
    apart = [np.ptp([broker.usage_points for broker in sweep.brokers]) for sweep in sweeps]
    assert apart[0] > 80
    assert max(apart[35:]) < 20


def test_an_unbalanced_story_says_what_is_wrong() -> None:
    story, _ = play(4)
    assert not story.is_balanced
    assert any("no unload was followed" in problem for problem in story.problems())
    assert any(f"{CALM_ROUNDS} are needed" in problem for problem in story.problems())


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (140, 50)])
@pytest.mark.parametrize("sweeps_count", [0, 1, 5, 9, 60])
def test_the_screen_fits_the_terminal(width: int, height: int, sweeps_count: int) -> None:
    story, _ = play(sweeps_count)
    console = Console(width=width, height=height, file=StringIO(), force_terminal=True)
    lines = console.render_lines(render(story, width=width, height=height), pad=False)
    assert len(lines) <= height
    assert max(sum(segment.cell_length for segment in line) for line in lines) <= width


def test_the_picture_loads_nothing_from_the_network(tmp_path: Path) -> None:
    story, _ = play(30)
    save_picture(story, tmp_path / "demo.svg")
    picture = (tmp_path / "demo.svg").read_text()
    assert "broker-1" in picture.replace("&#160;", " ")
    assert "url(http" not in picture
    assert "@font-face" not in picture


def test_plain_lines_tell_decisions_moves_and_rounds_once_each() -> None:
    out = StringIO()
    lines = Lines(out)
    story, _ = play(40)
    lines.show(story)
    lines.show(story)
    lines.end(story)
    text = out.getvalue()
    assert text.count("decided: ") == text.count("moved: ") == story.moved_count > 0
    assert text.count("  round ") == 1


@pytest.mark.live
def test_a_child_that_fails_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    trimtab = Trimtab(tmp_path, bootstrap="127.0.0.1:1", metrics_port=free_metrics_port())
    with pytest.raises(ChildError, match=r"(?s)topics create ended with 5; .*127\.0\.0\.1:1 does not answer"):
        trimtab.create_topics()


def started_by(directory: Path) -> list[int]:
    """Processes whose temporary files go to ``directory``: the demo and everything below it."""
    mark = f"TMPDIR={directory}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environment:
            found.append(int(process.name))
    return found


@pytest.mark.live
@pytest.mark.timeout(420)
def test_without_a_terminal_it_balances_the_fleet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    temporary = tmp_path / "t"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "deploy.local.demo", "--picture", str(picture)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"balanced, first after \d+ s: spread", done.stdout)
    assert "decided: " in done.stdout
    assert "moved: " in done.stdout
    assert done.stderr == ""
    assert picture.exists()
    assert list(temporary.iterdir()) == []
    assert started_by(temporary) == []


class Terminal:
    """A pseudo-terminal of 80 x 24 whose output is collected."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.text = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:
                return
            with self._changed:
                self.text += piece.decode(errors="replace")
                self._changed.notify_all()

    def wait_for(self, text: str, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: text in self.text, timeout_s)


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("moment", ["starting Kafka", "starting trimtab", "broker-6"])
def test_ctrl_c_stops_everything_within_15_s_whenever_it_comes(tmp_path: Path, moment: str) -> None:
    terminal = Terminal()
    with subprocess.Popen(
        [sys.executable, "-m", "deploy.local.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color"},
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
    ) as process:
        assert terminal.wait_for(moment, 300), terminal.text
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, terminal.text
        assert time.monotonic() - began < STOP_S_MAX
    assert "Traceback" not in terminal.text
    assert started_by(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
