"""`/readyz` of a process that stands by, and of one that leads."""

from streaming.controller.readiness import Readiness


def test_a_standby_is_ready_and_says_whom_it_stands_by_for_unless_it_could_not_lead() -> None:
    readiness = Readiness(trigger_interval_s=1)
    readiness.stand_by("standing by: a:1 leads", "")
    (check,) = readiness.checks()
    assert (check.ok, check.detail) == (True, "standing by: a:1 leads")
    readiness.stand_by("standing by: a:1 leads", "the checkpoint was written by a newer trimtab")
    (check,) = readiness.checks()
    assert (check.ok, check.detail) == (False, "the checkpoint was written by a newer trimtab")


def test_a_process_that_leads_is_ready_when_its_query_runs() -> None:
    readiness = Readiness(trigger_interval_s=1)
    readiness.stand_by("standing by: a:1 leads", "")
    readiness.lead()
    found = {check.name: check.ok for check in readiness.checks()}
    assert found == {"query": False, "trigger": False, "publish": True}


def test_a_leader_whose_beats_nobody_hears_is_unready_and_says_what_follows() -> None:
    problem = ""
    readiness = Readiness(trigger_interval_s=1)
    readiness.has_standbys(lambda: problem)
    readiness.lead()
    beats = {check.name: check for check in readiness.checks()}["beats"]
    assert beats.ok
    problem = "User:trimtab lacks the permission Write on topic trimtab.beats"
    beats = {check.name: check for check in readiness.checks()}["beats"]
    assert not beats.ok
    assert "take over after each session" in beats.detail
    assert problem in beats.detail
