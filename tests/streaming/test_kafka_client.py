"""What the network client of kafka-python does beside connecting."""

import gc
import logging
import selectors
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.selector import NetworkSelector

from streaming.kafka.client import connect_quickly


def test_a_connection_to_kafka_that_is_reset_is_one_line_with_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()
    error = ConnectionResetError(104, "100% reset by peer")
    logging.getLogger("kafka.net.transport").error("%s: Error receiving", "broker 1", exc_info=error)
    assert "broker 1: Error receiving: ConnectionResetError(104, '100% reset by peer')" in caplog.text
    assert "Traceback" not in caplog.text


def test_no_client_makes_a_topic_by_asking_for_it() -> None:
    client = connect_quickly(bootstrap_servers=["127.0.0.1:1"])
    try:
        assert not client.cluster.metadata_request().allow_auto_topic_creation
    finally:
        client.close()


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_a_client_that_finds_no_broker_leaves_no_thread_and_no_open_file(
    kind: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka")  # a captured line keeps its error, and that the socket

    def held() -> tuple[set[threading.Thread], int]:
        gc.collect()
        return set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    with pytest.raises(KafkaTimeoutError):
        kind(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100, kafka_client=connect_quickly)
    assert held() == before


def run_task(selector: NetworkSelector, waits: Callable[[], Awaitable[None]]) -> None:
    selector.call_soon(waits())
    selector.drain()


def test_a_wait_for_a_socket_that_the_client_has_closed_meanwhile_is_no_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()
    selector, (ours, theirs) = NetworkSelector(), socket.socketpair()

    async def read() -> None:
        await selector.wait_read(ours)

    async def fail() -> None:
        raise ValueError("anything else")

    with theirs:
        ours.close()
        run_task(selector, read)
        assert caplog.text == ""
        run_task(selector, fail)
    assert "Unhandled exception in task" in caplog.text
    assert "ValueError: anything else" in caplog.text, "with its traceback: it is a fault of the client"


def test_a_client_that_stops_working_is_reported_whatever_its_error_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connect_quickly(bootstrap_servers=["127.0.0.1:1"]).close()

    class BrokenSelector(selectors.DefaultSelector):
        def select(self, *_: object) -> list[tuple[selectors.SelectorKey, int]]:
            raise ValueError("Invalid file descriptor: -1")

    with pytest.raises(ValueError, match="Invalid file descriptor"):
        NetworkSelector(selector=BrokenSelector).run_forever()
    assert "IO loop crashed" in caplog.text
