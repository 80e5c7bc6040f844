"""What `trimtab doctor` makes of what it found: each check says what is wrong and what to do, and nothing where all is well."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import doctor
from streaming.cli.doctor import CHECKS, Check, Finding, exit_code_of, judge, report_text
from streaming.cli.facts import Facts, Missed
from streaming.process.exits import OK, REFUSED, UNREACHABLE
from streaming.settings import ControllerSettings, InputSettings, SecuritySettings, Settings
from tests.streaming.doctor_cases import (
    DELETED,
    ENDED,
    NO_CHECKPOINT,
    NOT_FROM_HERE,
    REFUSED_CHECKPOINT,
    STANDBY,
    WRONG,
)
from tests.streaming.doctor_facts import LEADER, WELL, process, side


def of(check: str, **changed: Any) -> list[Finding]:
    """Findings of one check about the facts ``WELL`` with these changes."""
    return [finding for finding in judge(replace(WELL, **changed)) if finding.check == check]


def wrong(check: str, **changed: Any) -> Finding:
    """The check's only finding that is not well."""
    (found,) = [finding for finding in of(check, **changed) if finding.outcome != "ok"]
    return found


def test_where_all_is_well_every_check_says_so_and_nothing_is_to_be_done() -> None:
    found = judge(WELL)
    assert {finding.outcome for finding in found} == {"ok"}
    assert [finding.remedy for finding in found] == [None] * len(found)
    assert {finding.check for finding in found} == {check.name for check in CHECKS}
    assert exit_code_of(found) == OK


@pytest.mark.parametrize(("check", "changed", "outcome", "finding", "remedy"), WRONG)
def test_a_check_says_what_is_wrong_and_what_to_do(
    check: str, changed: dict[str, Any], outcome: str, finding: str, remedy: str
) -> None:
    found = wrong(check, **changed)
    assert found.outcome == outcome
    assert finding in found.finding
    assert remedy in (found.remedy or "")


@pytest.mark.parametrize(("changed", "why"), NOT_FROM_HERE)
@pytest.mark.parametrize(
    "seen",
    [
        {"checkpoint": REFUSED_CHECKPOINT},
        {"checkpoint": NO_CHECKPOINT},
        {"marker": DELETED},
        {"marker": DELETED, "checkpoint": NO_CHECKPOINT},
    ],
)
def test_what_is_not_seen_from_here_is_not_checked_and_nothing_about_it_says_start_over(
    seen: dict[str, Any], changed: dict[str, Any], why: str
) -> None:
    found = wrong("checkpoint", **{**changed, **seen})
    assert found.outcome == "not checked"
    assert why in found.finding
    assert "--" not in f"{found.finding} {found.remedy}"


def test_where_nobody_knows_where_the_controller_ran_a_missing_checkpoint_is_not_checked() -> None:
    found = wrong("checkpoint", **{**ENDED, "processes": [], "checkpoint": NO_CHECKPOINT})
    assert (found.outcome, "nobody knows where" in found.finding) == ("not checked", True)


def test_a_standby_that_could_not_lead_is_not_told_to_start_over_while_somebody_leads() -> None:
    standby = process(**STANDBY, problem="it is newer: run that one, or start over with --fresh, which …")
    assert wrong("leader", processes=[LEADER, standby]).finding.endswith("it is newer: run that one")
    alone = [each.finding for each in of("leader", processes=[standby])]
    assert any("--fresh" in each for each in alone)


def test_the_table_of_what_may_be_wrong_has_every_check() -> None:
    assert {check for check, *_ in WRONG} == {check.name for check in CHECKS}


@pytest.mark.parametrize("what", ["marker", "checkpoint", "processes", "rounds", "input", "rejected"])
def test_what_could_not_be_looked_at_is_not_checked_and_says_why_and_the_rest_is(what: str) -> None:
    found = judge(replace(WELL, **{what: Missed("the reason")}))  # type: ignore[arg-type]
    assert {finding.outcome for finding in found} == {"ok", "not checked"}
    missed = [finding for finding in found if finding.outcome == "not checked"]
    assert all("the reason" in finding.finding for finding in missed)
    assert {finding.check for finding in found} == {check.name for check in CHECKS}


def test_a_check_that_fails_is_named_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Facts) -> list[Finding]:
        raise KeyError("oops")

    monkeypatch.setattr(doctor, "CHECKS", (Check("broken", "", "", broken), *CHECKS))
    first, *others = judge(WELL)
    assert (first.check, first.outcome) == ("broken", "not checked")
    assert "KeyError: 'oops'" in first.finding
    assert others == [finding for finding in others if finding.outcome == "ok"]


def test_brokers_that_do_not_answer_have_an_exit_code_of_their_own_unless_more_is_wrong() -> None:
    silent = side(brokers=Missed("no answer", is_unreachable=True), topics=Missed("no answer"))
    assert exit_code_of(judge(replace(WELL, sides=silent))) == UNREACHABLE
    assert exit_code_of(judge(replace(WELL, sides=silent, processes=[]))) == REFUSED
    refused = side(brokers=Missed("wrong password"))
    assert exit_code_of(judge(replace(WELL, sides=refused))) == REFUSED


def test_warnings_and_what_was_not_checked_end_with_zero() -> None:
    found = judge(replace(WELL, processes=[process(ahead_s=9.0)], marker=Missed("no")))
    assert {finding.outcome for finding in found} == {"ok", "warning", "not checked"}
    assert exit_code_of(found) == OK


def test_what_brokers_say_only_to_who_does_it_is_not_checked() -> None:
    user = SecuritySettings(protocol="sasl_plaintext", mechanism="PLAIN", username="u", password_file="p")  # noqa: S106  a name
    settings = Settings(
        input=InputSettings(url="kafka://k:9092", security=user), controller=ControllerSettings(name="x")
    )
    found = wrong("permissions", settings=settings, processes=[], rounds=[])
    assert (found.outcome, found.remedy) == ("not checked", "See docs/security.md")


def test_the_page_has_the_worst_first_and_what_to_do_below() -> None:
    found = judge(replace(WELL, processes=[], rejected={"not-json": 1}))
    lines = report_text(found).splitlines()
    assert lines[0].startswith("1 problem, 1 warning, ")
    assert lines[1].startswith("  problem  leader ")
    assert lines[2].strip().startswith("→ Start it: trimtab run.")
    assert lines[3].startswith("  warning  rejected ")
    assert lines[4].strip().startswith("→ Run: trimtab rejected tail")
    assert all(line.startswith("  ok ") for line in lines[5:])


def test_the_page_about_it_has_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page.partition("## The checks")[2], re.MULTILINE) == [
        check.name for check in CHECKS
    ]
