"""What rounds say of one broker or bundle: `trimtab rounds show --broker` and `--bundle`."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from policies.shedding.registry import POLICIES
from state.pulsar.masks import MASK_REASONS
from streaming.cli import main
from streaming.cli.rounds import (
    NEWEST_COUNT,
    REMEDIES,
    about_text,
    examined_remedy_of,
    newest_about,
)
from streaming.transport.side import TopicRecord
from tests.streaming.records import on_topic
from tests.streaming.topics import SUMMARY, run

ROOT = Path(__file__).parents[2]
RECORDING = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.ndjson.gz")
SETTINGS = str(ROOT / "tests" / "recordings" / "pulsar-3-brokers.toml")
MOVED = "shop/orders/0x80000000_0xa0000000"
BROKER = "broker-1:8080"


@cache
def recorded() -> list[TopicRecord]:
    """The audit topic of a recorded cluster, whose decisions are those of a dry-run."""
    done = CliRunner().invoke(main, ["replay", "--config", SETTINGS, "--only", "rounds", RECORDING])
    return [record(line, offset) for offset, line in enumerate(done.stdout_bytes.splitlines())]


def record(value: bytes, offset: int = 0, epoch: int = 1) -> TopicRecord:
    return on_topic(value, key=b"lab", offset=offset, epoch=epoch)


def test_a_bundle_is_shown_with_its_outcome_and_what_was_said_of_its_broker():
    found = [event.data for event in newest_about(recorded(), MOVED, is_bundle=True)]
    assert 0 < len(found) <= NEWEST_COUNT
    assert [data.round for data in found] == sorted((data.round for data in found), reverse=True)
    for data in found:
        assert {row.bundle for row in data.candidates.heaviest} <= {MOVED}
        owners = {row.broker for row in (*data.candidates.heaviest, *data.splits.heaviest)}
        assert {row.broker for row in data.brokers} == owners
        assert all({row.high_broker, row.low_broker} & owners for row in data.examined.heaviest)
    text = about_text(found)
    (row, *_) = found[0].candidates.heaviest
    assert f"{MOVED}  at {row.broker}  {row.detail}" in text
    assert "What would have to change:" in text
    assert "trimtab mode act" in text


def test_a_broker_is_always_shown_with_its_usage_or_as_missing():
    found = newest_about(recorded(), BROKER, is_bundle=False)
    assert len(found) == NEWEST_COUNT
    assert f"{BROKER} is at " in about_text([found[0].data])
    dead = newest_about(recorded()[:-15], "broker-3:8080", is_bundle=False)
    shown = about_text([event.data for event in dead])
    assert "broker-3:8080 is at " in shown or "broker-3:8080 did not report" in shown


@pytest.mark.parametrize(
    ("subject", "is_bundle"), [("shop/orders/0x0_0x1", True), ("broker-9:8080", False), (BROKER, True)]
)
def test_what_no_round_names_is_not_found(subject: str, *, is_bundle: bool):
    assert newest_about(recorded(), subject, is_bundle=is_bundle) == []


def test_what_a_replaced_controller_wrote_and_what_cannot_be_read_do_not_count():
    newest = recorded()[-1].value or b""
    garbage = record(f"no event about {BROKER}".encode())
    (found,) = newest_about(
        [record(newest, epoch=7), record(newest, epoch=6), garbage], BROKER, is_bundle=False
    )
    assert found.data.cluster == "lab"


def test_there_is_a_remedy_for_every_outcome_that_keeps_a_bundle_where_it_is():
    page = (ROOT / "docs" / "understand" / "outcomes.md").read_text()
    tables = page[page.index("## Outcomes of a bundle") : page.index("## What became of an action")]
    told = {
        name.split()[0]
        for line in tables.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert {"cooldown", "in-flight", "budget"} <= told
    assert (set(MASK_REASONS) | told) - {"", "acted"} <= set(REMEDIES)
    assert "acted" not in REMEDIES


def test_there_is_a_remedy_for_everything_that_a_policy_says_of_a_pair_or_broker():
    for policy in POLICIES:
        mute = [outcome for outcome in policy.outcomes if not examined_remedy_of(outcome, policy.name)]
        assert mute == ["fired"], policy.name


def test_a_broker_is_shown_without_its_port_and_a_misspelt_one_is_answered(monkeypatch: pytest.MonkeyPatch):
    full = SUMMARY["data"]["brokers_reporting"][0]
    host = full.rpartition(":")[0]
    command = ("rounds", "show", "--cluster", SUMMARY["cluster"], "--broker")
    values = [json.dumps(SUMMARY).encode()]
    assert f"{full} is at " in run(monkeypatch, values, *command, host).output
    assert f"did you mean {full}?" in run(monkeypatch, values, *command, f"x{full}").stderr


NUMBER = SUMMARY["data"]["round"]
NAMED = SUMMARY["data"]["brokers_reporting"][0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"{NUMBER} --broker {NAMED.rpartition(':')[0]}", f"{NAMED} is at "),
        (
            f"{NUMBER} --broker x{NAMED}",
            f"round {NUMBER} of {{}} does not name x{NAMED}: did you mean {NAMED}?",
        ),
        (
            f"{NUMBER} --bundle t/n/0x0_0x1",
            f"round {NUMBER} of {{}} does not name t/n/0x0_0x1: its broker did",
        ),
        (f"99 --broker {NAMED}", "no round 99 of {} on trimtab.audit: `trimtab rounds tail --cluster {} "),
        ("99", "no round 99 of {} on trimtab.audit: `trimtab rounds tail --cluster {} "),
    ],
)
def test_a_round_before_the_newest_is_asked_about_a_broker_or_bundle(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    newer = SUMMARY | {"data": SUMMARY["data"] | {"round": NUMBER + 1}}
    values = [json.dumps(each).encode() for each in (SUMMARY, newer)]
    cluster = SUMMARY["cluster"]
    done = run(monkeypatch, values, "rounds", "show", "--cluster", cluster, *asked.split())
    assert said.replace("{}", cluster) in done.output
    assert f"round {NUMBER + 1}" not in done.output


@pytest.mark.parametrize("option", ["--broker", "--bundle"])
def test_of_a_kafka_cluster_no_round_is_asked_about_a_broker_or_bundle(
    option: str, monkeypatch: pytest.MonkeyPatch
):
    kafka = SUMMARY | {"data": SUMMARY["data"] | {"system": "kafka"}}
    command = ("rounds", "show", "--cluster", SUMMARY["cluster"], option, "101")
    done = run(monkeypatch, [json.dumps(kafka).encode()], *command)
    assert done.exit_code == 2, (done.output, done.exception)
    assert f"trimtab status --brokers --cluster {SUMMARY['cluster']}" in done.stderr


def test_a_word_in_place_of_a_rounds_number_is_answered_with_how_to_see_the_newest(
    monkeypatch: pytest.MonkeyPatch,
):
    done = run(monkeypatch, [], "rounds", "show", "--cluster", "sample", "latest")
    assert done.exit_code == 2
    assert "'latest' is no number of a round; leave it out for the newest" in done.stderr
