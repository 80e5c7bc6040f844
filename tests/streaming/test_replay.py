"""``trimtab replay`` as a user runs it, NDJSON in and out, and on the recording of a real cluster to which much was done by hand."""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner, Result

from state.closing import Identity
from state.events import is_system_bundle
from streaming.cli import main
from streaming.controller.replay import Replay
from streaming.settings import ClusterSettingsSource, load
from tests.streaming.events import pair, report, tick, traffic

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from streaming.cli import main; main()", "replay"]
SETTINGS = "[pulsar.rounds]\nwarmup_rounds = 0\n[pulsar.avg_shedder]\nhigh_hit_count = 1\n"


def replay(*arguments: str, given: bytes = b"", directory: Path = ROOT) -> Result:
    """The command in this process, so that only a few tests wait for one to start."""
    environment = {name: None for name in os.environ if name.startswith("TRIMTAB_")}
    with contextlib.chdir(directory):
        return CliRunner().invoke(main, ["replay", *arguments], input=given, env=environment)


def lines(*events: bytes) -> bytes:
    return b"".join(event + b"\n" for event in events)


def output_of(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def kinds(output: bytes) -> list[str]:
    return [event["type"].split(".")[1] for event in output_of(output)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("replay") / "trimtab.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds, the second still open at the end, with one line that is no event."""
    file = tmp_path_factory.mktemp("recording") / "events.ndjson"
    file.write_bytes(lines(*pair(10), b"nonsense", b"", *pair(70)))
    return file


def test_a_recording_becomes_actions_and_rounds_and_its_end_closes_the_last(config: Path, recording: Path):
    done = replay("--config", str(config), str(recording))
    assert done.exit_code == 0, done.stderr
    assert kinds(done.stdout_bytes) == ["rejected", "action", "round", "round"]
    assert done.stderr.splitlines() == [
        "5 records: 4 used, 0 superseded, 0 late, 1 rejected; 4 events written",
        "  rejected not-json: 1",
    ]
    refused = output_of(done.stdout_bytes)[0]["data"]
    assert (refused["topic"], refused["partition"], refused["offset"]) == (str(recording), 0, 3)
    assert base64.b64decode(refused["head_base64"]) == b"nonsense"


def test_standard_input_plain_files_and_gzip_say_the_same(config: Path, recording: Path, tmp_path: Path):
    packed = tmp_path / "events.ndjson.gz"
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    first, second = tmp_path / "a", tmp_path / "b"
    text = recording.read_bytes().replace(b"nonsense\n", b"").splitlines(keepends=True)
    first.write_bytes(b"".join(text[:1]).rstrip(b"\n"))
    second.write_bytes(b"".join(text[1:]).replace(b"\n", b"\r\n"))
    options = ["--config", str(config), "--only"]
    from_gzip = replay(*options, "actions", str(packed))
    from_pipe = replay(*options, "actions", given=recording.read_bytes())
    from_both = replay(*options, "actions", str(first), "-", given=second.read_bytes())
    assert kinds(from_gzip.stdout_bytes) == ["action"]
    assert from_gzip.stdout_bytes == from_pipe.stdout_bytes == from_both.stdout_bytes


def test_a_file_of_which_nothing_can_be_used_is_no_recording(tmp_path: Path):
    done = replay(given=lines(b"no json", b"{}"), directory=tmp_path)
    assert done.exit_code == 2
    assert (
        "no line of it can be used: expected a recording of `trimtab record`, or events as lines"
        in done.stderr
    )


@pytest.mark.parametrize(("only", "wanted"), [("rounds", ["round", "round"]), ("rejected", ["rejected"])])
def test_only_leaves_the_rest_out(config: Path, recording: Path, only: str, wanted: list[str]):
    assert kinds(replay("--config", str(config), "--only", only, str(recording)).stdout_bytes) == wanted


@pytest.mark.parametrize(
    "broken", [b"no gzip at all", gzip.compress(b"x" * 100_000, mtime=0)[:60]], ids=["no gzip", "cut off"]
)
def test_a_broken_gzip_file_is_named_and_ends_with_2(tmp_path: Path, broken: bytes):
    file = tmp_path / "recording.ndjson.gz"
    file.write_bytes(broken)

    done = CliRunner().invoke(main, ["replay", str(file)])

    assert done.exit_code == 2
    assert f"{file}: not a whole gzip file" in done.stderr


def test_keep_open_closes_only_what_the_input_closes(config: Path, recording: Path):
    done = replay("--config", str(config), "--keep-open", "--only", "rounds", str(recording))
    assert [event["data"]["round"] for event in output_of(done.stdout_bytes)] == [0]


def test_what_waits_in_a_round_that_is_kept_open_is_said(config: Path, recording: Path):
    """Every record is accounted for: nothing in the summary looks as if it had never been read."""
    done = replay("--config", str(config), "--keep-open", str(recording))
    assert done.stderr.startswith(
        "5 records: 2 used, 0 superseded, 0 late, 1 rejected, 2 waiting in open rounds; "
    )
    assert "waiting" not in replay("--config", str(config), str(recording)).stderr


def test_an_empty_input_says_nothing_and_is_no_failure():
    done = replay()
    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert done.stderr.startswith("0 records")


def test_an_action_has_the_mode_it_was_decided_in(config: Path, recording: Path):
    for mode in ("act", "dry-run"):
        done = replay("--config", str(config), "--mode", mode, "--only", "actions", str(recording))
        assert [event["data"]["dry_run"] for event in output_of(done.stdout_bytes)] == [mode == "dry-run"]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_outputs_of_a_round_can_be_read_before_the_next_line_is_written(config: Path):
    """A program that drives replay with one tick per step acts on round k before it plays round k + 1."""
    with running("--config", str(config), "-") as process:
        for number in range(3):
            process.stdin.write(lines(*pair(60 * number + 10), tick(time_s=60 * number + 70)))
            process.stdin.flush()
            heard = []
            while not heard or heard[-1]["type"] != "trimtab.round.v1":
                heard.append(json.loads(process.stdout.readline()))
            assert heard[-1]["data"]["round"] == number
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == b""


def test_a_line_above_the_limit_is_refused_whole_and_the_next_one_is_read(tmp_path: Path):
    config = tmp_path / "trimtab.toml"
    config.write_text("[controller]\nmax_record_bytes = 100000\n", encoding="utf-8")
    huge = b"x" * 3_000_000
    exactly, above = b" " * 99_999 + b"x", b"y" * 100_001
    done = replay("--only", "rejected", given=lines(huge, exactly, above, b"z"), directory=tmp_path)
    refused = [event["data"] for event in output_of(done.stdout_bytes)]
    assert [each["reason"] for each in refused] == ["too-large", "not-json", "too-large", "not-json"]
    assert [each["size_bytes"] for each in refused] == [3_000_000, 100_000, 100_001, 1]
    wanted = [hashlib.sha256(line).hexdigest() for line in (huge, exactly, above, b"z")]
    assert [each["sha256"] for each in refused] == wanted
    assert base64.b64decode(refused[0]["head_base64"]) == b"x" * 65536


def test_the_head_of_a_refused_record_is_64_kib_however_low_the_limit_is(tmp_path: Path):
    config = tmp_path / "trimtab.toml"
    config.write_text("[controller]\nmax_record_bytes = 10\n", encoding="utf-8")
    eleven, short, long = b"0123456789a", bytes(range(65, 91)) * 40, bytes(range(65, 91)) * 4000
    done = replay(
        "--only", "rejected", given=lines(eleven, short, long) + b"last one, not ended", directory=tmp_path
    )
    refused = [event["data"] for event in output_of(done.stdout_bytes)]
    assert [each["reason"] for each in refused] == ["too-large"] * 4
    heads = [base64.b64decode(each["head_base64"]) for each in refused]
    assert heads == [eleven, short, long[:65536], b"last one, not ended"]
    assert refused[2]["sha256"] == hashlib.sha256(long).hexdigest()


@pytest.mark.parametrize("arguments", [["--only", "everything"], ["no-such-file.ndjson"], ["--nonsense"]])
def test_wrong_options_end_with_2(arguments: list[str]):
    assert replay(*arguments).exit_code == 2


def test_a_hundred_thousand_bundles_in_one_report_and_a_thousand_brokers_at_once_are_decided(config: Path):
    many = {f"t/n{i % 100}/0x{i:08x}_0x{i + 1:08x}": traffic(1) for i in range(100_000)}
    giant = report("giant", time_s=10, cpu=(90, 100), bundles=many)
    swarm = [
        report(f"small-{i:04}", time_s=10, cpu=(10, 100), bundles={f"t/s/0x{i}_0x1": traffic(2)})
        for i in range(1000)
    ]
    done = replay("--config", str(config), given=lines(giant, *swarm, tick(time_s=70)))
    assert done.exit_code == 0
    *actions, summary = output_of(done.stdout_bytes)
    data = summary["data"]
    assert data["brokers_reporting_count"] == 1001
    assert len(actions) == data["actions_count"] == data["candidates"]["outcomes"]["acted"] == 20
    assert data["candidates"]["count"] == 100_000
    assert {action["data"]["source_broker"] for action in actions} == {"giant"}


RECORDINGS = Path(__file__).parents[1] / "recordings"
RECORDING, CONFIG_FILE = RECORDINGS / "pulsar-3-brokers.ndjson.gz", RECORDINGS / "pulsar-3-brokers.toml"
LENGTH_S = 10
MOVED_S, SURGE_S, DEATH_S, RETURN_S = 90, 240, 360, 450
"""What was done to the cluster, in seconds from the recording's start."""
HOT_TOPIC = "persistent://shop/orders/created-partition-0"

Event = dict[str, Any]


@cache
def events() -> list[Event]:
    with gzip.open(RECORDING) as stream:
        return [json.loads(line) for line in stream]


@cache
def played_recording(*flags: tuple[str, object]) -> bytes:
    settings = load(file=CONFIG_FILE, flags=dict(flags), environ={}).settings
    out = io.BytesIO()
    replay = Replay(
        out,
        name="trimtab",
        identity=Identity(),
        settings=ClusterSettingsSource(settings),
        max_record_bytes=settings.controller.max_record_bytes,
    )
    with gzip.open(RECORDING) as stream:
        replay.play(io.BytesIO(stream.read()), RECORDING.name)
    replay.close_open()
    assert replay.tally.count_of("rejected") == 0
    return out.getvalue()


@cache
def rounds() -> list[Event]:
    return [
        line["data"]
        for line in map(json.loads, played_recording().splitlines())
        if line["type"] == "trimtab.round.v1"
    ]


@cache
def actions() -> list[Event]:
    return [
        line["data"]
        for line in map(json.loads, played_recording().splitlines())
        if line["type"] != "trimtab.round.v1"
    ]


def number_at(second: float) -> int:
    """Number of the round that holds this time, in seconds from the recording's start."""
    begin_s = datetime.fromisoformat(events()[0]["time"]).timestamp()
    return int((begin_s + second) // LENGTH_S)


def test_moves_by_hand_are_answered_within_three_rounds():
    moved = number_at(MOVED_S)
    answers = [action for action in actions() if moved <= action["round"] <= moved + 3]
    assert answers
    assert {(each["source_broker"], each["destination_broker"]) for each in answers} == {
        ("broker-1:8080", "broker-2:8080")
    }


def test_nothing_is_unloaded_before_the_moves():
    assert [action for action in actions() if action["round"] < number_at(MOVED_S)] == []


def test_the_hot_bundle_of_the_surge_is_held_because_it_is_too_big():
    hot = {
        bundle
        for event in events()
        if event["type"] == "trimtab.pulsar.topic-stats.v1"
        for bundle, topics in event["data"].items()
        if HOT_TOPIC in topics
    }
    assert len(hot) == 1
    held = [
        (row["broker"], row["outcome"])
        for summary in rounds()
        if number_at(SURGE_S) <= summary["round"] < number_at(DEATH_S)
        for row in summary["candidates"]["heaviest"]
        if row["bundle"] in hot
    ]
    assert ("broker-3:8080", "too-big") in held
    assert {outcome for _, outcome in held} == {"too-big"}
    assert not [action for action in actions() if action["bundle"] in hot]


def test_the_dead_broker_is_named_missing_within_four_rounds_and_back_when_it_returns():
    missing = [each["round"] for each in rounds() if "broker-3:8080" in each["brokers_missing"]]
    assert number_at(DEATH_S) < missing[0] <= number_at(DEATH_S) + 4
    assert max(missing) < number_at(RETURN_S) + 4
    assert "broker-3:8080" in rounds()[-1]["brokers_reporting"]
    for action in actions():
        (summary,) = [each for each in rounds() if each["round"] == action["round"]]
        assert {action["source_broker"], action["destination_broker"]} <= set(summary["brokers_reporting"])


def test_no_bundle_is_counted_at_two_brokers():
    newest: dict[int, dict[str, Event]] = defaultdict(dict)
    for event in events():
        if event["type"] == "trimtab.pulsar.load-report.v1":
            number = int(datetime.fromisoformat(event["time"]).timestamp() // LENGTH_S)
            newest[number][event["subject"]] = event["data"]
    for summary in rounds():
        listed = [
            bundle
            for data in newest[summary["round"]].values()
            for bundle in data["bundles"]
            if not is_system_bundle(bundle)
        ]
        assert sum(row["bundles_count"] for row in summary["brokers"]) == len(set(listed))


def test_every_round_is_summed_up_and_every_outcome_counted():
    numbers = [summary["round"] for summary in rounds()]
    assert numbers == list(range(number_at(0), number_at(0) + len(numbers)))
    for summary in rounds():
        for section in (summary["examined"], summary["candidates"]):
            assert sum(section["outcomes"].values()) == section["count"]


SPLITTING = (("pulsar.split.enabled", True), ("pulsar.split.hit_count", 1))
"""Limits are far above what the recorded cluster carries; the tests lower them."""


def split_story(max_messages_per_s: float) -> tuple[list[Event], list[Event]]:
    """Split actions and summaries with this limit of a bundle."""
    lines = played_recording(*SPLITTING, ("pulsar.split.max_messages_per_s", max_messages_per_s)).splitlines()
    found = [json.loads(line) for line in lines]
    splits = [event["data"] for event in found if event["type"] == "trimtab.action.split.v1"]
    return splits, [event["data"] for event in found if event["type"] == "trimtab.round.v1"]


def test_in_the_surge_the_hot_bundle_is_not_split_but_the_topic_that_carries_it_named():
    splits, summaries = split_story(1000)
    rows = [row for summary in summaries for row in summary["splits"]["heaviest"]]
    shown = {row["detail"] for row in rows if row["outcome"] == "dominant-topic"}
    assert splits == []
    assert {row["outcome"] for row in rows} == {"no-topic-stats", "dominant-topic"}
    assert shown == {detail for detail in shown if detail.startswith(f"{HOT_TOPIC} carries 9")}
    assert shown


def test_below_its_load_the_same_bundle_is_cut_once_and_the_hot_topic_gets_a_bundle_of_its_own():
    splits, summaries = split_story(300)
    assert [split["bundle"] for split in splits] == ["shop/orders/0x60000000_0x80000000"]
    cut = splits[0]
    alone = [child for child in cut["children"] if child["topics_count"] == 1]
    assert len(alone) == 1
    lower, upper = (int(edge, 16) for edge in alone[0]["range"].split("_"))
    assert lower <= crc32(HOT_TOPIC.encode()) < upper
    assert alone[0]["range"] in cut["expected"]
    assert f"{HOT_TOPIC} alone" in cut["reason"]
    decided = next(summary for summary in summaries if summary["round"] == cut["round"])
    assert decided["splits"]["outcomes"]["acted"] == 1
    assert cut["precondition"]["owner"] in decided["brokers_reporting"]
