"""What commands make of the records on a topic: actions and rounds as people see them, one broker or bundle, and records that cannot be read."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from click.testing import CliRunner, Result

from policies.shedding.registry import POLICIES
from state.outputs import RoundSummary
from state.pulsar.masks import MASK_REASONS
from streaming.cli import cluster_status, control, main, published
from streaming.cli.actions import Action, has_id, leader_text, read_action, read_leader, tail_text, why_text
from streaming.cli.published import (
    TAIL_COUNT,
    UnreadableEvent,
    epoch_of,
    is_round_of,
    is_stale,
    read_round,
)
from streaming.cli.rounds import (
    NEWEST_COUNT,
    REMEDIES,
    about_text,
    examined_remedy_of,
    newest_about,
)
from streaming.contract.encode import SkippedRange, encode_leader, encode_skipped
from streaming.process.exits import NOT_FOUND, REFUSED, WRONG_USE, Refused
from streaming.settings import load
from streaming.transport.errors import NoAnswer
from streaming.transport.side import PartitionEpochs, TopicRecord
from tests.streaming.golden import folders, messages
from tests.streaming.records import BEAT, beat_on_topic, on_topic

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


GOLDEN = Path(__file__).with_name("golden_messages") / "v1.0.0"
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


class Records(Topic):
    """A reader of a topic that holds these records."""

    def __init__(self, records: Sequence[TopicRecord]) -> None:
        super().__init__([])
        self._records = records

    def read_to_end(self) -> Iterator[TopicRecord]:
        yield from self._records


def run(monkeypatch: pytest.MonkeyPatch, values: Sequence[bytes], *arguments: str) -> Result:
    side = SimpleNamespace(reader=lambda *_, **__: Topic(values))
    monkeypatch.setattr(published, "output_side", lambda _: side)
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


REPORT = {**ACTION, "type": "trimtab.pulsar.load-report.v1", "data": {}}
RESULT = {**ACTION, "type": "trimtab.action-result.v1", "data": {}}


@pytest.mark.parametrize(
    ("on_input", "said"),
    [
        ([RESULT, REPORT], "catching up ("),
        ([{**REPORT, "type": "trimtab.pulsar.broker-load.v1"}], "catching up ("),
        ([RESULT], "no newer round: no reports come"),
        ([], "no newer round"),
    ],
    ids=["reports", "extensible load manager", "results only", "nothing"],
)
def test_status_looks_for_reports_where_rounds_are_late(
    monkeypatch: pytest.MonkeyPatch, on_input: list[dict[str, Any]], said: str
):
    name = SUMMARY["source"].rpartition("/")[2]
    beat = msgspec.structs.replace(BEAT, name=name)
    held = {
        "trimtab.audit": [on_topic(json.dumps(SUMMARY).encode(), key=SUMMARY["cluster"].encode())],
        "trimtab.beats": [beat_on_topic(beat, at_ms=round(time.time() * 1000))],
        "trimtab.input": [
            on_topic(json.dumps(each).encode(), key=SUMMARY["cluster"].encode()) for each in on_input
        ],
        "trimtab.control": [],
    }
    side = SimpleNamespace(reader=lambda topic, **_: Records(held[topic]))
    for module in (published, cluster_status, control):
        monkeypatch.setattr(module, "output_side" if module is published else "input_side", lambda _: side)
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.splitlines()[1].strip().startswith(said), done.stdout


def test_a_watched_status_goes_on_after_an_outage(monkeypatch: pytest.MonkeyPatch):
    errors = [Refused("no broker answers"), Refused("the topic may not be read")]
    errors[0].__cause__ = NoAnswer("gone", is_transient=True)

    def reader(*_: object, **__: object) -> Topic:
        raise errors.pop(0)

    monkeypatch.setattr(published, "output_side", lambda _: SimpleNamespace(reader=reader))
    monkeypatch.setattr("streaming.cli.status.time.sleep", lambda _: None)
    done = CliRunner().invoke(main, ["status", "--watch"])
    assert done.exit_code == REFUSED
    assert done.stderr == (
        "no broker answers\nIt is tried again every 5 s.\nError: the topic may not be read\n"
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_cluster_that_fell_silent_is_looked_for_beside_one_that_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, named: bool
):
    """The settings name it, and it was silent for an hour and more; or nobody does, and it was for less."""
    now_ms = round(time.time() * 1000)
    silent_ms = now_ms - (7_200_000 if named else 600_000)
    records = [
        on_topic(json.dumps({**SUMMARY, "cluster": name}).encode(), key=name.encode(), at_ms=at_ms)
        for name, at_ms in (("east-2", silent_ms), ("east-1", now_ms))
    ]

    def reader(_: str, *, begin: int) -> Records:
        return Records([record for record in records if record.timestamp >= begin])

    monkeypatch.setattr(published, "output_side", lambda _: SimpleNamespace(reader=reader))
    file = tmp_path / "trimtab.toml"
    file.write_text('[clusters."east-2".pulsar]\nshadow = true\n' if named else "")
    newest = published.Newest(load(file=file, flags={}, environ={}).settings)
    newest.look_back()
    assert newest.clusters == {"east-1", "east-2"}


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("control list", 0, "so what the controllers are configured with is not known: gone\n"),
        ("control list --cluster lab", 0, "so what the controllers are configured with is not known: gone\n"),
        ("status", REFUSED, "Error: gone\n"),
    ],
)
def test_what_an_audit_topic_that_cannot_be_read_means_is_said_once_and_for_what_was_asked(
    monkeypatch: pytest.MonkeyPatch, command: str, code: int, said: str
):
    def refuse(*_: object, **__: object) -> Topic:
        raise Refused("gone")

    monkeypatch.setattr(published, "output_side", lambda _: SimpleNamespace(reader=refuse))
    monkeypatch.setattr(control, "input_side", lambda _: SimpleNamespace(reader=lambda *_, **__: Topic([])))
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == code, (done.output, done.exception)
    assert done.stderr.count("gone") == 1
    assert done.stderr.endswith(said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "status",
            "from the last day: no controller runs: start one with `trimtab run`, or wait if it is starting",
        ),
        ("status --cluster lab", "no round of lab is on trimtab.audit from the last day: no controller runs"),
        ("rounds show", "no cluster has a round of the last day: `trimtab status` says why"),
        ("rounds show --cluster lab", "no cluster has a round of the last day: `trimtab status` says why"),
        ("actions list --cluster lab", "no cluster has a round of the last day: `trimtab status` says why"),
    ],
)
def test_where_no_cluster_has_a_round_the_next_step_is_named(
    monkeypatch: pytest.MonkeyPatch, command: str, said: str
):
    done = run(monkeypatch, [], *command.split())
    assert done.exit_code == NOT_FOUND
    assert said in done.stderr


def test_a_round_of_the_only_cluster_needs_no_name_and_of_several_the_names_are_told(
    monkeypatch: pytest.MonkeyPatch,
):
    mine = json.dumps(SUMMARY).encode()
    shown = run(monkeypatch, [mine], "rounds", "show")
    assert shown.stdout == run(monkeypatch, [mine], "rounds", "show", "--cluster", SUMMARY["cluster"]).stdout
    assert f"round {SUMMARY['data']['round']} of {SUMMARY['cluster']}" in shown.stdout

    other = json.dumps({**SUMMARY, "cluster": "west-1"}).encode()
    several = run(monkeypatch, [mine, other], "rounds", "show")
    assert several.exit_code == WRONG_USE
    assert (
        f"several clusters have rounds: give --cluster, one of {SUMMARY['cluster']}, west-1" in several.stderr
    )


def test_without_a_round_it_is_not_said_that_nothing_waits(monkeypatch: pytest.MonkeyPatch):
    done = run(monkeypatch, [], "actions", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "what waits is not known: `trimtab status` says why" in done.stderr


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


def test_a_tail_of_rounds_says_what_a_start_skipped_and_programs_get_rounds_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    gap = SkippedRange(topic="in", partition=0, read_until="5", goes_on_from="9", records_count=4)
    values = [encode_skipped([gap], name="main", time_ms=0), json.dumps(SUMMARY).encode()]
    shown = run(monkeypatch, values, "rounds", "tail", "--no-follow")
    told = "controller main skipped lost input: in, partition 0: 4 records after 5, reading goes on from 9"
    assert (shown.stdout.splitlines()[0], shown.stderr) == (f"1970-01-01T00:00:00Z {told}", "")
    piped = run(monkeypatch, values, "rounds", "tail", "--no-follow", "-o", "json")
    assert [json.loads(line) for line in piped.stdout.splitlines()] == [SUMMARY]


@pytest.mark.parametrize("kind", ["rounds", "actions", "rejected"])
def test_a_tail_that_does_not_wait_says_that_it_found_nothing(monkeypatch: pytest.MonkeyPatch, kind: str):
    done = run(monkeypatch, [], kind, "tail", "--no-follow")
    assert (done.exit_code, done.stdout, done.stderr.startswith("no record on trimtab.")) == (0, "", True)
    done = run(monkeypatch, [], kind, "tail", "--from", "1h", "--no-follow", "--cluster", "east-1")
    assert "no record of east-1 on trimtab." in done.stderr
    assert done.stderr.endswith(", since then\n")


@pytest.mark.parametrize("count", [1, 3, TAIL_COUNT, TAIL_COUNT + 2])
def test_a_tail_that_does_not_wait_shows_the_newest_and_how_many_are_earlier(
    monkeypatch: pytest.MonkeyPatch, count: int
):
    rounds = [SUMMARY | {"data": SUMMARY["data"] | {"round": number}} for number in range(count)]
    values = [json.dumps(each).encode() for each in rounds]
    done = run(monkeypatch, values, "rounds", "tail", "--no-follow", "-o", "json")
    assert [json.loads(line)["data"]["round"] for line in done.stdout.splitlines()] == [
        *range(max(0, count - TAIL_COUNT), count)
    ]
    earlier = "2 earlier records not shown: --from earliest --no-follow shows all\n"
    assert done.stderr == (earlier if count > TAIL_COUNT else "")


LEFT = {
    "broker": BROKER,
    "outcome": "in-flight",
    "detail": "in-flight",
    "messages_per_s": 1,
    "bytes_per_s": 1,
}
MAINTENANCE = {
    "brokers": [],
    "namespaces": [],
    "drains": [
        {
            "name": BROKER,
            "since": "2026-11-21T13:00:00.000Z",
            "until": None,
            "who": "maria",
            "why": "new disk",
            "state": "draining",
            "bundles_at_start_count": 4,
            "bundles_left_count": 2,
            "system_bundles_count": 0,
            "system_bundles": [],
        }
    ],
    "bundles_left": {
        "count": 2,
        "outcomes": {"in-flight": 2},
        "heaviest": [LEFT | {"bundle": f"t/n/0x{i}"} for i in range(2)],
    },
}
SHADOW = {"count": 2, "usage": {"mean_points": 40, "max_points": 50, "stdev_points": 5}, "heaviest": []}
DRAINED = SUMMARY | {
    "data": SUMMARY["data"]
    | {"mode": "dry-run", "in_flight": [], "shadow": SHADOW, "maintenance": MAINTENANCE}
}
PRETENDED = " (as if the dry-run had moved 2 bundles): 2 in-flight"


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            ["actions", "list"],
            [
                "nothing waits for approval",
                (
                    "lab: dry-run, its actions are only pretended and none is listed here; bundles with such an action in flight: 2; 2 bundles count as moved: "
                    "see `trimtab actions tail --dry-run --no-follow --cluster lab`"
                ),
            ],
        ),
        (["status"], [f"bundles left{PRETENDED}"]),
        (["rounds", "show", "--cluster", SUMMARY["cluster"]], [f"bundles left{PRETENDED}"]),
        (
            ["rounds", "show", "--cluster", SUMMARY["cluster"], "--broker", BROKER],
            [
                f"the whole cluster, bundles at drained brokers apart: {SUMMARY['data']['reason']}",
                f"Left at drained brokers{PRETENDED}",
            ],
        ),
    ],
)
def test_what_a_dry_run_only_pretends_is_called_so_wherever_it_is_counted(
    monkeypatch: pytest.MonkeyPatch, command: list[str], lines: list[str]
):
    done = run(monkeypatch, [json.dumps(DRAINED).encode()], *command)
    shown = [line.removeprefix("  maintenance").strip() for line in done.stdout.splitlines()]
    assert [line for line in lines if line not in shown] == [], done.output


UNLOAD_EVENT = messages(folders()[0])["trimtab.action.unload.v1"]
ROUND_EVENT = messages(folders()[0])["trimtab.round.v1"]


def action(**data: object) -> Action:
    event = UNLOAD_EVENT | {"data": UNLOAD_EVENT["data"] | data}
    return read_action(json.dumps(event).encode())


def summary(**data: object) -> RoundSummary:
    event = ROUND_EVENT | {"data": ROUND_EVENT["data"] | data}
    return read_round(json.dumps(event).encode()).data


def test_a_line_says_when_where_what_and_why():
    assert tail_text(action(), epoch=1, stale=False) == (
        "2026-11-21T13:23:20Z lab unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080 "
        f"({UNLOAD_EVENT['id']})\n    {UNLOAD_EVENT['data']['reason']}\n"
    )
    assert "where placement chooses" in tail_text(action(destination_broker=None), epoch=1, stale=False)
    assert " [dry-run] " in tail_text(action(dry_run=True), epoch=1, stale=False)
    assert "[epoch 2 is stale: do not obey it]" in tail_text(action(), epoch=2, stale=True)


WHY = """\
unload shop/orders/0x80000000_0xa0000000 broker-1:8080 -> broker-2:8080
broker-1:8080 is at 62.1 % and broker-2:8080 at 7.6 %, 54.5 points apart with 40 allowed, found in 2 rounds in a row, 2 are enough: \
moving shop/orders/0x80000000_0xa0000000 (220 messages/s, 230874 bytes/s)

decided   in round 179526739 of lab, which ended at 2026-11-21T13:23:20Z
by        avg-shedder, high-threshold
until     2026-11-21T13:26:20Z
requires  owner is broker-1:8080, range is 0x80000000_0xa0000000
"""
BOTH_SIDES = """\
Expected load, after this action and the earlier actions of its round
                                             before   after
  source broker-1:8080       bytes_per_s     650,121  419,247
  source broker-1:8080       messages_per_s  1,242    1,022
  destination broker-2:8080  bytes_per_s     160,787  391,662
  destination broker-2:8080  messages_per_s  152      372
"""


def test_why_tells_the_sentence_the_numbers_both_sides_and_what_was_held_back():
    text = why_text(action(), summary(), missing="")
    assert text.startswith(WHY)
    assert "  difference_points       54.5\n" in text
    assert BOTH_SIDES in text
    assert "Looked at: 1 below-threshold, 1 fired\n" in text
    assert re.search(
        r"  broker-1:8080 with broker-2:8080  fired +difference_points 54.5, high_usage_points 62", text
    )
    assert "Other bundles of the brokers that fired: 2 acted, 7 need-met\n" in text
    assert "shop/clicks/0x00000000_0x20000000  at broker-1:8080  need-met  164 messages/s" in text
    others = [other for other in ROUND_EVENT["data"]["actions"] if other != UNLOAD_EVENT["id"]]
    assert f"Other actions of the round: {', '.join(others)}\n" in text


def test_why_without_the_summary_says_so_and_calls_what_it_cannot_know_unknown():
    text = why_text(action(), None, missing="the summary is gone")
    assert text.startswith(WHY)
    assert text.endswith("\nthe summary is gone\n")
    assert "source broker-1:8080       messages_per_s  unknown" in text


def test_why_counts_what_it_does_not_show():
    rows = ROUND_EVENT["data"]["candidates"]["heaviest"]
    many = {
        "count": 130,
        "outcomes": {"need-met": 130},
        "heaviest": [{**rows[0], "bundle": f"t/n/{i}"} for i in range(30)],
    }
    assert "  and 110 more, counted above\n" in why_text(action(), summary(candidates=many), missing="")


def test_why_compares_with_no_measured_load_where_a_dry_run_has_moved_bundles():
    usage = {"mean_points": 50.0, "max_points": 60.0, "stdev_points": 1.0}
    text = why_text(action(), summary(shadow={"count": 3, "usage": usage, "heaviest": []}), missing="")
    assert re.search(r"\n +after \(as if the dry-run had moved 3 bundles\)\n", text)
    assert re.search(r"source broker-1:8080 +bytes_per_s +419,247\n", text), (
        "before, it was measured without them"
    )
    assert "Looked at (as if the dry-run had moved 3 bundles): 1 below-threshold, 1 fired\n" in text
    assert "of the brokers that fired (as if the dry-run had moved 3 bundles): 2 acted" in text


PROPOSAL = UNLOAD_EVENT | {"data": UNLOAD_EVENT["data"] | {"dry_run": True, "proposal": True}}
ANSWER = {
    "id": "approval/1", "proposal_id": PROPOSAL["id"], "kind": "unload", "verdict": "approved", "who": "ann", "why": "looks right",
    "outcome": "acted", "detail": "acted", "action_id": "a1b2c3",
}  # fmt: skip
GONE = {"outcome": "owner-changed", "detail": "it is at broker-3:8080 now", "action_id": None}
NUMBER = ROUND_EVENT["data"]["round"]


@pytest.mark.parametrize(
    ("answers", "expired", "said"),
    [
        ([], [], "carried out only after `trimtab approve`"),
        ([{**ANSWER, "proposal_id": "another"}], [], "carried out only after `trimtab approve`"),
        ([ANSWER], [], f"approved by ann in round {NUMBER} (looks right), carried out as action a1b2c3"),
        (
            [{**ANSWER, **GONE}],
            [],
            f"approved by ann in round {NUMBER} (looks right), but no action was published: it is at broker-3:8080 now",
        ),
        (
            [{**ANSWER, **GONE, "verdict": "rejected", "outcome": "rejected"}],
            [],
            f"rejected by ann in round {NUMBER} (looks right)",
        ),
        ([], [PROPOSAL["id"]], f"it ended without an answer in round {NUMBER}"),
    ],
)
def test_why_of_a_proposal_says_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, answers: list[object], expired: list[str], said: str
):
    approval = {"open_count": 0, "open": [], "expired": expired, "answers": answers}
    counted = ROUND_EVENT | {"data": ROUND_EVENT["data"] | {"approval": approval}}
    values = [json.dumps(each).encode() for each in (PROPOSAL, ROUND_EVENT, counted)]
    done = run(monkeypatch, values, "actions", "why", PROPOSAL["id"][:8])
    assert f"(a proposal: {said})\n" in done.stdout, done.output


def test_why_of_a_proposal_names_the_other_proposals_of_its_round():
    row = {
        "kind": "unload",
        "bundle": "t/n/1",
        "source_broker": "b1",
        "destination_broker": None,
        "expires_at": "",
    }
    rows = [{**row, "id": f"other-{of}", "round": of} for of in (NUMBER, NUMBER - 1)]
    approval = {"open_count": 2, "open": rows, "expired": [], "answers": []}
    text = why_text(action(dry_run=True, proposal=True), summary(approval=approval), missing="")
    assert f"Other proposals of the round: other-{NUMBER}\n" in text


def test_why_names_who_changed_the_settings_in_force():
    by = {
        "id": "c",
        "time": "2026-11-21T13:00:00.000Z",
        "who": "maria",
        "why": "the sale",
        "arrived_late": False,
        "resumed_at": None,
        "problem": None,
    }
    assert "  control   maria: the sale\n" in why_text(action(), summary(control=by), missing="")


def test_an_action_of_a_kind_that_is_not_known_yet_is_shown_all_the_same():
    data = {name: value for name, value in UNLOAD_EVENT["data"].items() if not name.endswith("_broker")}
    event = UNLOAD_EVENT | {"type": "trimtab.action.throttle.v1", "subject": "reassignments", "data": data}
    read = read_action(json.dumps(event).encode())
    assert tail_text(read, epoch=None, stale=False).startswith(
        "2026-11-21T13:23:20Z lab throttle reassignments ("
    )
    assert why_text(read, None, missing="")


def test_a_split_says_where_it_cuts_what_and_what_each_child_takes_over():
    split = messages(folders()[-1])["trimtab.action.split.v1"]
    read = read_action(json.dumps(split).encode())
    assert f" split {split['subject']} at {split['data']['broker']} (" in tail_text(
        read, epoch=1, stale=False
    )
    text = why_text(read, None, missing="")
    for child, carried in split["data"]["expected"].items():
        assert f"  {child}  bytes_per_s " in text
        assert carried["bytes_per_s"] > 0


def test_a_summary_that_cannot_be_read_is_not_taken_for_a_missing_one():
    broken = ROUND_EVENT | {"data": {"round": 7}}
    value = json.dumps(broken).encode()
    assert is_round_of(value, cluster=ROUND_EVENT["cluster"], number=7)
    assert not is_round_of(value, cluster=ROUND_EVENT["cluster"], number=8)
    with pytest.raises(UnreadableEvent, match=r"not a trimtab\.round\.v1: .*another version of trimtab"):
        read_round(value)


@pytest.mark.parametrize("value", [b"junk", b"{}", json.dumps(ROUND_EVENT).encode()])
def test_a_record_that_is_no_action_is_named_and_never_shown_as_one(value: bytes):
    with pytest.raises(UnreadableEvent):
        read_action(value)


@pytest.mark.parametrize(
    ("headers", "epoch"),
    [
        ([("trimtab-epoch", b"12")], 12),
        ([], None),
        ([("trimtab-epoch", b"x")], None),
        ([("other", b"1")], None),
    ],
)
def test_the_epoch_is_read_from_its_header(headers: list[tuple[str, bytes]], epoch: int | None):
    assert epoch_of(headers) == epoch


def test_an_epoch_is_stale_only_below_the_highest_of_its_source_and_partition():
    epochs = PartitionEpochs()
    said = [(0, "a", 2), (0, "other", 1), (0, "a", 3), (1, "a", 2), (0, "a", 2), (0, "a", 3), (0, "a", None)]
    assert [is_stale(epochs, *each) for each in said] == [False, False, False, False, True, False, False]


def test_a_take_over_is_told_in_a_line_and_is_no_action():
    value = encode_leader("main", epoch=7, time_ms=0)
    leader = read_leader(value)
    assert leader_text(leader) == "1970-01-01T00:00:00Z controller main has a new leader, epoch 7\n"
    assert not has_id(value, leader.id), "`actions why` looks for actions"
    assert read_leader(json.dumps(UNLOAD_EVENT).encode()) is None
    assert read_leader(b"junk") is None


def test_an_action_is_found_by_the_beginning_of_its_id():
    value = json.dumps(UNLOAD_EVENT).encode()
    assert has_id(value, UNLOAD_EVENT["id"][:6])
    assert not has_id(value, UNLOAD_EVENT["id"][1:7])
    assert not has_id(b"junk", "jun")


MISSPELT = SUMMARY["cluster"] + "x"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["rounds", "tail", "--no-follow", "--from", "earliest"], 0),
        (["actions", "tail", "--no-follow"], 0),
        (["rejected", "tail", "--no-follow"], 0),
        (["rounds", "show"], NOT_FOUND),
        (["rounds", "show", "--bundle", "t/n/0x0_0x1"], NOT_FOUND),
        (["actions", "list"], NOT_FOUND),
        (["approve", "4f0021f6", "--why=x"], NOT_FOUND),
        (["status"], NOT_FOUND),
    ],
)
def test_a_misspelt_cluster_is_answered_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, command: list[str], code: int
):
    values = [json.dumps(SUMMARY).encode()]
    done = run(monkeypatch, values, *command, "--cluster", MISSPELT)
    assert (done.exit_code, done.stdout) == (code, "")
    assert MISSPELT in done.stderr
    assert f"did you mean {SUMMARY['cluster']}?" in done.stderr


def test_what_is_not_there_has_the_exit_code_for_it(monkeypatch: pytest.MonkeyPatch):
    for command in (["actions", "why", "4f0021f6"], ["rejected", "show", "t/0@1"]):
        assert run(monkeypatch, [], *command).exit_code == NOT_FOUND


def test_a_word_in_place_of_a_rounds_number_is_answered_with_how_to_see_the_newest(
    monkeypatch: pytest.MonkeyPatch,
):
    done = run(monkeypatch, [], "rounds", "show", "--cluster", "sample", "latest")
    assert done.exit_code == 2
    assert "'latest' is no number of a round; leave it out for the newest" in done.stderr
