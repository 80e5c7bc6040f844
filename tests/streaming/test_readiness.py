"""`/readyz` of a process that stands by, and of one that leads."""

from streaming.controller.health import Health


def test_a_standby_is_ready_and_says_whom_it_stands_by_for_unless_it_could_not_lead() -> None:
    health = Health(trigger_interval_s=1)
    health.stand_by("standing by: a:1 leads", "")
    (check,) = health.readiness()
    assert (check.ok, check.detail) == (True, "standing by: a:1 leads")
    health.stand_by("standing by: a:1 leads", "the checkpoint was written by a newer trimtab")
    (check,) = health.readiness()
    assert (check.ok, check.detail) == (False, "the checkpoint was written by a newer trimtab")


def test_a_process_that_leads_is_ready_when_its_query_runs() -> None:
    health = Health(trigger_interval_s=1)
    health.stand_by("standing by: a:1 leads", "")
    health.lead()
    found = {check.name: check.ok for check in health.readiness()}
    assert found == {"query": False, "trigger": False, "publish": True}


def test_a_leader_whose_beats_nobody_hears_is_unready_and_says_what_follows() -> None:
    problem = ""
    health = Health(trigger_interval_s=1)
    health.has_standbys(lambda: problem)
    health.lead()
    beats = {check.name: check for check in health.readiness()}["beats"]
    assert beats.ok
    problem = "User:trimtab lacks the permission Write on topic trimtab.beats"
    beats = {check.name: check for check in health.readiness()}["beats"]
    assert not beats.ok
    assert "take over after each session" in beats.detail
    assert problem in beats.detail
