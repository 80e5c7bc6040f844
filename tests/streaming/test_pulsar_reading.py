"""What a person sees while a command reads a topic on Pulsar."""

import pulsar
import pytest

from streaming.process.exits import Refused
from streaming.pulsar.link import PulsarLink, input_on_pulsar
from streaming.pulsar.reading import explain_errors
from streaming.settings.load import compose

TOPIC = "persistent://ops/trimtab/trimtab.actions"


def link() -> PulsarLink:
    found = input_on_pulsar(compose({"input": {"url": "pulsar://mq:6650"}}))
    assert found is not None
    return found


def test_brokers_that_do_not_answer_are_named_with_the_settings() -> None:
    with (
        pytest.raises(Refused, match=r"pulsar://mq:6650 .*Check that input.url"),
        explain_errors(link(), TOPIC, "consume"),
    ):
        raise pulsar.ConnectError


def test_ctrl_c_is_no_error_of_pulsar_though_its_client_makes_it_one() -> None:
    with pytest.raises(KeyboardInterrupt), explain_errors(link(), TOPIC, "consume"):
        raise pulsar.Interrupted
