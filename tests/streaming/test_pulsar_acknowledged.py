"""The broker's answers to messages under way: repeated messages do not count as new, and no failure is ignored."""

import threading

import pulsar
import pytest

from streaming.pulsar.commits import Acknowledged, NotSent

NEW = pulsar.MessageId(-1, 5, 0, -1)
REPEATED = pulsar.MessageId(-1, -1, -1, -1)


def under_way(count: int) -> Acknowledged:
    sent = Acknowledged()
    for _ in range(count):
        sent.sending()
    return sent


def test_a_message_the_broker_had_already_is_not_counted_as_new() -> None:
    sent = under_way(3)
    for id_ in (NEW, REPEATED, NEW):
        sent.answer(pulsar.Result.Ok, id_)
    sent.wait(timeout_s=1.0)
    assert sent.new_count == 2


def test_waiting_ends_as_soon_as_few_enough_are_under_way_also_from_another_thread() -> None:
    sent = under_way(3)
    threading.Timer(0.01, lambda: sent.answer(pulsar.Result.Ok, NEW)).start()
    sent.wait(timeout_s=30.0, most=2)
    assert sent.new_count == 1


def test_the_first_failure_is_raised_however_many_others_went_well() -> None:
    sent = under_way(3)
    for result in (pulsar.Result.Ok, pulsar.Result.ProducerFenced, pulsar.Result.AlreadyClosed):
        sent.answer(result, NEW)
    for _ in range(2):
        with pytest.raises(NotSent, match="ProducerFenced") as raised:
            sent.wait(timeout_s=1.0)
        assert raised.value.result == pulsar.Result.ProducerFenced


def test_an_answer_that_does_not_come_is_a_failure_of_its_own() -> None:
    with pytest.raises(NotSent, match=r"no answer within 0\.01 s") as raised:
        under_way(1).wait(timeout_s=0.01)
    assert raised.value.result is None
