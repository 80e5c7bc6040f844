"""A round of a Kafka cluster says in words why a throttle is decided, or is not."""

from typing import get_args

from policies.throttle.pacing_round import Outcome, Trigger
from state.kafka.wording import OUTCOMES, TRIGGERS


def test_there_are_words_for_every_trigger_and_outcome():
    assert TRIGGERS.keys() == {*get_args(Trigger)}
    assert OUTCOMES.keys() == {*get_args(Outcome), "held"}
