"""What the network client of kafka-python does beside connecting."""

import logging

import pytest

from streaming.kafka.client import connect_quickly


def test_a_connection_to_kafka_that_is_reset_is_one_line_with_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()
    error = ConnectionResetError(104, "100% reset by peer")
    logging.getLogger("kafka.net.transport").error("%s: Error receiving", "broker 1", exc_info=error)
    assert "broker 1: Error receiving: ConnectionResetError(104, '100% reset by peer')" in caplog.text
    assert "Traceback" not in caplog.text
