"""What commands make of the records on a topic: what the newest rounds say of a broker or bundle, and records that cannot be read."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from policies.shedding.registry import POLICIES
from state.pulsar.masks import MASK_REASONS
from streaming.cli import main, published
from streaming.cli.rounds import (
    NEWEST_COUNT,
    REMEDIES,
    about_text,
    examined_remedy_of,
    newest_about,
)
from streaming.contract.encode import encode_leader
from streaming.ports.reading import TopicRecord
from streaming.process.exits import REFUSED
from tests.streaming.records import on_topic

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
    assert "acted" not in REMEDIES


def test_there_is_a_remedy_for_everything_that_a_policy_says_of_a_pair_or_broker():
    for policy in POLICIES:
        mute = [outcome for outcome in policy.outcomes if not examined_remedy_of(outcome, policy.name)]
        assert mute == ["fired"], policy.name


GOLDEN = Path(__file__).with_name("golden_messages") / "v0.1.0"
ACTION = json.loads((GOLDEN / "trimtab.action.unload.v1.json").read_text())
SUMMARY = json.loads((GOLDEN / "trimtab.round.v1.json").read_text())
NEWER = SUMMARY | {"data": {"round": 7}}
"""A summary without the fields that today's summaries have."""


class Topic:
    """A reader of a topic that holds these values."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_to_end(self) -> Iterator[TopicRecord]:
        for offset, value in enumerate(self._values):
            yield on_topic(value, key=ACTION["cluster"].encode(), offset=offset)


def run(monkeypatch: pytest.MonkeyPatch, values: Sequence[bytes], *arguments: str) -> Result:
    monkeypatch.setattr(published, "output_reader", lambda *_, **__: Topic(values))
    return CliRunner().invoke(main, [*arguments])


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["status"], id="status"),
        pytest.param(["actions", "list", "--pending"], id="actions list"),
        pytest.param(["approve", "4f0021f6", "--why=x"], id="approve"),
        pytest.param(["reject", "4f0021f6", "--why=x"], id="reject"),
        pytest.param(["rounds", "show", "--cluster", SUMMARY["cluster"]], id="rounds show"),
    ],
)
def test_a_newest_summary_of_no_use_is_named_with_its_place(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
):
    done = run(monkeypatch, [b"junk", json.dumps(NEWER).encode()], *command)
    assert done.exit_code == REFUSED, (done.output, done.exception)
    assert "trimtab.audit, offset 1: not a trimtab.round.v1: " in done.stderr
    assert "it may be from another version of trimtab" in done.stderr


def test_why_names_an_action_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch):
    broken = ACTION | {"data": {"round": 7}}
    done = run(monkeypatch, [json.dumps(broken).encode()], "actions", "why", ACTION["id"])
    assert done.exit_code == REFUSED, (done.output, done.exception)
    assert "trimtab.actions, offset 0: not an action: " in done.stderr
    assert "it may be from another version of trimtab" in done.stderr


def test_people_are_told_who_leads_and_programs_get_actions_alone(monkeypatch: pytest.MonkeyPatch):
    leads, decided = encode_leader("main", epoch=7, time_ms=0), json.dumps(ACTION).encode()
    tail = ("actions", "tail", "--from", "earliest", "--no-follow")
    shown = run(monkeypatch, [leads, decided, b"junk"], *tail)
    assert shown.stdout.splitlines()[0].endswith("controller main has a new leader, epoch 7")
    assert ACTION["id"] in shown.stdout
    assert shown.stderr.startswith("trimtab.actions, offset 2: not an action: ")
    piped = run(monkeypatch, [leads, decided], *tail, "-o", "json")
    assert [json.loads(line) for line in piped.stdout.splitlines()] == [ACTION]
