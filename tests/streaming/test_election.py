"""When a standby tries to lead: silence that was really heard, a goodbye, and one standby at a time."""

from streaming.contract.beat import Beat, encode
from streaming.controller.standby import Election

SESSION_S = 10.0


def leader(*, epoch: int = 7, session_s: float = SESSION_S, is_leaving: bool = False) -> bytes:
    return encode(
        Beat(
            name="main",
            instance="a:1",
            epoch=epoch,
            batch=3,
            at="then",
            version="1",
            session_s=session_s,
            is_leaving=is_leaving,
        )
    )


def standby(instance: str, *, problem: str = "", is_leaving: bool = False) -> bytes:
    return encode(
        Beat(
            name="main",
            instance=instance,
            epoch=0,
            batch=None,
            at="then",
            version="1",
            role="standby",
            session_s=SESSION_S,
            problem=problem,
            is_leaving=is_leaving,
        )
    )


def election(instance: str = "b:1", session_s: float = SESSION_S) -> Election:
    return Election(name="main", instance=instance, session_s=session_s)


def read(heard: Election, seconds: range | list[float], *records: bytes) -> None:
    """Read the topic at each of these seconds; the first read finds the records."""
    for record in records:
        heard.receive(record)
    for at_s in seconds:
        heard.note_read(float(at_s))


def test_nothing_is_tried_before_the_topic_was_read_to_its_end() -> None:
    heard = election()
    heard.receive(leader(is_leaving=True))
    assert heard.reason() is None


def test_a_leader_that_was_heard_within_the_session_is_left_alone_and_one_that_was_not_is_followed() -> None:
    heard = election()
    read(heard, range(10), leader())
    assert heard.reason() is None
    heard.note_read(10.0)
    assert heard.reason() == "the leader a:1 was not heard for 10.0 s"
    heard.receive(leader())
    heard.note_read(11.0)
    assert heard.reason() is None


def test_where_nobody_has_led_a_standby_waits_a_session_too() -> None:
    heard = election()
    read(heard, range(10))
    assert heard.reason() is None
    heard.note_read(10.0)
    assert heard.reason() == "no leader was heard for 10.0 s"


def test_an_outage_is_not_silence_and_the_leader_has_a_session_after_it() -> None:
    heard = election()
    read(heard, range(9), leader())
    heard.note_failure()
    read(heard, [600.0])
    assert heard.reason() is None
    read(heard, range(601, 610))
    assert heard.reason() is None
    read(heard, [610.0])
    assert heard.reason() == "the leader a:1 was not heard for 10.0 s"


def test_a_standby_that_was_frozen_does_not_count_the_time_as_the_leaders_silence() -> None:
    heard = election()
    read(heard, range(3), leader())
    heard.note_read(3_600.0)
    assert heard.reason() is None


def test_a_leader_with_a_longer_session_has_its_own_and_one_of_an_earlier_version_25_seconds() -> None:
    heard = election()
    read(heard, range(30), leader(session_s=30.0))
    assert heard.reason() is None
    heard.note_read(30.0)
    assert heard.reason() is not None


def test_a_goodbye_is_followed_at_once_unless_a_newer_leader_was_heard() -> None:
    heard = election()
    read(heard, [0.0], leader(), leader(is_leaving=True))
    assert heard.reason() == "the leader a:1 has said goodbye"
    read(heard, [1.0], leader(epoch=8), leader(epoch=7, is_leaving=True))
    assert heard.reason() is None


def test_a_predecessor_that_goes_on_beating_does_not_hide_the_silence_of_the_leader() -> None:
    heard = election()
    read(heard, [0.0], leader(epoch=8))
    for at_s in range(1, 11):
        read(heard, [float(at_s)], leader(epoch=7))
    assert heard.reason() == "the leader a:1 was not heard for 10.0 s"


def test_of_several_standbys_the_first_by_name_tries_and_the_next_one_leaves_it_a_session() -> None:
    first, second = election("b:1"), election("c:1")
    for at_s in range(11):
        read(first, [float(at_s)], *([leader()] if at_s == 0 else []), standby("c:1"))
        read(second, [float(at_s)], *([leader()] if at_s == 0 else []), standby("b:1"))
    assert first.reason() is not None
    assert second.reason() is None
    for at_s in range(11, 19):
        read(second, [float(at_s)], standby("b:1"))
    assert second.reason() is None
    read(second, [20.0])
    assert second.reason() is not None, "the first standby had a whole session and did not take over"


def test_a_standby_that_could_not_lead_or_has_left_is_not_waited_for() -> None:
    for gone in (standby("b:1", problem="no checkpoint"), standby("b:1", is_leaving=True)):
        heard = election("c:1")
        read(heard, [0.0], leader(is_leaving=True), standby("b:1"), gone)
        assert heard.reason() is not None


def test_what_is_no_beat_and_what_other_controllers_say_is_passed_over() -> None:
    heard = election()
    other = leader(is_leaving=True).replace(b'"main"', b'"other"')
    read(heard, [0.0], leader(), b"{}", other)
    heard.receive(None)
    assert heard.reason() is None
    assert heard.leader is not None
    assert heard.leader.epoch == 7
