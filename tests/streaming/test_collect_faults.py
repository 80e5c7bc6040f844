"""The collector of a cluster that loses its brokers, has none, becomes another kind of cluster, or publishes no load."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import PulsarCollector, StartRefused
from streaming.pulsar.admin import HttpClient, PulsarAdmin
from streaming.pulsar.load_data import LOAD_TOPIC, TOP_BUNDLES_TOPIC, LoadData, NoLoadData, PublishedLoad
from streaming.settings import PulsarTarget, load
from tests.streaming.http_broker import Answer, Asked, Broker, Brokers, http_brokers

CLUSTER = "east-1"
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
NOOP = "org.apache.pulsar.broker.loadbalance.NoopLoadManager"
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


QUICK = {"pulsar.rounds.length_s": 1, "pulsar.rounds.lateness_s": 0.1}
"""Two sweeps a second."""


class Heard:
    """A sink that keeps the ticks and the cluster facts."""

    def __init__(self) -> None:
        self.ticks: list[object] = []
        self.facts: list[dict[str, Any]] = []

    def send(self, key: str, value: bytes) -> None:
        assert key == CLUSTER
        event = json.loads(value)
        if event["subject"] == "cluster":
            self.facts.append(event["data"])
        if event["subject"] == "tick":
            self.ticks.append(event["data"])

    def flush(self) -> None:
        """Everything sent is here already."""

    def close(self) -> None:
        """Nothing to close."""


def answered(message: object) -> Answer:
    return 200, {}, json.dumps(message).encode()


def runtime(manager: str, **more: str) -> Answer:
    return answered({"clusterName": "c", "loadManagerClassName": manager, **more})


def one_broker(brokers: Brokers, own_answer: Callable[[Asked], Answer | None]) -> Broker:
    """The only broker of a cluster; where it has no answer of its own, it answers as one without brokers."""

    def answer(asked: Asked) -> Answer:
        if asked.path == "/admin/v2/brokers/c":
            return answered([made.url.removeprefix("http://")])
        return own_answer(asked) or without_brokers(asked)

    made = brokers(answer)
    return made


def without_brokers(asked: Asked) -> Answer:
    """A web service that knows a cluster and no broker of it."""
    if asked.path.endswith("/configuration/runtime"):
        return runtime(MODULAR)
    is_table = asked.path.endswith(("/namespaceIsolationPolicies", "/failureDomains"))
    return 200, {}, b"{}" if is_table else b"[]"


@contextmanager
def collector(broker: Broker, heard: Heard, **flags: object) -> Iterator[PulsarCollector]:
    """A collector; at the end it has read the cluster's facts."""
    target = PulsarTarget(admin_url=broker.url, timeout_s=2)
    settings = load(file=None, flags=QUICK | flags, environ={}).settings
    made = PulsarCollector(settings, CollectorMetrics(CLUSTER), cluster=CLUSTER, target=target, sink=heard)
    yield made
    made.join_facts()
    made.close()


def failed_sweeps(collecting: PulsarCollector, result: str) -> float | None:
    labels = {"cluster": CLUSTER, "outcome": result}
    return collecting.metrics.registry.get_sample_value("trimtab_collector_sweeps_total", labels)


def test_a_cluster_that_lists_no_broker_gives_a_tick_that_asked_nobody(brokers: Brokers):
    heard = Heard()
    with collector(brokers(without_brokers), heard) as collecting:
        assert collecting.sweep()
    assert heard.ticks == [{"asked": [], "failed": {}}]


def test_when_no_broker_answers_any_more_there_is_no_tick_and_it_says_so(brokers: Brokers):
    heard, broker = Heard(), brokers(without_brokers)
    with collector(broker, heard) as collecting:
        broker.answer = lambda _: (500, {}, b'{"reason": "metadata store is gone"}')
        assert not collecting.sweep()
        assert heard.ticks == [], "silence moves no clock"
        assert failed_sweeps(collecting, "no-brokers") == 1
        (check,) = collecting.readiness()
        assert not check.ok
        assert "metadata store is gone" in check.detail
        broker.answer = without_brokers
        assert collecting.sweep(), "and it goes on by itself"
        assert collecting.readiness()[0].ok


def test_a_load_manager_that_is_changed_under_it_ends_it_with_the_remedy(brokers: Brokers):
    broker = brokers(without_brokers)
    with collector(broker, Heard()) as collecting:
        broker.answer = lambda asked: (
            runtime(NOOP) if asked.path.endswith("/configuration/runtime") else without_brokers(asked)
        )
        with pytest.raises(StartRefused, match="loadManagerClassName="):
            collecting.run()


@pytest.mark.parametrize(
    ("configured", "shown"),
    [
        ({}, None),
        ({"supportedNamespaceBundleSplitAlgorithms": "[]"}, []),
        (
            {"supportedNamespaceBundleSplitAlgorithms": "[range_equally_divide, specified_positions_divide]"},
            ["range_equally_divide", "specified_positions_divide"],
        ),
        ({"supportedNamespaceBundleSplitAlgorithms": "range_equally_divide"}, ["range_equally_divide"]),
    ],
    ids=["an older broker that does not say", "none", "as Pulsar writes a list", "a single name"],
)
def test_it_says_which_splits_brokers_allow(
    brokers: Brokers, configured: dict[str, str], shown: list[str] | None
):
    def own_answer(asked: Asked) -> Answer | None:
        return runtime(MODULAR, **configured) if asked.path.endswith("/configuration/runtime") else None

    heard = Heard()
    with collector(one_broker(brokers, own_answer), heard) as collecting:
        collecting.sweep()
    (broker,) = heard.facts[0]["brokers"].values()
    assert broker["split_algorithms"] == shown


def test_it_says_once_that_pulsars_own_balancer_is_on_and_once_that_it_is_off(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    configured: Answer = runtime(MODULAR)

    def own_answer(asked: Asked) -> Answer | None:
        return configured if asked.path.endswith("/configuration/runtime") else None

    def said() -> list[str]:
        caplog.clear()
        collecting._facts_due_s = 0.0
        assert collecting.sweep()
        collecting.join_facts()
        return [each for each in caplog.messages if each.startswith("Pulsar ")]

    key = "loadBalancerSheddingEnabled"
    broker = one_broker(brokers, own_answer)
    name = broker.url.removeprefix("http://")
    with collector(broker, Heard()) as collecting:
        assert said() == [], "it is off from the start"
        configured = runtime(MODULAR, loadBalancerSheddingEnabled="true", loadBalancerEnabled="true")
        assert said() == [f"Pulsar sheds {CLUSTER} by itself, too ({key} is on at {name})"]
        assert said() == []
        configured = runtime(MODULAR, loadBalancerSheddingEnabled="false", loadBalancerEnabled="true")
        assert said() == [f"Pulsar no longer sheds {CLUSTER} by itself ({key} is off at every broker)"]
        assert said() == []


OWN = "public/default"
IN, COMMITS, USERS = (
    f"persistent://{OWN}/{name}"
    for name in ("trimtab.input-partition-0", "trimtab.commits-trimtab", "orders")
)


def test_it_says_in_which_bundles_its_trimtab_topics_are_and_what_they_carry(brokers: Brokers):
    """A topic whose statistics cannot be read is left out; a user's topic in the same bundle is not one of its own."""

    def with_trimtab_topics(asked: Asked) -> Answer:
        message: object = None
        if asked.path == f"/admin/v2/persistent/{OWN}":
            message = [IN, COMMITS, USERS]
        elif asked.path == f"/admin/v2/namespaces/{OWN}/bundles":
            message = {"boundaries": ["0x00000000", "0xffffffff"]}
        elif asked.path == f"/admin/v2/persistent/{OWN}/trimtab.input-partition-0/stats":
            message = {"msgRateIn": 40.5, "msgThroughputIn": 9e4, "publishers": [], "storageSize": 7}
        elif asked.path.endswith("/stats"):
            return 500, {}, b"{}"
        return without_brokers(asked) if message is None else (200, {}, json.dumps(message).encode())

    heard = Heard()
    for url in ("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:9092"):
        with collector(brokers(with_trimtab_topics), heard, **{"input.url": url}) as collecting:
            collecting.sweep()
    on_pulsar, on_kafka = (each["trimtab_topics"] for each in heard.facts)
    rates = {"msgRateIn": 40.5, "msgRateOut": 0.0, "msgThroughputIn": 9e4, "msgThroughputOut": 0.0}
    assert on_pulsar == {f"{OWN}/0x00000000_0xffffffff": {IN: rates}}
    assert on_kafka == {}


@pytest.mark.parametrize(
    ("first", "then"), [(MODULAR, EXTENSIBLE), (EXTENSIBLE, MODULAR)], ids=["to extensible", "to modular"]
)
def test_a_switch_of_load_managers_is_said_and_noticed_before_a_second_sweep_fails(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, first: str, then: str
):
    running = first

    def own_answer(asked: Asked) -> Answer | None:
        if asked.path.endswith("/configuration/runtime"):
            return runtime(running)
        if asked.path.endswith("/load-report"):
            report = {"loadReportType": "LocalBrokerData", "lastStats": {}}
            return answered(report) if running == MODULAR else (500, {}, b"{}")
        return (404, {}, b'{"reason": "no such topic"}') if asked.path.startswith("/lookup/") else None

    broker = one_broker(brokers, own_answer)
    with collector(broker, Heard()) as collecting:
        assert collecting.sweep()
        running = then
        assert collecting.sweep()
        assert collecting.sweep()
    names = [each.rpartition(".")[2] for each in (then, first)]
    name = broker.url.removeprefix("http://")
    assert f"broker {name} runs {names[0]} now, and ran {names[1]} before" in caplog.text
    counts = [
        collecting.metrics.registry.get_sample_value(
            "trimtab_collector_load_managers", {"cluster": CLUSTER, "manager": name}
        )
        for name in names
    ]
    assert counts == [1, 0]


def test_what_brokers_publish_that_cannot_be_followed_is_said_of_each_of_them(brokers: Brokers):
    def own_answer(asked: Asked) -> Answer | None:
        if asked.path.endswith("/configuration/runtime"):
            return runtime(EXTENSIBLE)
        return (403, {}, b'{"reason": "not a super-user"}') if asked.path.startswith("/lookup/") else None

    heard = Heard()
    with collector(one_broker(brokers, own_answer), heard) as collecting:
        assert collecting.sweep()
    (failed,) = heard.ticks[0]["failed"].values()
    assert "the broker that serves the brokers' load data cannot be found" in failed
    assert "not a super-user" in failed


def lost(asked: Asked) -> Answer:
    """The answer to a lookup: it names a broker at whose address nothing listens."""
    assert asked.path.startswith("/lookup/")
    return (
        200,
        {},
        json.dumps({"brokerUrl": "pulsar://127.0.0.1:1", "httpUrl": "http://127.0.0.1:1"}).encode(),
    )


def test_a_broker_that_cannot_be_heard_is_looked_for_again_and_no_old_value_repeated():
    with http_brokers() as make:
        broker = make(lost)
        target = PulsarTarget(admin_url=broker.url, timeout_s=1)
        with HttpClient(target) as http:
            load_data = LoadData(PulsarAdmin(http, target), http, target)
            load_data._take(LOAD_TOPIC, "b1", b"{}")
            assert load_data.newest("b1", within_s=0) == PublishedLoad(b"{}", b"")
            for _ in range(2):
                load_data.follow()
                with pytest.raises(NoLoadData, match="the brokers' load data cannot be read"):
                    load_data.newest("b1", within_s=60)
            load_data.close()
    assert len(broker.asked) == 2


@pytest.mark.parametrize("happens", ["load", "problem"])
def test_load_is_waited_for_until_it_comes_or_the_topics_cannot_be_followed(happens: str):
    target = PulsarTarget()
    with HttpClient(target) as http, ThreadPoolExecutor(1) as pool:
        load_data = LoadData(PulsarAdmin(http, target), http, target)
        waiting = pool.submit(load_data.newest, "b1", within_s=60)
        load_data._take(LOAD_TOPIC, "b2", b"{}")
        load_data._take(TOP_BUNDLES_TOPIC, "b1", b"[]")
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        if happens == "load":
            load_data._take(LOAD_TOPIC, "b1", b"{}")
            assert waiting.result(10) == PublishedLoad(b"{}", b"[]")
        else:
            load_data._note_problem("no broker serves them")
            with pytest.raises(NoLoadData, match="no broker serves them"):
                waiting.result(10)


def test_a_broker_that_took_its_load_back_and_one_never_heard_of_are_told_apart():
    target = PulsarTarget()
    with HttpClient(target) as http:
        load_data = LoadData(PulsarAdmin(http, target), http, target)
        load_data._take(LOAD_TOPIC, "b1", b"{}")
        load_data._take(TOP_BUNDLES_TOPIC, "b1", b"[]")
        load_data._take(LOAD_TOPIC, "b1", b"")
        with pytest.raises(NoLoadData, match="it took back what it published"):
            load_data.newest("b1", within_s=0)
        with pytest.raises(NoLoadData, match="loadBalancerReportUpdateMaxIntervalMinutes"):
            load_data.newest("b2", within_s=0)
        load_data.keep_only(["b2"])
        with pytest.raises(NoLoadData, match="it has published no load"):
            load_data.newest("b1", within_s=0)
