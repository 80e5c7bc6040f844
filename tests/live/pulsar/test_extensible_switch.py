"""A cluster whose load manager is switched broker by broker, there and back, while a collector runs."""

import logging
from pathlib import Path

import pytest

from deploy.local.pulsar import LocalPulsar
from deploy.local.pulsar_settings import LoadManager
from streaming.contract.messages import BrokerLoadMessage, LoadReportMessage
from tests.live.driving import until
from tests.live.pulsar.hearing import Heard
from tests.live.pulsar.lab import Lab
from tests.live.pulsar.test_extensible import collecting_from

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_switch_of_load_managers_is_said_and_collected_through_in_both_directions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with LocalPulsar(tmp_path, brokers=2) as pulsar:
        lab, heard = Lab(pulsar), Heard()
        collecting = collecting_from(lab, heard)

        def all_read_as(kind: type[BrokerLoadMessage | LoadReportMessage]) -> bool:
            heard.values.clear()
            return collecting.sweep() and set(heard.of(kind)) == set(pulsar.broker_ids)

        def switch(manager: LoadManager) -> None:
            pulsar.use_load_manager(manager)
            for number in (1, 2):
                pulsar.stop_broker(number)
                pulsar.start_broker(number)

        until(lambda: all_read_as(LoadReportMessage), what="reports", running=[pulsar])
        switch("extensible")
        until(lambda: all_read_as(BrokerLoadMessage), what="published loads", running=[pulsar])
        switch("modular")
        until(lambda: all_read_as(LoadReportMessage), what="reports again", running=[pulsar])
        collecting.close()
    said = [each.getMessage() for each in caplog.records if "has changed" in each.getMessage()]
    for broker in pulsar.broker_ids:
        assert any(f"{broker} runs ExtensibleLoadManagerImpl now" in each for each in said)
        assert any(f"{broker} runs ModularLoadManagerImpl now" in each for each in said)
