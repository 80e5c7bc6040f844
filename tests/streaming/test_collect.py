"""When a collector sweeps, which brokers it leaves out, and of which bundles it reports the topics."""

import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.splitting.plan import SplitSettings
from state.settings import RoundSettings
from streaming.collector.collector import BACKOFF_S_MAX, Cadence, Patience
from streaming.collector.facts import LoadManagers, WrongLoadManager, require_reports
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.pulsar import EventWriter, Sweeper
from streaming.collector.reports import (
    ForeignReport,
    read_report,
    topic_traffic,
    wanted_bundles,
    with_system_bundles,
)
from streaming.collector.unowned import Unowned
from streaming.process.deadline import poll
from streaming.pulsar.admin import BrokerConfiguration, PulsarAdmin
from streaming.pulsar.http import HttpClient
from streaming.pulsar.load_data import LoadData
from streaming.settings import PulsarTarget
from tests.streaming.http_broker import Answer, Asked, answer_owner, http_brokers

MINUTE = Cadence.from_rounds(RoundSettings(length_s=60, lateness_s=10), sweeps_per_round=2)


@pytest.mark.parametrize(
    ("now_s", "next_s"),
    [
        pytest.param(0.0, 10.0, id="just when the round before may close"),
        pytest.param(10.0, 40.0, id="and in the middle between"),
        pytest.param(39.9, 40.0, id="however close"),
        pytest.param(69.0, 70.0, id="round after round"),
    ],
)
def test_a_sweep_comes_when_the_round_before_may_close(now_s: float, next_s: float):
    assert MINUTE.next_sweep_s(now_s) == next_s


@given(
    now_s=st.floats(min_value=1e9, max_value=2e9),
    length_s=st.floats(min_value=1, max_value=600),
    lateness_s=st.floats(min_value=0, max_value=120),
    sweeps=st.integers(min_value=2, max_value=10),
)
@example(now_s=2.0**30, length_s=1.0, lateness_s=1.0, sweeps=5)
def test_there_are_as_many_sweeps_a_round_as_asked(
    now_s: float, length_s: float, lateness_s: float, sweeps: int
):
    cadence = Cadence(length_s=length_s, lateness_s=lateness_s, sweeps_per_round=sweeps)
    next_s = cadence.next_sweep_s(now_s)
    assert now_s < next_s <= now_s + cadence.interval_s * 1.000001
    assert sweeps * cadence.interval_s == pytest.approx(length_s)


def test_sweeps_without_a_broker_list_become_rarer_up_to_a_minute():
    waits = [MINUTE.after_failures_s(0.0, failures) for failures in range(1, 9)]
    assert waits[:2] == [10.0, 40.0]
    assert waits == sorted(waits)
    assert waits[-1] <= BACKOFF_S_MAX + MINUTE.interval_s


def test_a_broker_that_keeps_failing_is_asked_ever_more_rarely_until_it_was_gone():
    patience, asked = Patience(), []
    for sweep in range(12):
        if not patience.skips("b1"):
            asked.append(sweep)
            patience.note_failure("b1")
    assert asked == [0, 1, 3, 7, 11]
    patience.keep_only(["b2"])
    assert not patience.skips("b1")


def bundle(rate: float = 0, volume: float = 0, topics: int = 1, sessions: int = 0) -> dict[str, float]:
    return {"msgRateIn": rate, "msgThroughputOut": volume, "topics": topics, "producerCount": sessions}


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        (
            {"near rate": bundle(rate=500), "below": bundle(rate=499), "top": bundle(rate=900)},
            {"near rate", "top"},
        ),
        (
            {"near volume": bundle(volume=5e5), "below": bundle(volume=4e5), "rate": bundle(rate=1)},
            {"near volume", "rate"},
        ),
        ({"topics": bundle(topics=5), "few": bundle(topics=4)}, {"topics"}),
        ({"sessions": bundle(sessions=5), "few": bundle(sessions=4)}, {"sessions"}),
        ({"heaviest of the broker": bundle(rate=2), "light": bundle(rate=1)}, {"heaviest of the broker"}),
        ({"idle": bundle()}, set()),
        ({}, set()),
    ],
)
def test_topics_are_reported_of_bundles_near_a_split_limit_and_of_the_heaviest(
    stats: dict[str, dict[str, float]], wanted: set[str]
):
    limits = SplitSettings(
        max_messages_per_s=1000, max_bytes_per_s=1e6, max_topics_count=10, max_sessions_count=10
    )
    loads = (
        read_report(json.dumps({"loadReportType": "LocalBrokerData", "lastStats": stats}).encode()).lastStats
        or {}
    )
    assert wanted_bundles(loads, wanted="hot", limits=limits) == wanted
    assert wanted_bundles(loads, wanted="none", limits=limits) == set()
    assert wanted_bundles(loads, wanted="all", limits=limits) is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "makes none"),
        (b"null", "makes none"),
        (b"<html>", "not JSON"),
        (b'{"loadReportType": "LoadReport", "loadManagerClassName": "x.Simple"}', "'LoadReport'.*x.Simple"),
    ],
)
def test_what_is_no_load_report_of_the_modular_load_manager_is_called_by_name(answer: bytes, message: str):
    with pytest.raises(ForeignReport, match=message):
        read_report(answer)


def test_bundles_of_pulsar_system_are_added_to_a_report_and_nothing_else_changes():
    report = b'{"cpu": {"usage": 1e2, "limit": 800.0}, "bundles": []}'
    assert with_system_bundles(report, []) == report
    system = [f"pulsar/system/0x{at}0000000_0x{at + 1}0000000" for at in range(2)]
    assert with_system_bundles(report, system[::-1]) == (
        b'{"cpu":{"usage": 1e2, "limit": 800.0},"bundles":[],"systemBundles":'
        b'["pulsar/system/0x00000000_0x10000000","pulsar/system/0x10000000_0x20000000"]}'
    )


def test_a_report_with_numbers_nobody_can_read_goes_on_to_be_rejected_by_name():
    assert read_report(b'{"lastStats": {"t/n/0x0_0x1": {"msgRateIn": "NaN"}}}').lastStats is None


def test_topics_of_both_kinds_are_found_by_the_full_name_of_their_bundle():
    rates = {
        "msgRateIn": 1.0,
        "msgRateOut": 2.0,
        "msgThroughputIn": 3.0,
        "msgThroughputOut": 4.0,
        "storageSize": 5,
    }
    answer = {"t/n": {"0x0_0x1": {"persistent": {"p": rates}, "non-persistent": {"q": rates}}, "0x1_0x2": {}}}
    found = topic_traffic(json.dumps(answer).encode(), {"t/n/0x0_0x1", "t/gone/0x0_0x1"})
    assert {name: sorted(topics) for name, topics in found.items()} == {"t/n/0x0_0x1": ["p", "q"]}
    assert set(topic_traffic(json.dumps(answer).encode(), None)) == {"t/n/0x0_0x1", "t/n/0x1_0x2"}


BUNDLE = "t/n/0x00000000_0xffffffff"


def answer_of(**topics: object) -> bytes:
    """A broker's statistics of one bundle."""
    return json.dumps({"t/n": {BUNDLE.rpartition("/")[2]: {"persistent": topics}}}).encode()


@pytest.mark.parametrize(
    ("stats", "producers", "consumers"),
    [
        ({"producerCount": 2, "publishers": [{}], "subscriptions": {}}, 2, 0),
        ({"producerCount": 0, "subscriptions": {"s": {"consumers": [{"metadata": {}}] * 3}}}, 0, 3),
        ({"subscriptions": {"s": {"consumers": [{}]}, "x": {"consumers": [{}, {}]}}}, None, 3),
        ({"producerCount": 1}, 1, None),
        ({"producerCount": 1, "subscriptions": {"s": {"consumers": [{}]}, "x": {}}}, 1, None),
    ],
    ids=["no subscription", "a subscription", "of all subscriptions", "no list", "one without its list"],
)
def test_clients_of_a_topic_are_counted_and_what_a_broker_does_not_say_is_not_known(
    stats: dict[str, object], producers: float | None, consumers: float | None
):
    found = topic_traffic(answer_of(p=stats), None)[BUNDLE]["p"]
    assert (found.producers, found.consumers) == (producers, consumers)


def test_a_topic_with_forty_thousand_consumers_takes_no_more_than_a_few_megabytes():
    consumer = {
        "address": "/127.0.0.1:45842",
        "consumerName": "8a5255fbd8",
        "msgRateOut": 1.5,
        "metadata": {},
    }
    answer = answer_of(p={"producerCount": 1, "subscriptions": {"s": {"consumers": [consumer] * 40_000}}})
    tracemalloc.start()
    found = topic_traffic(answer, {BUNDLE})
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[BUNDLE]["p"].consumers == 40_000
    assert peak_bytes < 2e6 < len(answer)


@pytest.mark.parametrize("name", ["NoopLoadManager", "SimpleLoadManagerImpl"])
def test_a_load_manager_without_full_reports_is_refused_with_what_to_set(name: str):
    found = BrokerConfiguration(cluster_name="c", load_manager_class_name=f"org.example.{name}")
    with pytest.raises(WrongLoadManager, match=rf"{name}, which .*loadManagerClassName="):
        require_reports(found, cluster="east-1")


REPORT = json.dumps({"loadReportType": "LocalBrokerData", "lastStats": {}}).encode()


class Sink:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, key: str, value: bytes) -> None:
        assert key == "east-1"
        self.messages.append(json.loads(value))

    def flush(self) -> None:
        """Everything sent is here already."""

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def sweeping(url: str) -> Iterator[tuple[Sweeper, Sink]]:
    """A sweeper of the cluster ``c`` with the modular load manager."""
    target, metrics, sink = PulsarTarget(admin_url=url, timeout_s=30), CollectorMetrics("east-1"), Sink()
    http = HttpClient(target)
    admin = PulsarAdmin(http, target)
    sweeper = Sweeper(
        admin,
        EventWriter(sink, metrics, cluster="east-1", clock_s=lambda: 0.001),
        metrics,
        target=target,
        limits=SplitSettings(),
        pulsar_cluster="c",
        managers=LoadManagers(admin, metrics, cluster="east-1", first="ModularLoadManagerImpl"),
        load_data=LoadData(admin, http, target),
        unowned=Unowned(admin, lambda: 1),
    )
    yield sweeper, sink
    sweeper.close()


def test_a_broker_that_never_answers_delays_neither_the_others_nor_the_tick():
    with http_brokers() as make:
        silent = make(lambda _: (200, {}, None))
        good = make(lambda asked: (200, {}, ids if asked.path.endswith("/brokers/c") else REPORT))
        names = [each.url.removeprefix("http://") for each in (good, silent)]
        ids = json.dumps(names).encode()
        with sweeping(good.url) as (sweeper, sink):
            sweeps = [sweeper.sweep(within_s=0.5) for _ in range(2)]
        assert len(silent.asked) == 1, "it is not asked again while it is being asked"
    assert [each["subject"] for each in sink.messages] == [names[0], "tick"] * 2
    for sweep in sweeps:
        assert (set(sweep.asked), dict(sweep.failed)) == (set(names), {names[1]: "no complete answer yet"})


def test_reports_tell_who_last_owned_system_bundles_bundles_without_asking_brokers(
    caplog: pytest.LogCaptureFixture,
):
    system, bounds = "/admin/v2/namespaces/pulsar/system", ["0x00000000", "0x80000000", "0xffffffff"]
    status = 404

    def answer(asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        if path == f"{system}/bundles":
            return status, {}, json.dumps({"boundaries": bounds}).encode()
        if path.endswith("/topicHashPositions"):
            return answer_owner(asked, pulsar[1].url if bounds[0] in path else "")
        return 200, {}, json.dumps(names).encode() if path.endswith("/brokers/c") else REPORT

    with http_brokers() as make:
        pulsar = [make(answer) for _ in range(2)]
        names = [each.url.removeprefix("http://") for each in pulsar]
        with sweeping(pulsar[0].url) as (sweeper, sink):

            def told() -> dict[str, list[str] | None]:
                """By broker, what the last report tells."""
                assert not sweeper.sweep(within_s=30).failed
                data = {each["subject"]: each["data"] for each in sink.messages[-3:]}
                return {name: data[name].get("systemBundles") for name in names}

            assert told() == {names[0]: None, names[1]: None}, "the namespace is made when it is needed"
            status = 200
            known = {names[0]: None, names[1]: ["pulsar/system/0x00000000_0x80000000"]}
            assert poll(lambda: told() == known, timeout_s=30, pause_s=0.05)
            status = 500
            assert poll(
                lambda: told() == known and "could not be read" in caplog.text, timeout_s=30, pause_s=0
            )
            assert [told() for _ in range(5)] == [known] * 5
    assert caplog.text.count("who owns the bundles of pulsar/system could not be read") == 1
    assert not [each for broker in pulsar for each in broker.asked if "ownedNamespaces" in each.path]
