"""A change around a running controller is noticed; an outage is not taken for a change."""

import pytest

from streaming.controller.surroundings import Changed, Unanswered, Watch
from streaming.transport.checkpoint import describe_exchanged
from tests.support.processes import until

WRONG = "topics missing at k:9092: trimtab.input. Run: trimtab topics create"


def watch(*each: str | Exception | None, every_s: float = 3600) -> Watch:
    """A watch that gets these answers."""
    found = iter([*each])
    last = each[-1]

    def look() -> str | None:
        message = next(found, last)
        if isinstance(message, Exception):
            raise message
        return message

    return Watch(look, every_s=every_s, again_s=0.001)


def test_what_is_wrong_once_may_be_a_broker_that_is_just_starting() -> None:
    with watch(WRONG, WRONG, None) as seen:
        seen.require_now()


def test_what_stays_wrong_is_said_with_the_remedy() -> None:
    with watch(WRONG) as seen, pytest.raises(Changed, match="topics create"):
        seen.require_now()


def test_brokers_that_do_not_answer_are_an_outage() -> None:
    with watch(Unanswered("no brokers")) as seen, pytest.raises(Unanswered):
        seen.require_now()


def test_a_running_controller_is_told_of_a_change_and_not_of_an_outage_or_a_failed_look() -> None:
    with watch(
        None, Unanswered("no brokers"), ValueError("a look that failed"), WRONG, every_s=0.001
    ) as seen:

        def is_told() -> bool:
            try:
                seen.require()
            except Changed:
                return True
            return False

        until(is_told, what="the change", timeout_s=30)
    with watch(Unanswered("no brokers"), every_s=0.001) as seen:
        seen.require()


def test_a_topic_made_anew_is_told_from_the_one_before_and_one_without_an_id_is_not_judged() -> None:
    assert describe_exchanged({"input": "a", "control": "b"}, {"input": "a", "control": "b"}) is None
    assert describe_exchanged({}, {"input": "a"}) is None, "a checkpoint from before ids were noted"
    assert describe_exchanged({"input": "a"}, {}) is None, "brokers without ids"
    message = describe_exchanged({"input": "a", "control": "b"}, {"input": "c", "control": "b"})
    assert message is not None
    assert "input had the id a and has c" in message
    assert "control" not in message
    assert "--fresh" in message
