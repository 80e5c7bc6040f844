"""What `trimtab doctor` makes of what it found: each check says what is wrong and what to do, and nothing where all is well."""

import re
import threading
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from state.outputs import OtherBalancers, RoundSummary
from streaming.contract.beat import Beat, encode
from streaming.operators.doctor import disk as disks
from streaming.operators.doctor import looking, report
from streaming.operators.doctor.beating import processes
from streaming.operators.doctor.disk import Elsewhere, checkpoint_seen
from streaming.operators.doctor.facts import (
    CheckpointSeen,
    Facts,
    Heard,
    InputSeen,
    Process,
    RejectedSeen,
    SideSeen,
)
from streaming.operators.doctor.findings import Finding, Missed
from streaming.operators.doctor.looking import attempt
from streaming.operators.doctor.report import CHECKS, exit_code_of, judge, report_text
from streaming.operators.doctor.sent import ahead_by_sender
from streaming.operators.round_events import ROUND_TYPE, Round
from streaming.ports.checkpoint import card_of
from streaming.ports.marker import Checkpoint, Marker
from streaming.ports.reading import TopicRecord
from streaming.ports.seen import BrokersSeen, Denied, TopicsSeen
from streaming.ports.starts import Start
from streaming.ports.topics import Difference, Unreachable
from streaming.process.exits import OK, REFUSED, UNREACHABLE, Refused
from streaming.pulsar.admin.http import ahead_by_date
from streaming.settings import ControllerSettings, InputSettings, SecuritySettings, Settings, SparkSettings
from streaming.spark import starts
from tests.streaming.disk import Disk, lay_out
from tests.streaming.summaries import CONTROL, ROUND, THROTTLE, of_kafka

NOW_MS = 500_000
"""Twenty seconds after the end of the round below."""
SETTINGS = Settings()
CARD = msgspec.structs.replace(card_of(SETTINGS), trimtab_version="0.1.0", spark_version="4.2.1")
LEADER = Process(
    controller="trimtab",
    instance="a:1",
    epoch=7,
    batch=42,
    version="0.1.0",
    role="leader",
    problem="",
    age_s=2.0,
    runs=True,
    ahead_s=-0.01,
)
QUIET = msgspec.structs.replace(
    ROUND,
    brokers_missing_count=0,
    other_balancers=OtherBalancers(shedding_brokers=[], splitting_brokers=[], unknown_brokers=[]),
)


def heard(data: RoundSummary = QUIET, *, epoch: int | None = 7, **fields: Any) -> tuple[Heard, ...]:
    data = msgspec.structs.replace(data, **fields)
    event = Round(
        id="", source="/trimtab/trimtab", type=ROUND_TYPE, cluster=data.cluster, time=data.end, data=data
    )
    return (Heard(event=event, epoch=epoch),)


def side(
    *,
    brokers: BrokersSeen | Missed | None = None,
    topics: TopicsSeen | Missed | None = None,
    url: str = "kafka://k:9092",
) -> tuple[SideSeen, ...]:
    return (
        SideSeen(
            name="input and output",
            url=url,
            brokers=brokers or BrokersSeen(text="3 brokers of Kafka", version="4.0"),
            topics=topics or TopicsSeen(count=9),
        ),
    )


WELL = Facts(
    settings=SETTINGS,
    version="0.1.0",
    spark_version="4.2.1",
    host="a",
    now_ms=NOW_MS,
    sides=side(),
    marker=Marker(query_id="q", batch_id=42, digest="d", epoch=7),
    checkpoint=CheckpointSeen(
        location="checkpoint",
        card=CARD,
        checkpoint=Checkpoint(query_id="q", last_batch_id=43, epoch=7),
        committed_batch=42,
    ),
    processes=(LEADER,),
    clusters=heard(),
    input=InputSeen(youngest_age_s=3.0, ahead_s={"/trimtab/collect/east-1": -0.2}),
    rejected=RejectedSeen(counts={}, is_complete=True),
)


def of(check: str, **changed: Any) -> list[Finding]:
    """What one check says of facts that differ in these."""
    return [finding for finding in judge(replace(WELL, **changed)) if finding.check == check]


def wrong(check: str, **changed: Any) -> Finding:
    """Its only finding that is not well."""
    (found,) = [finding for finding in of(check, **changed) if finding.outcome != "ok"]
    return found


def difference(*, tolerable: bool) -> Difference:
    return Difference(
        topic="trimtab.commits",
        setting="cleanup.policy",
        found="delete",
        expected="compact",
        remedy="Run: kafka-configs.sh …",
        tolerable=tolerable,
    )


NO_BEATS = Denied(what="lacks Write", remedy="Run: x", tolerable=True)
DELETED = Marker(query_id="other", batch_id=42, digest="d", epoch=7)
NO_CHECKPOINT = CheckpointSeen(location="checkpoint")
STANDBY = replace(LEADER, instance="b:2", role="standby", epoch=0, batch=None)

WRONG = [
    # check, what is found, the outcome, a part of what is wrong, a part of what to do
    ("addresses", {"sides": side(brokers=Missed("nobody answers"))}, "problem", "nobody", "input.url"),
    (
        "addresses",
        {"sides": side(brokers=Missed("nobody answers"), url="pulsar://p:1")},
        "problem",
        "nobody answers",
        "[input.pulsar]",
    ),
    (
        "permissions",
        {"sides": side(topics=TopicsSeen(count=9, denied=(Denied(what="lacks Read", remedy="Run: x"),)))},
        "problem",
        "lacks Read",
        "Run: x",
    ),
    (
        "permissions",
        {"sides": side(topics=TopicsSeen(count=9, denied=(NO_BEATS,)))},
        "warning",
        "lacks Write",
        "Run: x",
    ),
    (
        "permissions",
        {
            "sides": side(topics=TopicsSeen(count=9, denied=(NO_BEATS,))),
            "settings": Settings(controller=ControllerSettings(standby=True)),
        },
        "problem",
        "lacks Write",
        "Run: x",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing=("trimtab.input",)))},
        "problem",
        "the topic is missing",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing_optional=("trimtab.beats",)))},
        "warning",
        "nobody sees which controller runs",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, missing_optional=("trimtab.executor.kafka",)))},
        "warning",
        "only `trimtab execute kafka` needs it",
        "trimtab topics create",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, differences=(difference(tolerable=False),)))},
        "problem",
        "cleanup.policy is delete, expected compact",
        "Run: kafka-configs.sh …",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, differences=(difference(tolerable=True),)))},
        "warning",
        "cleanup.policy is delete, expected compact",
        "Run: kafka-configs.sh …",
    ),
    (
        "topics",
        {"sides": side(topics=TopicsSeen(count=9, warnings=(Denied(what="a TTL", remedy="Run: y"),)))},
        "warning",
        "a TTL",
        "Run: y",
    ),
    (
        "partitions",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=False),)))},
        "problem",
        "delete, expected compact",
        "Run:",
    ),
    (
        "partitions",
        {"sides": side(topics=TopicsSeen(count=9, unwell=(difference(tolerable=True),)))},
        "warning",
        "delete, expected compact",
        "Run:",
    ),
    (
        "clocks",
        {"sides": side(brokers=BrokersSeen(text="Pulsar", ahead_s=30.0))},
        "warning",
        "this machine's clock is 30.0 s behind that of input and output",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": (replace(LEADER, age_s=-4.0),)},
        "warning",
        "this machine's clock is 4.0 s behind that of the brokers",
        "timedatectl",
    ),
    (
        "clocks",
        {"processes": (replace(LEADER, ahead_s=9.0),)},
        "warning",
        "its clock is 9.0 s ahead of the brokers'",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": 11.0})},
        "problem",
        "refused as ahead-of-log",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": 4.0})},
        "warning",
        "its events are 4.0 s ahead of",
        "timedatectl",
    ),
    (
        "clocks",
        {"input": InputSeen(youngest_age_s=3.0, ahead_s={"/c": -90.0})},
        "warning",
        "its events are 90.0 s behind",
        "whether the sender keeps up",
    ),
    (
        "checkpoint",
        {"checkpoint": CheckpointSeen(location="checkpoint", refusal="of a newer trimtab")},
        "problem",
        "of a newer trimtab",
        "docs/operations.md",
    ),
    (
        "checkpoint",
        {"checkpoint": NO_CHECKPOINT},
        "problem",
        "there is none at checkpoint, and the controller ran on this machine",
        "--fresh",
    ),
    (
        "checkpoint",
        {"checkpoint": NO_CHECKPOINT, "host": "elsewhere"},
        "not checked",
        "there is none at checkpoint on this machine, elsewhere",
        "Run trimtab doctor on a",
    ),
    ("marker", {"marker": DELETED}, "problem", "belongs to another query", "docs/operations.md"),
    ("marker", {"checkpoint": NO_CHECKPOINT}, "problem", "deleted or replaced", "docs/operations.md"),
    (
        "marker",
        {"marker": msgspec.structs.replace(DELETED, query_id="q", batch_id=99)},
        "problem",
        "older than what was published",
        "docs/operations.md",
    ),
    (
        "epoch",
        {"processes": (replace(LEADER, epoch=8),)},
        "problem",
        "the beat of a:1 has epoch 8, and the newest marker 7",
        "trimtab.commits",
    ),
    ("epoch", {"clusters": heard(epoch=9)}, "problem", "the newest round of east-1 has epoch 9", "emptied"),
    ("leader", {"processes": ()}, "problem", "no beat of it in the last hour", "trimtab run"),
    (
        "leader",
        {"processes": (replace(LEADER, runs=False, age_s=600.0),)},
        "problem",
        "its last beat was 10.0 min ago, from a:1",
        "trimtab run",
    ),
    (
        "leader",
        {"processes": (LEADER, replace(LEADER, instance="b:2", epoch=6))},
        "warning",
        "a:1 (epoch 7), b:2 (epoch 6)",
        "stop the one",
    ),
    ("leader", {"processes": (STANDBY,)}, "problem", "no controller trimtab runs", "trimtab run"),
    (
        "leader",
        {"processes": (LEADER, replace(STANDBY, problem="newer state"))},
        "problem",
        "this standby could not lead: newer state",
        "before the leader ends",
    ),
    (
        "leader",
        {"settings": Settings(controller=ControllerSettings(standby=True))},
        "warning",
        "nobody stands by",
        "trimtab run --standby",
    ),
    ("versions", {"processes": (replace(LEADER, version="0.2.0"),)}, "warning", "0.2.0", "upgrade"),
    ("versions", {"spark_version": "4.1.0"}, "warning", "written by Spark 4.2.1", "pip install"),
    (
        "reports",
        {"input": InputSeen(youngest_age_s=None, ahead_s={})},
        "problem",
        "no record came on trimtab.input in the last day",
        "trimtab collect",
    ),
    (
        "reports",
        {"input": InputSeen(youngest_age_s=600.0, ahead_s={})},
        "problem",
        "came 10 min ago",
        "trimtab collect",
    ),
    ("rounds", {"clusters": ()}, "problem", "no round of any cluster", "leader and reports"),
    ("rounds", {"now_ms": NOW_MS + 600_000}, "problem", "newest round ended 10 min ago", "not-deciding.md"),
    (
        "rounds",
        {"clusters": heard(outcome="internal-error", reason="ValueError at x")},
        "problem",
        "ValueError at x",
        "report it",
    ),
    (
        "rounds",
        {"clusters": heard(outcome="no-quorum", reason="1 of 4 report")},
        "warning",
        "1 of 4 report",
        "trimtab status",
    ),
    (
        "rounds",
        {"clusters": heard(failing_since="10:00")},
        "problem",
        "all unloads are held since 10:00",
        "trimtab resume --cluster east-1",
    ),
    (
        "rounds",
        {"clusters": heard(splits_failing_since="10:00")},
        "problem",
        "all splits are held since 10:00",
        "trimtab resume",
    ),
    (
        "rounds",
        {"clusters": heard(paused=True, control=CONTROL)},
        "warning",
        "it is paused by maria: the sale",
        "trimtab resume",
    ),
    (
        "rounds",
        {"clusters": heard(control=msgspec.structs.replace(CONTROL, problem="no such key"))},
        "warning",
        "not in force: no such key",
        "trimtab policy show",
    ),
    (
        "rounds",
        {"clusters": heard(brokers_missing_count=1, brokers_missing=["b4"])},
        "warning",
        "live brokers did not report: b4",
        "whether they run",
    ),
    (
        "rounds",
        {"clusters": heard(brokers_failed={"b4": "timeout"})},
        "warning",
        "cannot ask b4: timeout",
        "no-reports.md",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                other_balancers=OtherBalancers(
                    shedding_brokers=["b1"], splitting_brokers=[], unknown_brokers=[]
                )
            )
        },
        "problem",
        "Pulsar's own shedding is on at b1",
        "--config loadBalancerSheddingEnabled --value false",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                mode="dry-run",
                other_balancers=OtherBalancers(
                    shedding_brokers=[], splitting_brokers=["b1"], unknown_brokers=[]
                ),
            )
        },
        "warning",
        "Pulsar's own splitting of bundles is on at b1",
        "loadBalancerAutoBundleSplitEnabled",
    ),
    (
        "balancers",
        {"clusters": heard(other_balancers=None)},
        "not checked",
        "no collector said",
        "trimtab collect pulsar",
    ),
    (
        "balancers",
        {
            "clusters": heard(
                of_kafka(msgspec.structs.replace(THROTTLE, others_rates_bytes_per_s={"leader:1": 5}))
            )
        },
        "warning",
        "somebody else has set throttles: leader:1",
        "Cruise Control",
    ),
    (
        "rejected",
        {"rejected": RejectedSeen(counts={"not-json": 3}, is_complete=False)},
        "warning",
        "at least 3 records went to trimtab.dead-letter in the last hour: 3 not-json",
        "trimtab rejected tail",
    ),
]


def test_where_all_is_well_every_check_says_so_and_nothing_is_to_be_done() -> None:
    found = judge(WELL)
    assert {finding.outcome for finding in found} == {"ok"}
    assert [finding.remedy for finding in found] == [None] * len(found)
    assert {finding.check for finding in found} == {check.__name__ for check in CHECKS}
    assert exit_code_of(found) == OK


@pytest.mark.parametrize(("check", "changed", "outcome", "finding", "remedy"), WRONG)
def test_a_check_says_what_is_wrong_and_what_to_do(
    check: str, changed: dict[str, Any], outcome: str, finding: str, remedy: str
) -> None:
    found = wrong(check, **changed)
    assert found.outcome == outcome
    assert finding in found.finding
    assert remedy in (found.remedy or "")


def test_the_table_above_has_every_check() -> None:
    assert {check for check, *_ in WRONG} == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize("what", ["marker", "checkpoint", "processes", "clusters", "input", "rejected"])
def test_what_could_not_be_looked_at_is_not_checked_and_says_why_and_the_rest_is(what: str) -> None:
    found = judge(replace(WELL, **{what: Missed("the reason")}))  # type: ignore[arg-type]
    assert {finding.outcome for finding in found} == {"ok", "not checked"}
    missed = [finding for finding in found if finding.outcome == "not checked"]
    assert all("the reason" in finding.finding or finding.check == "marker" for finding in missed)
    assert {finding.check for finding in found} == {check.__name__ for check in CHECKS}


def test_a_check_that_fails_is_named_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Facts) -> list[Finding]:
        raise KeyError("oops")

    monkeypatch.setattr(report, "CHECKS", (broken, *CHECKS))
    first, *others = judge(WELL)
    assert (first.check, first.outcome) == ("broken", "not checked")
    assert "KeyError: 'oops'" in first.finding
    assert others == [finding for finding in others if finding.outcome == "ok"]


def test_brokers_that_do_not_answer_have_an_exit_code_of_their_own_unless_more_is_wrong() -> None:
    silent = side(brokers=Missed("no answer", is_unreachable=True), topics=Missed("no answer"))
    assert exit_code_of(judge(replace(WELL, sides=silent))) == UNREACHABLE
    assert exit_code_of(judge(replace(WELL, sides=silent, processes=()))) == REFUSED
    refused = side(brokers=Missed("wrong password"))
    assert exit_code_of(judge(replace(WELL, sides=refused))) == REFUSED


def test_warnings_and_what_was_not_checked_end_with_zero() -> None:
    found = judge(replace(WELL, clusters=heard(paused=True), marker=Missed("no")))
    assert {finding.outcome for finding in found} == {"ok", "warning", "not checked"}
    assert exit_code_of(found) == OK


def test_what_brokers_say_only_to_who_does_it_is_not_checked_and_names_the_command() -> None:
    user = SecuritySettings(protocol="sasl_plaintext", mechanism="PLAIN", username="u", password_file="p")  # noqa: S106  a name
    settings = Settings(
        input=InputSettings(url="kafka://k:9092", security=user), controller=ControllerSettings(name="x")
    )
    kafka = wrong("permissions", settings=settings, processes=(), clusters=())
    assert (kafka.outcome, kafka.remedy) == (
        "not checked",
        "See: kafka-acls.sh --bootstrap-server k:9092 --list --transactional-id x",
    )


def test_the_page_has_the_worst_first_and_what_to_do_below() -> None:
    found = judge(
        replace(WELL, processes=(), rejected=RejectedSeen(counts={"not-json": 1}, is_complete=True))
    )
    lines = report_text(found).splitlines()
    assert lines[0].startswith("1 problem, 1 warning, ")
    assert lines[1].startswith("  problem  leader ")
    assert lines[2].strip().startswith("→ Start it: trimtab run.")
    assert lines[3].startswith("  warning  rejected ")
    assert lines[4].strip().startswith("→ Run: trimtab rejected tail")
    assert all(line.startswith("  ok ") for line in lines[5:])


def beat(
    instance: str, *, appended_ms: int, at: str = "1970-01-01T00:08:18.000Z", **fields: Any
) -> TopicRecord:
    said = msgspec.json.decode(
        encode(Beat(name="trimtab", instance=instance, epoch=7, batch=1, at=at, version="0.1.0"))
    )
    value = msgspec.json.encode({**said, **fields})
    return TopicRecord(key=b"trimtab", value=value, timestamp=appended_ms, partition=0, offset=0, headers=[])


def test_a_process_runs_while_it_beats_and_has_not_said_goodbye() -> None:
    records = [
        beat("a:1", appended_ms=NOW_MS - 60_000),
        beat("a:1", appended_ms=NOW_MS - 2_000),
        beat("b:2", appended_ms=NOW_MS - 51_000),
        beat("c:3", appended_ms=NOW_MS - 21_000, session_s=30.0, role="standby"),
        beat("d:4", appended_ms=NOW_MS - 1_000, is_leaving=True),
        TopicRecord(key=None, value=b"junk", timestamp=NOW_MS, partition=0, offset=0, headers=[]),
    ]
    found = processes(records, now_ms=NOW_MS)
    assert [(each.instance, each.runs, each.role) for each in found] == [
        ("a:1", True, "leader"),
        ("b:2", False, "leader"),
        ("c:3", True, "standby"),
        ("d:4", False, "leader"),
    ]
    assert (found[0].age_s, found[0].ahead_s) == (2.0, 0.0)
    assert processes([beat("a:1", appended_ms=NOW_MS, at="noon")], now_ms=NOW_MS)[0].runs


def test_the_worst_clock_of_each_sender_counts_and_junk_does_not() -> None:
    def sent(source: str, second: int) -> TopicRecord:
        value = b'{"source":"%b","time":"1970-01-01T00:00:%02d.000Z"}' % (source.encode(), second)
        return TopicRecord(key=None, value=value, timestamp=20_000, partition=0, offset=0, headers=[])

    junk = TopicRecord(key=None, value=b"{", timestamp=0, partition=0, offset=0, headers=[])
    assert ahead_by_sender([sent("/b", 21), sent("/a", 25), junk, sent("/a", 13), sent("/a", 19)]) == {
        "/a": -7.0,
        "/b": 1.0,
    }


def test_a_look_that_hangs_ends_at_its_limit_and_one_that_fails_says_how() -> None:
    never = threading.Event()
    hung = attempt(never.wait, what="the beats", limit_s=0.01)
    never.set()
    assert hung == Missed("the beats: no answer within 0.01 s", is_unreachable=True)

    def refused() -> None:
        raise Refused("no permission")

    assert attempt(refused, what="", limit_s=5) == Missed("no permission")

    def silent() -> None:
        raise Unreachable("nobody")

    assert attempt(silent, what="", limit_s=5) == Missed("nobody", is_unreachable=True)

    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    found = attempt(broken, what="", limit_s=5)
    assert isinstance(found, Missed)
    assert "please report it: ZeroDivisionError" in found.why


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path / "checkpoint")
    lay_out(made, Start(7), planned=3, committed=2, card=msgspec.json.encode(card_of(SETTINGS)))
    return made


def on(disk: Disk, *, scheme: str = "") -> Settings:
    return Settings(spark=SparkSettings(checkpoint=f"{scheme}{disk.root}"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_checkpoint_on_this_machine_is_read_without_spark_and_left_as_it_is(
    disk: Disk, scheme: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in disk.root.rglob("*")}
    seen = checkpoint_seen(on(disk, scheme=scheme), {})
    assert (seen.checkpoint, seen.committed_batch, seen.refusal) == (
        Checkpoint(query_id="q", last_batch_id=3, epoch=7),
        2,
        None,
    )
    assert {path: path.stat().st_mtime_ns for path in disk.root.rglob("*")} == before


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"memory_version": 1000}, "was written by a newer trimtab"),
        ({"controller": "another"}, "belongs to the controller 'another'"),
        ({"length_s": 7.0}, "holds rounds of 7 s"),
        ({"topic_ids": {"trimtab.input": "a"}}, "the input was deleted and made anew"),
    ],
)
def test_a_checkpoint_that_a_start_would_refuse_is_refused_with_its_words(
    disk: Disk, changed: dict[str, Any], why: str
) -> None:
    card = msgspec.structs.replace(card_of(SETTINGS), **changed)
    disk.write("start-7/trimtab.json", msgspec.json.encode(card))
    assert why in (checkpoint_seen(on(disk), {"trimtab.input": "b"}).refusal or "")


def test_what_is_no_checkpoint_or_damaged_is_refused_and_what_is_elsewhere_is_not_looked_at(
    disk: Disk,
) -> None:
    disk.write("start-7/metadata", b"")
    assert "metadata cannot be read" in (checkpoint_seen(on(disk), {}).refusal or "")
    disk.delete("start-7")
    assert checkpoint_seen(on(disk), {}) == CheckpointSeen(location=str(disk.root))
    disk.write("letters.txt", b"mine")
    assert "no checkpoint of trimtab" in (checkpoint_seen(on(disk), {}).refusal or "")
    away = Settings(spark=SparkSettings(checkpoint="hdfs://n:1/c"))
    with pytest.raises(Elsewhere, match="hdfs://n:1/c, which only Spark reads"):
        checkpoint_seen(away, {})


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "ahead_s"),
    [(1_000.4, 1_000.6, 0.0), (999.5, 1_000.5, 0.0), (970.0, 971.0, 29.0), (1_031.0, 1_032.0, -30.0)],
)
def test_how_far_a_brokers_clock_is_ahead_is_known_from_the_date_on_its_answer(
    asked_s: float, answered_s: float, ahead_s: float
) -> None:
    assert ahead_by_date(formatdate(1_000, usegmt=True), asked_s, answered_s) == ahead_s
    assert ahead_by_date(None, asked_s, answered_s) is None
    assert ahead_by_date("yesterday", asked_s, answered_s) is None


def test_the_page_about_it_has_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("## The checks")[2], re.MULTILINE) == [
        check.__name__ for check in CHECKS
    ]


def test_a_controller_that_has_just_begun_and_deletes_what_was_before_it_is_looked_at_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = disks.read_card

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(disks, "read_card", read)
        lay_out(disk, Start(8), planned=5, committed=4, card=msgspec.json.encode(card_of(SETTINGS)))
        starts.drop_older(disk, Start(8))
        return read(*arguments)

    monkeypatch.setattr(disks, "read_card", overtaken)
    seen = checkpoint_seen(on(disk), {})
    assert (seen.refusal, seen.checkpoint) == (None, Checkpoint(query_id="q", last_batch_id=5, epoch=8))


def test_the_checkpoint_of_a_running_controller_is_read_after_its_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(looking, "sides_of", lambda _: [])
    for name in ("_marker", "_processes", "_clusters", "_input", "_rejected", "input_ids"):
        monkeypatch.setattr(looking, name, lambda *_, name=name: looked.append(name))
    monkeypatch.setattr(looking, "checkpoint_seen", lambda *_: looked.append("checkpoint"))
    looking.look(SETTINGS)
    assert len(looked) == 7
    assert looked[-1] == "checkpoint"
