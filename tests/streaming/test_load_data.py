"""Following the load that brokers publish when none can be read: an error says so, old values are not repeated, it is tried again."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from streaming.pulsar.admin import PulsarAdmin
from streaming.pulsar.http import HttpClient
from streaming.pulsar.load_data import LOAD_TOPIC, TOP_BUNDLES_TOPIC, LoadData, NoLoadData, PublishedLoad
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, http_brokers


def lost(asked: Asked) -> Answer:
    """The answer to a lookup: it names a broker at whose address nothing listens."""
    assert asked.path.startswith("/lookup/")
    return (
        200,
        {},
        json.dumps({"brokerUrl": "pulsar://127.0.0.1:1", "httpUrl": "http://127.0.0.1:1"}).encode(),
    )


def test_a_broker_that_cannot_be_heard_is_looked_for_again_and_old_values_are_not_repeated_meanwhile() -> (
    None
):
    with http_brokers() as make:
        broker = make(lost)
        target = PulsarTarget(admin_url=broker.url, timeout_s=1)
        with HttpClient(target) as http:
            load_data = LoadData(PulsarAdmin(http, target), http, target)
            load_data._tables.take(LOAD_TOPIC, "b1", b"{}")
            assert load_data.of("b1", within_s=0) == PublishedLoad(b"{}", b"")
            for _ in range(2):
                load_data.follow()
                with pytest.raises(NoLoadData, match="the brokers' load data cannot be read"):
                    load_data.of("b1", within_s=60)
            load_data.close()
    assert len(broker.asked) == 2


@pytest.mark.parametrize("happens", ["load", "problem"])
def test_load_is_waited_for_until_it_comes_or_the_topics_cannot_be_followed(happens: str) -> None:
    target = PulsarTarget()
    with HttpClient(target) as http, ThreadPoolExecutor(1) as pool:
        load_data = LoadData(PulsarAdmin(http, target), http, target)
        waiting = pool.submit(load_data.of, "b1", within_s=60)
        load_data._tables.take(LOAD_TOPIC, "b2", b"{}")
        load_data._tables.take(TOP_BUNDLES_TOPIC, "b1", b"[]")
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        if happens == "load":
            load_data._tables.take(LOAD_TOPIC, "b1", b"{}")
            assert waiting.result(10) == PublishedLoad(b"{}", b"[]")
        else:
            load_data._tables.note_problem("no broker serves them")
            with pytest.raises(NoLoadData, match="no broker serves them"):
                waiting.result(10)


def test_a_broker_that_took_its_load_back_and_one_never_heard_of_are_told_apart() -> None:
    target = PulsarTarget()
    with HttpClient(target) as http:
        load_data = LoadData(PulsarAdmin(http, target), http, target)
        load_data._tables.take(LOAD_TOPIC, "b1", b"{}")
        load_data._tables.take(TOP_BUNDLES_TOPIC, "b1", b"[]")
        load_data._tables.take(LOAD_TOPIC, "b1", b"")
        with pytest.raises(NoLoadData, match="it took back what it published"):
            load_data.of("b1", within_s=0)
        with pytest.raises(NoLoadData, match="loadBalancerReportUpdateMaxIntervalMinutes"):
            load_data.of("b2", within_s=0)
        load_data.keep_only(["b2"])
        with pytest.raises(NoLoadData, match="it has published no load"):
            load_data.of("b1", within_s=0)
