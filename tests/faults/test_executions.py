"""What executors must not do is found in their results."""

from tests.faults.executions import misdone, unanswered
from tests.streaming.events import ACTION_RESULT, at, event

ACTION = event(
    "trimtab.action.unload.v1", id="a1", subject="bundle", data={"expires_at": at(100), "round": 1}
)


def result_of(outcome: str, *, time_s: float, took_s: float = 1.0, **data: object) -> bytes:
    whole = {"outcome": outcome, "took_s": took_s, **data}
    return event(ACTION_RESULT, time_s=time_s, subject="a1", data=whole)


def test_an_action_without_a_result_is_unanswered_and_garbage_on_the_input_is_no_result():
    assert unanswered([ACTION], [b"garbage \xff"]) == ["action a1 was never answered"]
    assert unanswered([ACTION], [result_of("skipped", time_s=500)]) == []


def test_a_repeat_that_found_it_done_and_a_late_skip_are_well():
    results = [
        result_of("succeeded", time_s=90),
        result_of("succeeded", time_s=95, was_done_before=True),
        result_of("skipped", time_s=500),
    ]
    assert misdone([ACTION], results) == []


def test_carried_out_twice_and_tried_after_its_expiry_are_named():
    twice = misdone([ACTION], [result_of("succeeded", time_s=90), result_of("succeeded", time_s=95)])
    assert len(twice) == 1
    assert "action a1 was carried out 2 times" in twice[0]
    late = misdone([ACTION], [result_of("failed", time_s=110, took_s=5)])
    assert late == ["action a1 was tried 5.0 s after its expiry"]
    assert misdone([ACTION], [result_of("succeeded", time_s=110, took_s=15)]) == []
