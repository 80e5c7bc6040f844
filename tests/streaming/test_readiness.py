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
