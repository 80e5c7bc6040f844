"""What commands make of what is, is no longer or was never on a topic: the newest rounds, tails, and records that cannot be read."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from streaming.cli import cluster_status, control, main, published
from streaming.cli.published import TAIL_COUNT, UnreadableEvent, epoch_of, is_round_of, is_stale, read_round
from streaming.contract.encode import SkippedRange, encode_skipped
from streaming.process.exits import NOT_FOUND, REFUSED, WRONG_USE, Refused
from streaming.settings import load
from streaming.transport.errors import NoAnswer
from streaming.transport.side import PartitionEpochs
from tests.streaming.records import BEAT, beat_on_topic, on_topic
from tests.streaming.topics import ACTION, SUMMARY, Records, Topic, run

NEWER = SUMMARY | {"data": {"round": 7}}
"""A summary without the fields that today's summaries have."""


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


BROKER = "broker-1:8080"
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


def test_a_summary_that_cannot_be_read_is_not_taken_for_a_missing_one():
    broken = SUMMARY | {"data": {"round": 7}}
    value = json.dumps(broken).encode()
    assert is_round_of(value, cluster=SUMMARY["cluster"], number=7)
    assert not is_round_of(value, cluster=SUMMARY["cluster"], number=8)
    with pytest.raises(UnreadableEvent, match=r"not a trimtab\.round\.v1: .*another version of trimtab"):
        read_round(value)


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
