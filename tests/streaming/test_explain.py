"""`trimtab explain` on the recording of three real brokers: what is known, what holds it, and what would have to change."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policies.shedding.registry import POLICIES
from state.pulsar.masks import MASK_REASONS
from streaming.cli import main
from streaming.operators.remedies import REMEDIES, examined_remedy_of, remedy_of

ROOT = Path(__file__).parents[2]
RECORDING = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz")
SETTINGS = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.toml")
MOVED = "shop/orders/0x80000000_0xa0000000"


def explain(*arguments: str, recording: str = RECORDING) -> Result:
    return CliRunner().invoke(main, ["explain", "--config", SETTINGS, "--recording", recording, *arguments])


def tree(*arguments: str, recording: str = RECORDING) -> dict[str, Any]:
    """What the command prints as JSON about the recording's only cluster."""
    done = explain(*arguments, "-o", "json", recording=recording)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def reasons(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {each["outcome"]: each for each in found["reasons"]}


def test_before_its_broker_stood_out_for_long_enough_that_is_what_has_to_change() -> None:
    found = tree("--at", "2026-11-21T13:23:18Z", MOVED)
    why = reasons(found)
    assert why["hit-count"]["detail"].startswith(
        "broker-1:8080 with broker-2:8080: hit-count 1/2 (difference_points 54.5"
    )
    assert why["hit-count"]["remedy"] == "its broker has to stand out for more rounds in a row"
    assert found["as_of"] == "2026-11-21T13:23:10.000Z"


def test_after_its_unload_it_is_in_flight_and_then_in_its_cooldown_until_a_moment_that_is_named() -> None:
    flying = reasons(tree("--at", "2026-11-21T13:24:10Z", MOVED))
    assert flying["in-flight"]["detail"] == (
        "no result of its unload has come; it expires at 2026-11-21T13:26:20.000Z"
    )
    resting = reasons(tree("--at", "2026-11-21T13:27:00Z", MOVED))
    assert resting["cooldown"]["detail"] == "it rests until 2026-11-21T13:53:20.000Z"
    assert "bundle_cooldown_s" in resting["cooldown"]["remedy"]


def test_what_replay_says_of_a_round_is_what_it_says() -> None:
    replayed = CliRunner().invoke(main, ["replay", "--config", SETTINGS, "--only", "rounds", RECORDING])
    rounds = {(data := json.loads(line)["data"])["round"]: data for line in replayed.stdout.splitlines()}
    found = tree("broker-1:8080", "--at", "2026-11-21T13:25:00Z")
    summary = rounds[found["round"]]
    assert summary["end"] == found["as_of"]
    load = next(each for each in summary["brokers"] if each["broker"] == "broker-1:8080")
    assert f"broker-1:8080 is at {load['usage_points']:.1f} %" in dict(found["knows"])["usage"]


def test_a_broker_is_told_with_its_bundles_and_what_holds_each() -> None:
    found = tree("broker-2:8080")
    assert dict(found["knows"])["bundles"] == "5: 2 in-flight, 2 cooldown, 1 may move"
    assert found["kind"] == "broker"
    assert found["history"]["broker-2:8080 fired"] > 0


def test_history_that_is_too_short_is_said_as_such() -> None:
    found = tree("--at", "2026-11-21T13:24:10Z", MOVED)
    (warning,) = found["warnings"]
    assert "only 145 s were replayed" in warning
    assert "cooldowns (1800 s), the hourly budget (3600 s)" in warning
    assert "averages" not in warning, "one sample of ten seconds"


def test_last_limits_what_is_replayed() -> None:
    found = tree("--at", "2026-11-21T13:25:00Z", "--last", "60s", MOVED)
    assert found["replayed_from"] > "2026-11-21T13:23:59"
    assert found["rounds_count"] < 7


@pytest.fixture
def kept_up(tmp_path: Path) -> str:
    """The recording with a control event: a broker and a namespace under maintenance, another broker drained."""
    spell = {"since": "2026-11-21T13:00:00Z", "until": None, "who": "ann", "why": "new disk"}
    event = {
        "specversion": "1.0",
        "id": "upkeep",
        "source": "/operator",
        "type": "trimtab.control.v1",
        "subject": "control",
        "time": "2026-11-21T13:21:00Z",
        "cluster": "lab",
        "data": {
            "maintenance_brokers": {"broker-1:8080": spell},
            "maintenance_namespaces": {"shop/orders": spell},
            "drained_brokers": {"broker-2:8080": spell},
        },
    }
    file = tmp_path / "recording.ndjson"
    file.write_bytes(json.dumps(event).encode() + b"\n" + gzip.decompress(Path(RECORDING).read_bytes()))
    return str(file)


def test_what_is_under_maintenance_or_drained_is_named(kept_up: str) -> None:
    first = tree("broker-1:8080", recording=kept_up)
    assert "may move" not in dict(first["knows"])["bundles"]
    assert reasons(first)["maintenance"] == {
        "outcome": "maintenance",
        "detail": "broker-1:8080 is under maintenance: it is neither source nor destination",
        "remedy": "the maintenance of its broker or namespace has to end: `trimtab maintenance end`",
    }
    second = reasons(tree("broker-2:8080", recording=kept_up))
    assert second["drained"]["detail"] == (
        "broker-2:8080 is drained: all its bundles leave it, and it receives none"
    )
    assert second["drained"]["remedy"] == "the drain has to end: `trimtab maintenance end`"
    assert {"maintenance", "drained"}.isdisjoint(reasons(tree("broker-3:8080", recording=kept_up)))
    bundle = tree(MOVED, recording=kept_up)
    assert "its namespace is under maintenance" in [each["detail"] for each in bundle["reasons"]]


def test_a_dry_run_is_named_as_what_keeps_everything() -> None:
    assert reasons(tree(MOVED))["dry-run"]["remedy"] == 'mode has to be "act"'


def test_the_text_has_a_remedy_below_each_reason() -> None:
    text = explain("--at", "2026-11-21T13:23:18Z", MOVED).stdout
    assert re.search(r"hit-count +broker-1:8080 with .*\n +→ its broker has to stand out", text)
    assert text.startswith(f"bundle {MOVED} of lab, after round ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop/orders/0x0_0x1"], "no bundle shop/orders/0x0_0x1 in lab: give the full name"),
        (["broker-9:8080"], "no broker broker-9:8080 in lab"),
        ([MOVED, "--cluster", "west"], "nothing of west was reported in that time"),
        ([MOVED, "--at", "2020-01-01T00:00:00Z"], "nothing was reported in that time"),
        ([MOVED, "--at", "2026-11-21T13:21:26Z"], "no round of lab has ended in that time"),
        ([MOVED, "--at", "noon"], "'noon' is not RFC 3339"),
    ],
)
def test_what_is_not_known_is_refused_with_the_remedy(arguments: list[str], message: str) -> None:
    done = explain(*arguments)
    assert done.exit_code != 0
    assert message in done.output


def test_there_is_a_remedy_for_every_outcome_that_keeps_a_bundle_where_it_is() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text()
    tables = page[page.index("## Outcomes of a bundle") : page.index("## What became of an action")]
    told = {
        name.split()[0]
        for line in tables.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert {"cooldown", "in-flight", "budget"} <= told
    assert (set(MASK_REASONS) | told) - {"", "acted"} <= set(REMEDIES)
    assert remedy_of("acted") == ""


def test_there_is_a_remedy_for_everything_that_a_policy_says_of_a_pair_or_broker() -> None:
    for policy in POLICIES:
        mute = [outcome for outcome in policy.outcomes if not examined_remedy_of(outcome, policy.name)]
        assert mute == ["fired"], policy.name
