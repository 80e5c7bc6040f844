"""`trimtab doctor`: what it looks at, and what each check makes of that: what is wrong and what to do, and nothing where all is well."""

import re
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from state.events import Rejection
from streaming.cli import doctor, facts
from streaming.cli.doctor import CHECKS, Check, Finding, ahead_by_sender, exit_code_of, judge, report_text
from streaming.cli.facts import FULL, LOCKED, CheckpointSeen, Facts, Missed, attempt, checkpoint_seen
from streaming.cli.published import newest_processes
from streaming.contract.encode import Origin, encode_refused, encode_refused_event
from streaming.process.exits import OK, REFUSED, UNREACHABLE, Refused
from streaming.pulsar.http import ahead_by_date
from streaming.settings import ControllerSettings, InputSettings, SecuritySettings, Settings, SparkSettings
from streaming.spark.checkpoint import drop_older_starts
from streaming.systems import Address
from streaming.transport import checkpoint
from streaming.transport.checkpoint import Start, manifest_of
from streaming.transport.errors import Unreachable
from streaming.transport.publishing import Checkpoint
from streaming.transport.side import Place, TopicRecord
from streaming.transport.topics import TopicsSeen
from tests.streaming.disk import Disk, lay_out
from tests.streaming.doctor_cases import (
    DELETED,
    ENDED,
    FULL_DISK,
    GIVEN_UP,
    LEADS_HERE,
    LOCKED_DISK,
    LOST,
    NO_CHECKPOINT,
    NOT_FROM_HERE,
    REFUSED_CHECKPOINT,
    STANDBY,
    WRONG,
    balanced_by,
)
from tests.streaming.doctor_facts import LEADER, NOW_MS, SETTINGS, WELL, process, reported, sent, side
from tests.streaming.events import ABSENT
from tests.streaming.records import BEAT, beat_on_topic, on_topic


def of(check: str, **changed: Any) -> list[Finding]:
    """Findings of one check about the facts ``WELL`` with these changes."""
    return [finding for finding in judge(replace(WELL, **changed)) if finding.check == check]


def wrong(check: str, **changed: Any) -> Finding:
    """The check's only finding that is not well."""
    (found,) = [finding for finding in of(check, **changed) if finding.outcome != "ok"]
    return found


def test_where_all_is_well_every_check_says_so_and_nothing_is_to_be_done():
    found = judge(WELL)
    assert {finding.outcome for finding in found} == {"ok"}
    assert [finding.remedy for finding in found] == [None] * len(found)
    assert {finding.check for finding in found} == {check.name for check in CHECKS}
    assert exit_code_of(found) == OK


@pytest.mark.parametrize(("check", "changed", "outcome", "finding", "remedy"), WRONG)
def test_a_check_says_what_is_wrong_and_the_remedy(
    check: str, changed: dict[str, Any], outcome: str, finding: str, remedy: str
):
    found = wrong(check, **changed)
    assert found.outcome == outcome
    assert finding in found.finding
    assert remedy in (found.remedy or "")


def test_in_a_dry_run_pulsar_goes_on_balancing_and_nothing_is_wrong_with_that():
    found = of("balancers", **balanced_by(mode="dry-run", shedding=("b1",), splitting=("b1",)))
    assert [each.outcome for each in found] == ["ok", "ok"]
    assert "as it should be in dry-run; before mode act: pulsar-admin" in found[0].finding


@pytest.mark.parametrize(("changed", "why"), NOT_FROM_HERE)
@pytest.mark.parametrize(
    "seen",
    [
        {"checkpoint": REFUSED_CHECKPOINT},
        {"checkpoint": NO_CHECKPOINT},
        {"lost": LOST},
        {"marker": DELETED},
        {"marker": DELETED, "checkpoint": NO_CHECKPOINT},
        {"marker": GIVEN_UP},
    ],
)
def test_what_is_not_seen_from_here_is_not_checked_and_nothing_about_it_says_start_over(
    seen: dict[str, Any], changed: dict[str, Any], why: str
):
    found = wrong("checkpoint", **{**changed, **seen})
    assert found.outcome == "not checked"
    assert why in found.finding
    assert "--" not in f"{found.finding} {found.remedy}"


def test_of_a_controller_that_never_beat_it_is_not_said_why_it_ended():
    assert (
        wrong("leader", processes=[]).remedy
        == "Start it: trimtab run; or wait for a minute if it is starting"
    )


def test_the_marker_on_a_topic_that_is_missing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    def reader(topic: str, **_: Any) -> None:
        raise Refused(f"there is no topic {topic}")

    made = SimpleNamespace(reader=reader, commits_topic=lambda topic, name: f"{topic}-{name}")
    monkeypatch.setattr("streaming.systems.addresses_of", lambda _: [])
    monkeypatch.setattr("streaming.systems.input_ids", lambda _: {})
    monkeypatch.setattr("streaming.systems.publisher_of", lambda _: pytest.fail("it waits"))
    monkeypatch.setattr(facts, "output_side", lambda _: made)
    for name in ("_processes", "_rounds", "_input", "_rejected"):
        monkeypatch.setattr(facts, name, lambda *_: None)
    marker = facts.gather_facts(SETTINGS).marker
    assert isinstance(marker, Missed)
    assert marker.why == "there is no topic trimtab.commits-trimtab"


@pytest.mark.parametrize(
    ("ages_s", "expected_s"),
    [
        (range(3), 0),
        (range(300, 3600, 2), 300),
        (range(20, 180, 1), 20),
        ([*range(301, 3600), *[7200] * 500], 301),
        ([4000] * 3, 4000),
        ([5000] * 900, 5000),
    ],
)
def test_the_newest_record_is_found_however_many_older_ones_there_are(ages_s: Sequence[int], expected_s: int):
    def read(back_s: int) -> list[TopicRecord]:
        since = sorted((age for age in ages_s if age <= back_s), reverse=True)
        return [on_topic(b"{}", at_ms=-1000 * age) for age in since[: facts.INPUT_COUNT]]

    newest_ms = max(record.timestamp for record in facts.newest_records(read))
    assert -1000 * (expected_s + 15) <= newest_ms <= -1000 * expected_s


def test_no_record_of_the_last_day_is_none():
    assert facts.newest_records(lambda _: []) == []


def test_a_record_that_is_rejected_again_after_a_restart_counts_once(monkeypatch: pytest.MonkeyPatch):
    def letter(offset: int, source: str) -> TopicRecord:
        refused = encode_refused_event(
            b"x",
            origin=Origin(topic="trimtab.input", partition=0, offset=offset),
            rejection=Rejection(reason="not-json", detail="x"),
            cluster="",
            appended_ms=0,
        )
        return on_topic(encode_refused(refused, source))

    letters = [*(letter(offset, "/trimtab/a") for offset in (1, 2, 1)), letter(1, "/trimtab/b")]
    letters += [on_topic(b"{", offset=offset) for offset in (7, 8)]
    monkeypatch.setattr("streaming.systems.addresses_of", lambda _: [])
    monkeypatch.setattr("streaming.systems.input_ids", lambda _: {})
    for name in ("_marker", "_processes", "_rounds", "_input"):
        monkeypatch.setattr(facts, name, lambda *_: None)
    monkeypatch.setattr(facts, "records_of", lambda *_: letters)
    assert facts.gather_facts(SETTINGS).rejected == {"not-json": 2, "unreadable": 2}


@pytest.mark.parametrize(("missing", "lost"), [((), LOST), (("trimtab.input",), "trimtab.input is missing")])
def test_records_that_the_checkpoint_has_not_read_are_asked_for_where_their_topic_is_there(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], lost: object
):
    address = Address(
        "input", "", lambda: WELL.sides[0].brokers, lambda: TopicsSeen(count=9, missing=missing)
    )
    place = Place("trimtab.input", 0, "trimtab.input", "3:7")
    asked = {(place,): LOST}
    monkeypatch.setattr("streaming.systems.addresses_of", lambda _: [address])
    monkeypatch.setattr("streaming.systems.input_ids", lambda _: {})
    monkeypatch.setattr(facts, "checkpoint_seen", lambda *_: CheckpointSeen(places=(place,)))
    monkeypatch.setattr(facts, "input_side", lambda _: SimpleNamespace(find_lost=asked.__getitem__))
    for name in ("_marker", "_processes", "_rounds", "_input", "_rejected"):
        monkeypatch.setattr(facts, name, lambda *_: None)
    found = facts.gather_facts(SETTINGS).lost
    assert (found.why if isinstance(found, Missed) else found) == lost


def test_where_nobody_knows_where_the_controller_ran_a_missing_checkpoint_is_not_checked():
    found = wrong("checkpoint", **{**ENDED, "processes": [], "checkpoint": NO_CHECKPOINT})
    assert (found.outcome, "nobody knows where" in found.finding) == ("not checked", True)


def test_a_standby_that_could_not_lead_is_not_told_to_start_over_while_somebody_leads():
    standby = process(**STANDBY, problem="it is newer: run that one, or start over with --fresh, which …")
    assert wrong("leader", processes=[LEADER, standby]).finding.endswith("it is newer: run that one")
    alone = [each.finding for each in of("leader", processes=[standby])]
    assert any("--fresh" in each for each in alone)


def test_the_table_of_what_may_be_wrong_has_every_check():
    assert {check for check, *_ in WRONG} == {check.name for check in CHECKS}


@pytest.mark.parametrize("what", ["marker", "checkpoint", "lost", "processes", "rounds", "input", "rejected"])
def test_what_could_not_be_looked_at_is_not_checked_and_says_why_and_the_rest_is(what: str):
    found = judge(replace(WELL, **{what: Missed("the reason")}))
    assert {finding.outcome for finding in found} == {"ok", "not checked"}
    missed = [finding for finding in found if finding.outcome == "not checked"]
    assert all("the reason" in finding.finding for finding in missed)
    assert {finding.check for finding in found} == {check.name for check in CHECKS}


def test_brokers_that_do_not_answer_are_told_once_by_the_clocks_and_of_each_topic_by_the_lag():
    away = Missed("kafka://k:9092 does not answer", is_unreachable=True)
    found = [*of("clocks", processes=away, input=away), *of("lag", input=away, rounds=away)]
    assert [(each.check, each.about, each.finding) for each in found] == [
        ("clocks", "", away.why),
        ("lag", "trimtab.input", away.why),
        ("lag", "trimtab.audit", away.why),
    ]


def test_a_check_that_fails_is_named_and_ends_no_other(monkeypatch: pytest.MonkeyPatch):
    def broken(_: Facts) -> list[Finding]:
        raise KeyError("oops")

    monkeypatch.setattr(doctor, "CHECKS", (Check("broken", "", "", broken), *CHECKS))
    first, *others = judge(WELL)
    assert (first.check, first.outcome) == ("broken", "not checked")
    assert "KeyError: 'oops'" in first.finding
    assert others == [finding for finding in others if finding.outcome == "ok"]


def test_brokers_that_do_not_answer_have_an_exit_code_of_their_own_unless_more_is_wrong():
    silent = side(brokers=Missed("no answer", is_unreachable=True), topics=Missed("no answer"))
    assert exit_code_of(judge(replace(WELL, sides=silent))) == UNREACHABLE
    assert exit_code_of(judge(replace(WELL, sides=silent, processes=[]))) == REFUSED
    refused = side(brokers=Missed("wrong password"))
    assert exit_code_of(judge(replace(WELL, sides=refused))) == REFUSED


def test_warnings_and_what_was_not_checked_end_with_zero():
    found = judge(replace(WELL, processes=[process(ahead_s=9.0)], marker=Missed("no")))
    assert {finding.outcome for finding in found} == {"ok", "warning", "not checked"}
    assert exit_code_of(found) == OK


def test_what_brokers_say_only_to_who_does_it_is_not_checked():
    user = SecuritySettings(protocol="sasl_plaintext", mechanism="PLAIN", username="u", password_file="p")  # noqa: S106  a name
    settings = Settings(
        input=InputSettings(url="kafka://k:9092", security=user), controller=ControllerSettings(name="x")
    )
    found = wrong("permissions", settings=settings, processes=[], rounds=[])
    assert (found.outcome, found.remedy) == ("not checked", "See docs/run/security.md")


def test_the_page_has_the_worst_first_and_what_to_do_below():
    found = judge(replace(WELL, processes=[], rejected={"not-json": 1}))
    lines = report_text(found).splitlines()
    assert lines[0].startswith("1 problem, 1 warning, ")
    assert lines[1].startswith("  problem  leader ")
    assert lines[2].strip() == "→ Start it: trimtab run; or wait for a minute if it is starting"
    assert "docs/" not in report_text(found)
    ended = report_text(judge(replace(WELL, processes=[process(age_s=600.0)])))
    assert ended.splitlines()[-1].startswith("Pages below docs/ come with trimtab's source")
    assert lines[3].startswith("  warning  rejected ")
    assert lines[4].strip().startswith("→ Run: trimtab rejected tail")
    assert all(line.startswith("  ok ") for line in lines[5:])


def test_topics_that_are_missing_are_not_said_to_give_every_permission():
    seen = TopicsSeen(count=9, missing=("trimtab.input", "trimtab.audit"))
    [found] = of("permissions", sides=side(topics=seen))
    assert (found.outcome, found.finding) == ("not checked", "2 missing topics cannot show permissions")


def test_the_page_about_it_has_every_check():
    page = (Path(__file__).parents[2] / "docs" / "run" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("## The checks")[2], re.MULTILINE) == [
        check.name for check in CHECKS
    ]


def beat(
    instance: str, *, appended_ms: int, at: str = "1970-01-01T00:08:18.000Z", **fields: Any
) -> TopicRecord:
    said = msgspec.structs.replace(BEAT, instance=instance, at=at, **fields)
    return beat_on_topic(said, at_ms=appended_ms)


def test_a_process_runs_while_it_beats_and_has_not_said_goodbye():
    records = [
        beat("a:1", appended_ms=NOW_MS - 60_000),
        beat("a:1", appended_ms=NOW_MS - 2_000),
        beat("b:2", appended_ms=NOW_MS - 51_000),
        beat("c:3", appended_ms=NOW_MS - 21_000, session_s=30.0, role="standby"),
        beat("d:4", appended_ms=NOW_MS - 1_000, is_leaving=True),
        on_topic(b"junk", at_ms=NOW_MS),
    ]
    found = newest_processes(records, now_ms=NOW_MS)
    assert [(each.beat.instance, each.runs, each.beat.role) for each in found] == [
        ("a:1", True, "leader"),
        ("b:2", False, "leader"),
        ("c:3", True, "standby"),
        ("d:4", False, "leader"),
    ]
    assert (found[0].age_s, found[0].ahead_s) == (2.0, 0.0)
    assert newest_processes([beat("a:1", appended_ms=NOW_MS, at="noon")], now_ms=NOW_MS)[0].runs


def test_the_worst_clock_of_each_sender_counts_and_junk_does_not():
    def at(source: str, second: int, **attributes: object) -> TopicRecord:
        return sent(source, second, 20_000, **attributes)

    junk = [
        on_topic(b"{"),
        on_topic(None),
        at("/c", 99, time="noon"),
        at("/c", 99, type="t"),
        at("/c", 99, cluster="elsewhere"),
        at("/c", 99, cluster=ABSENT),
    ]
    assert ahead_by_sender([at("/b", 21), at("/a", 25), *junk, at("/a", 13), at("/a", 19)]) == {
        "/a": -7.0,
        "/b": 1.0,
    }


def test_the_clock_of_a_sender_whose_clusters_are_not_accepted_is_not_judged():
    settings = Settings(controller=ControllerSettings(accepted_clusters=("west-*",)))
    found = of("clocks", settings=settings, input=reported(ahead_s=300))
    assert [each.outcome for each in found] == ["ok"]


def test_a_look_that_hangs_ends_at_its_limit_and_one_that_fails_says_how():
    never = threading.Event()
    hung = looked(never.wait, what="the beats", limit_s=0.01)
    never.set()
    assert hung == ("the beats: no answer within 0.01 s", True)

    def refused() -> None:
        raise Refused("no permission")

    assert looked(refused) == ("no permission", False)

    def silent() -> None:
        raise Unreachable("nobody")

    assert looked(silent) == ("nobody", True)

    def broken() -> None:
        raise ZeroDivisionError("division by zero")

    assert "please report it: ZeroDivisionError" in looked(broken)[0]


def looked(call: Callable[[], object], *, what: str = "", limit_s: float = 5) -> tuple[str, bool]:
    found = attempt(call, what=what, limit_s=limit_s)
    return found.why, found.is_unreachable


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path / "checkpoint")
    lay_out(made, Start(7), planned=3, committed=2, manifest=msgspec.json.encode(manifest_of(SETTINGS)))
    return made


def on(disk: Disk, *, scheme: str = "") -> Settings:
    return Settings(spark=SparkSettings(checkpoint=f"{scheme}{disk.root}"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_checkpoint_on_this_machine_is_read_without_spark_and_left_as_it_is(disk: Disk, scheme: str):
    before = {path: path.stat().st_mtime_ns for path in disk.root.rglob("*")}
    seen = checkpoint_seen(on(disk, scheme=scheme), {})
    assert (seen.checkpoint, seen.refusal) == (Checkpoint(query_id="q", last_batch_id=3, epoch=7), None)
    assert seen.places == (), "an offsets file that cannot be read is left to the start"
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
def test_what_a_start_would_refuse_is_refused_with_its_words(disk: Disk, changed: dict[str, Any], why: str):
    manifest = msgspec.structs.replace(manifest_of(SETTINGS), **changed)
    disk.write("start-7/trimtab.json", msgspec.json.encode(manifest))
    assert why in (checkpoint_seen(on(disk), {"trimtab.input": "b"}).refusal or "")


def test_how_far_the_checkpoint_has_read_is_what_its_committed_batches_have_read(disk: Disk):
    for number in (2, 3):
        disk.write(f"start-7/offsets/{number}", b'v1\n{}\n{"trimtab.input":{"0":%d}}' % number)
    seen = checkpoint_seen(on(disk), {})
    assert seen.places == (Place("trimtab.input", 0, "trimtab.input", "2"),)


def test_what_is_no_checkpoint_or_damaged_is_refused_and_what_is_elsewhere_is_not_looked_at(disk: Disk):
    disk.write("start-7/metadata", b"")
    assert "metadata cannot be read" in (checkpoint_seen(on(disk), {}).refusal or "")
    disk.delete("start-7")
    assert checkpoint_seen(on(disk), {}) == CheckpointSeen()
    disk.write("letters.txt", b"mine")
    assert "not a checkpoint of trimtab" in (checkpoint_seen(on(disk), {}).refusal or "")
    away = Settings(spark=SparkSettings(checkpoint="hdfs://n:1/c"))
    with pytest.raises(Refused, match="hdfs://n:1/c, which only Spark can read"):
        checkpoint_seen(away, {})


@pytest.mark.parametrize("location", ["checkpoint", "not/there/yet"])
def test_a_full_disk_is_seen_also_where_the_checkpoint_is_not_made_yet(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    settings = Settings(spark=SparkSettings(checkpoint=f"{tmp_path}/{location}"))
    assert checkpoint_seen(settings, {}).obstacle == FULL


def test_a_path_that_cannot_be_made_is_seen_before_a_start(tmp_path: Path):
    (tmp_path / "file").touch()
    settings = Settings(spark=SparkSettings(checkpoint=f"{tmp_path}/file/checkpoint"))
    assert checkpoint_seen(settings, {}).obstacle == LOCKED


@pytest.mark.parametrize(
    "changed",
    [
        {**LEADS_HERE, "checkpoint": LOCKED_DISK},
        {"checkpoint": LOCKED_DISK},
        {"checkpoint": FULL_DISK},
    ],
)
def test_a_disk_here_says_nothing_of_a_controller_elsewhere_or_of_another_user(changed: dict[str, Any]):
    assert [each.outcome for each in of("checkpoint", **changed)] == ["ok"]


@pytest.mark.parametrize(
    ("asked_s", "answered_s", "ahead_s"),
    [(1_000.4, 1_000.6, 0.0), (999.5, 1_000.5, 0.0), (970.0, 971.0, 29.0), (1_031.0, 1_032.0, -30.0)],
)
def test_a_brokers_clock_is_known_from_the_date_on_its_answer(
    asked_s: float, answered_s: float, ahead_s: float
):
    assert ahead_by_date(formatdate(1_000, usegmt=True), asked_s, answered_s) == ahead_s
    assert ahead_by_date(None, asked_s, answered_s) is None
    assert ahead_by_date("yesterday", asked_s, answered_s) is None


def test_a_controller_that_deletes_older_starts_meanwhile_is_read_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    read = checkpoint.read_manifest

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(checkpoint, "read_manifest", read)
        lay_out(disk, Start(8), planned=5, committed=4, manifest=msgspec.json.encode(manifest_of(SETTINGS)))
        drop_older_starts(disk, Start(8))
        return read(*arguments)

    monkeypatch.setattr(checkpoint, "read_manifest", overtaken)
    seen = checkpoint_seen(on(disk), {})
    assert (seen.refusal, seen.checkpoint) == (None, Checkpoint(query_id="q", last_batch_id=5, epoch=8))


def test_the_checkpoint_of_a_running_controller_is_read_after_its_marker(monkeypatch: pytest.MonkeyPatch):
    looked: list[str] = []
    monkeypatch.setattr("streaming.systems.addresses_of", lambda _: [])
    monkeypatch.setattr("streaming.systems.input_ids", lambda _: looked.append("ids"))
    for name in ("_marker", "_processes", "_rounds", "_input", "_rejected"):
        monkeypatch.setattr(facts, name, lambda *_, name=name: looked.append(name))
    monkeypatch.setattr(facts, "checkpoint_seen", lambda *_: looked.append("checkpoint"))
    facts.gather_facts(SETTINGS)
    assert len(looked) == 7
    assert looked[-1] == "checkpoint"
