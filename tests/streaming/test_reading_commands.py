"""How the commands that read topics treat records that they cannot read, and records that are no actions."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main, published
from streaming.contract.encode import encode_leader
from streaming.process.exits import REFUSED
from streaming.transport.side import TopicRecord

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
            yield TopicRecord(
                key=ACTION["cluster"].encode(),
                value=value,
                timestamp=0,
                partition=0,
                offset=offset,
                headers=(),
            )


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
def test_a_newest_summary_that_cannot_be_read_is_named_with_its_place(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    done = run(monkeypatch, [b"junk", json.dumps(NEWER).encode()], *command)
    assert done.exit_code == REFUSED, (done.output, done.exception)
    assert "trimtab.audit, offset 1: not a trimtab.round.v1: " in done.stderr
    assert "it may be from another version of trimtab" in done.stderr


def test_why_names_an_action_that_it_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ACTION | {"data": {"round": 7}}
    done = run(monkeypatch, [json.dumps(broken).encode()], "actions", "why", ACTION["id"])
    assert done.exit_code == REFUSED, (done.output, done.exception)
    assert "trimtab.actions, offset 0: not an action: " in done.stderr
    assert "it may be from another version of trimtab" in done.stderr


def test_people_are_told_who_leads_and_programs_get_actions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    leads, decided = encode_leader("main", epoch=7, time_ms=0), json.dumps(ACTION).encode()
    tail = ("actions", "tail", "--from", "earliest", "--no-follow")
    shown = run(monkeypatch, [leads, decided, b"junk"], *tail)
    assert shown.stdout.splitlines()[0].endswith("controller main has a new leader, epoch 7")
    assert ACTION["id"] in shown.stdout
    assert shown.stderr.startswith("trimtab.actions, offset 2: not an action: ")
    piped = run(monkeypatch, [leads, decided], *tail, "-o", "json")
    assert [json.loads(line) for line in piped.stdout.splitlines()] == [ACTION]
