"""Every command as a user starts it: a process of its own, against a real broker."""

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from streaming.cli import main
from tests.support.loads import closing, leaning
from tests.support.processes import TRIMTAB
from tests.support.stage import QUICK, Stage

pytestmark = [pytest.mark.live, pytest.mark.slow]

ELSEWHERE = {
    "doctor": "test_doctor.py",
    "run": "test_run_damage.py",
    "collect pulsar": "pulsar/test_balance.py",
    "execute pulsar": "pulsar/test_balance.py",
}
"""Commands that need a Pulsar, two controllers or a while, and the tests that start each as a process."""
MOVE = {
    "partition": 0,
    "current_replicas": [1],
    "target_replicas": [2],
    "leader": 1,
    "write_bytes_per_s": 1000,
    "log_size_bytes": 100_000,
}
TOPICS = ("persistent://shop/orders/a", "persistent://shop/orders/b")
BUNDLE = {
    "bundle": "shop/orders/0x00000000_0xffffffff",
    "topics": {topic: {"msgRateIn": 20_000, "msgThroughputIn": 1e6} for topic in TOPICS},
}


def commands(group: click.Command, *path: str) -> Iterator[str]:
    """Every command that is no group."""
    if not isinstance(group, click.Group):
        yield " ".join(path)
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        yield from commands(found, *path, name)


def output_of(command: str, *arguments: str) -> str:
    """What the process wrote to its standard output; it ends with 0."""
    done = subprocess.run(
        [*TRIMTAB, *command.split(), *arguments], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_each_command_does_its_work_as_a_process(stage: Stage, tmp_path: Path):
    """The commands run in the order in which a user comes to them. What the controller would write is what `replay` gives."""
    own = f'[targets.here.kafka]\nbootstrap = "{stage.bootstrap}"\n'
    file = stage.settings(base=QUICK + own)
    config = ("--config", str(file))
    fleet, log, moves, bundle = (tmp_path / name for name in ("fleet", "log", "moves.json", "bundle.json"))
    moves.write_text(json.dumps({"partitions": [{"topic": "t", **MOVE}]}))
    bundle.write_text(json.dumps(BUNDLE))
    events = [*(event for number in range(4) for event in leaning(number)), closing(4)]
    why, newest = ("--cluster", "east-1", "--why", "a test"), ("--from", "earliest", "--no-follow")
    shown: dict[str, str] = {}

    def show(command: str, *arguments: str) -> str:
        shown[command] = output_of(command, *arguments)
        return shown[command]

    assert f"{stage.topics.input}: " in show("topics create", *config)
    assert f"kafka://{stage.bootstrap}" in show("config", *config)
    fleet.write_bytes(b"\n".join([*events, b"junk"]) + b"\n")
    show("feed", *config, "--fast", str(fleet))
    show("record", *config, "--until-now", str(log))
    assert len(log.read_bytes().splitlines()) == len(events) + 1
    for _ in range(2):  # the second start finds nothing new
        show("record", *config, "--until-now", "--max-total-size", "1GiB", str(tmp_path / "months"))
    (packed,) = (tmp_path / "months").glob("*.ndjson.gz")
    assert len(gzip.decompress(packed.read_bytes()).splitlines()) == len(events) + 1
    outputs = show("replay", *config, str(fleet)).encode().splitlines()
    rounds, letters, actions = (
        [value for value in outputs if json.loads(value)["type"].startswith(kind)]
        for kind in ("trimtab.round", "trimtab.rejected", "trimtab.action.")
    )
    stage.send(actions, to=stage.topics.actions)
    stage.send(rounds, to=stage.topics.audit)
    stage.send_raw(b"", letters[0], to=stage.topics.dead_letter)
    stage.flush()
    action, letter = json.loads(actions[0]), json.loads(letters[0])["data"]
    number = str(action["data"]["round"])

    assert action["id"] in show("actions tail", *config, *newest)
    assert action["data"]["reason"] in show("actions why", *config, action["id"])
    assert "east-1 (pulsar): acts" in show("status", *config)
    assert "by resource" in show("status", *config, "--brokers")
    assert f"east-1 round {number} " in show("rounds tail", *config, *newest)
    assert action["id"] in show("rounds show", *config, "--cluster", "east-1", number)
    assert "closed loop" in show(
        "backtest", *config, "--policy", "fleet-planner", f"kafka://{stage.bootstrap}"
    )
    assert "broker-1:8080 is at " in show(
        "rounds show", *config, "--cluster", "east-1", "--broker", "broker-1:8080"
    )
    assert "not-json" in show("rejected tail", *config, *newest)
    place = f"{letter['topic']}/{letter['partition']}@{letter['offset']}"
    assert "junk" in show("rejected show", *config, place)

    changes = ("--force", *why)
    assert "paused: no -> yes" in show("pause", *config, *changes)
    assert "paused: yes -> no" in show("resume", *config, *changes)
    assert "-> dry-run" in show("mode", "dry-run", *config, *changes)
    key = "pulsar.avg_shedder.low_hit_count"
    assert f"{key}: 3 -> 4" in show("policy set", *config, *changes, f"{key}=4")
    assert f"{key} = 4" in show("policy show", *config, "--cluster", "east-1")
    assert f"{key}: 4 -> 3" in show("policy unset", *config, *changes, key)
    broker = ("--broker", "broker-1:8080")
    assert "until it is ended" in show("maintenance start", *config, *changes, *broker)
    assert "broker-1:8080" in show("maintenance list", *config)
    assert "ends" in show("maintenance end", *config, *changes, *broker)
    assert "drain of broker-1:8080" in show("drain", *config, *changes, *broker)
    assert "broker-1:8080" in show("control list", *config)
    proposing = json.loads(rounds[-1])
    row = {
        "id": "f" * 32,
        "kind": "unload",
        "bundle": "t/n/0x0_0x1",
        "source_broker": "b1",
        "destination_broker": "b2",
    }
    row |= {"round": 7, "expires_at": proposing["time"]}
    proposing["data"]["approval"] = {"open_count": 1, "open": [row], "expired": [], "answers": []}
    stage.send([json.dumps(proposing).encode()], to=stage.topics.audit)
    stage.flush()
    assert "f" * 32 in show("actions list", *config, "--pending")
    assert "approved: " in show("approve", *config, "ffffff", "--why", "a test")
    assert "rejected: " in show("reject", *config, "--round", "7", "--why", "a test")
    assert "dry-run -> as configured" in show("control delete", *config, *changes)
    assert "forgotten" in show("forget", *config, *changes)

    assert '"type":"trimtab.kafka' in show("collect kafka", "here", *config, "--once", "--stdout")
    show("execute kafka", "here", *config, "--once")
    assert "leader:1" in show("throttle plan", "--input", str(moves), "--format", "table")
    assert '"boundaries":[1326000418]' in show("split plan", "--input", str(bundle))
    assert "0x" in show("split positions", TOPICS[0])
    assert "fleet-planner" in show(
        "simulate", "--scenario", "three-brokers", "--seeds", "1", "--hours", "0.5"
    )
    assert {*shown, *ELSEWHERE} == {*commands(main)}
