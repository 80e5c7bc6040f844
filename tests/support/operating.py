"""A story of an operator: a cluster is paused, resumed and changed by commands, its actions watched and asked about."""

import json
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

from streaming.process.exits import WRONG_USE
from tests.support.loads import LENGTH_S, START_S, played
from tests.support.processes import TRIMTAB, Child, Warm, command
from tests.support.stage import QUICK, Stage

AHEAD = QUICK.replace("warmup_rounds = 0", "warmup_rounds = 0\nmax_ahead_s = 86400")
"""Future rounds can be played at once: a control event holds from a round that begins after it was written."""
_HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
_AT_A_TERMINAL = (*TRIMTAB[:2], f"{_HEARD}; {TRIMTAB[2]}")
"""The command as a shell starts it in the foreground: one in the background inherits from the shell that it ignores Ctrl-C."""


def output_of(config: Path, *arguments: str, code: int = 0) -> str:
    """What a command printed."""
    return command(*arguments, "--config", str(config), code=code).output


def since(text: str) -> int:
    """The round that a change holds from, counted like the played ones."""
    found = re.search(r"from round (\d+) on", text)
    assert found is not None, text
    return int(found[1]) - START_S // LENGTH_S


def operate(stage: Stage, warm: Warm) -> None:
    """Play the story on a stage of its own."""
    config = stage.settings(base=AHEAD)
    elsewhere = stage.settings(
        base=AHEAD.replace("low_hit_count = 3", "low_hit_count = 6"), file="elsewhere.toml"
    )
    asked = ("--who", "maria", "--cluster", "east-1")
    stranger = output_of(config, "pause", *asked, "--why=the sale", code=WRONG_USE)
    assert "east-1: unknown, with no round in the last hour" in stranger
    assert stage.values(stage.topics.control) == []
    target = '\n[targets."east-1".pulsar]\nadmin_url = "http://127.0.0.1:8080"\n'
    targeted = stage.settings(base=AHEAD + target, file="targeted.toml")
    text = output_of(targeted, "pause", *asked, "--why=the sale", "--until=8h")
    assert "paused: no -> until " in text
    assert "computed with the settings read here" in text
    (listed,) = json.loads(output_of(config, "control", "list", "-o", "json"))
    assert (listed["cluster"], listed["paused"], listed["why"]) == ("east-1", True, "the sale")
    first = since(text)
    assert first * LENGTH_S + START_S >= time.time()

    stage.send(played(range(first, first + 4)))
    with warm.start("run", "--config", str(config), "--from", "earliest") as run:
        audit = [json.loads(value)["data"] for value in stage.wait_for(stage.topics.audit, 4, running=[run])]
        assert all(summary["paused"] for summary in audit)
        assert {(summary["control"]["who"], summary["control"]["why"]) for summary in audit} == {
            ("maria", "the sale")
        }
        assert sum(summary["candidates"]["outcomes"].get("paused", 0) for summary in audit) > 0
        assert stage.values(stage.topics.actions) == []

        output_of(config, "policy", "set", *asked, "--why=calmer", "pulsar.avg_shedder.low_hit_count=2")
        text = output_of(config, "resume", "--all", "--who", "maria", "--why=over")
        assert text.startswith("east-1: ")
        assert re.search("paused: until .* -> no", text)
        again = max(first + 4, since(text))
        assert "maria: over" in output_of(config, "status", "--cluster", "east-1").partition("waiting")[2]
        stage.send(played(range(again, again + 5)))
        (value, *_) = stage.wait_for(stage.topics.actions, 1, running=[run])
        assert f", runs as {socket.gethostname()}:" in output_of(config, "status", "--cluster", "east-1")
        assert run.terminate() == 0

    action = json.loads(value)
    assert action["data"]["evidence"]["needed_hit_count"] == 2, "the setting was kept by the resumption"
    shown = output_of(config, "policy", "show", "--cluster", "east-1")
    assert "maria" in shown
    assert "over" in shown
    assert "pulsar.avg_shedder.low_hit_count = 2" in shown

    assert output_of(config, "control", "list") == shown
    assert_status_and_rounds_tell_it(stage, config, action)

    actions = stage.values(stage.topics.actions)
    tail = ("actions", "tail", "--from", "earliest")
    assert output_of(config, *tail, "--format", "json", "--no-follow").encode().splitlines() == actions
    remark, nothing = output_of(config, *tail, "--cluster", "west", "--no-follow").splitlines()
    assert remark.startswith("west: no setting and no round of the last day names this cluster")
    assert nothing == f"no record of west on {stage.topics.actions}"
    dry_run = command(*tail, "--dry-run", "--no-follow", "--config", str(config))
    assert (dry_run.stdout, dry_run.stderr) == ("", f"no record on {stage.topics.actions_dry_run}\n")
    assert action["data"]["reason"] in output_of(config, *tail, "--no-follow")

    message = b"".join(each + b"\n" for each in actions)
    for number in (signal.SIGINT, signal.SIGTERM):
        assert_it_ends(number, config, *tail, "--format", "json", message=message)

    why = output_of(config, "actions", "why", action["id"][:8])
    assert action["data"]["reason"] in why
    assert "control   maria: over" in why
    others = why.partition("\nOther bundles of the brokers that fired: ")[2].splitlines()[0]
    assert others
    assert "acted" not in others, "the only one that acted is the action that is asked about"
    assert f"no action {'0' * 8} on" in output_of(config, "actions", "why", "0" * 8, code=8)

    assert "low_hit_count = 2  # configured: 3\n" in output_of(elsewhere, "control", "list")
    text = output_of(elsewhere, "control", "delete", "--all", "--why=as before")
    assert "low_hit_count: 2 -> 3\n" in text
    assert "computed with" not in text
    assert output_of(config, "control", "list") == "every cluster is as configured\n"


def assert_status_and_rounds_tell_it(stage: Stage, config: Path, action: dict[str, Any]) -> None:
    """Check what is in force as the controller applied it, and the round of an action."""
    text = output_of(config, "status", "--cluster", "east-1")
    assert "east-1 (pulsar): acts, round " in text
    assert "control     maria at " in text
    assert "pulsar.avg_shedder.low_hit_count = 2" in text
    assert "waiting" not in text
    (found,) = json.loads(output_of(config, "status", "-o", "json"))
    newest = json.loads(stage.values(stage.topics.audit)[-1])["data"]
    assert found["cluster"] == "east-1"
    assert found["round"] == newest["round"]
    assert found["epoch"] > 1_700_000_000, "at least the time of the start"
    assert [each["id"] for each in found["in_flight"]] == [each["id"] for each in newest["in_flight"]]
    assert "no round of west is on" in output_of(config, "status", "--cluster", "west", code=8)

    number = str(action["data"]["round"])
    shown = output_of(config, "rounds", "show", "--cluster", "east-1", number)
    assert f"round {number} of east-1 (pulsar)" in shown
    assert f"Actions of the round: {action['id']}" in shown
    assert "no round 1 of east-1 on" in output_of(
        config, "rounds", "show", "--cluster", "east-1", "1", code=8
    )
    every = ("rounds", "tail", "--from", "earliest", "--no-follow")
    assert f"east-1 round {number} [act] 1 unload" in output_of(config, *every)
    audit = stage.values(stage.topics.audit)
    assert output_of(config, *every, "--format", "json").encode().splitlines() == audit


def assert_it_ends(number: signal.Signals, config: Path, *arguments: str, message: bytes) -> None:
    """A command that follows a topic prints this, waits for more, and prints nothing more when it is told to stop."""
    log = config.with_suffix(f".{number.name}")
    with Child((*_AT_A_TERMINAL, *arguments, "--config", str(config)), log) as following:
        following.until(lambda: log.read_bytes() == message, "what is on the topic already")
        following.process.send_signal(number)
        assert following.wait() == 0
    assert log.read_bytes() == message
