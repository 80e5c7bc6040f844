"""A broker's traffic from its metrics page: real pages over HTTP, rates between two looks, and what is unknown."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from streaming.collector.network_metrics import NetworkMeter
from streaming.contract.kafka import Network
from streaming.settings import KafkaTarget
from tests.streaming.http_broker import Answer, Brokers, http_brokers

UNKNOWN = Network()
PATIENCE_S = 20.0
PAGE = """\
# HELP kafka_server_brokertopicmetrics_bytesin_total bytes in
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total{{topic="orders",}} 12345.0
kafka_server_brokertopicmetrics_bytesin_total {produced}
kafka_server_brokertopicmetrics_bytesin_total_of_another_kind 7.0
kafka_server_brokertopicmetrics_replicationbytesin_total {copied}
kafka_server_brokertopicmetrics_bytesout_total {consumed}
kafka_server_brokertopicmetrics_replicationbytesout_total {fed}
"""


def page(
    produced: object = "1.0E9", copied: object = 0, consumed: object = 0, fed: object = 0, text: str = PAGE
) -> bytes:
    return text.format(produced=produced, copied=copied, consumed=consumed, fed=fed).encode()


@dataclass
class Pages:
    """One metrics page for each broker, which answers with what ``answers`` holds."""

    make: Brokers
    answers: dict[int, Answer] = field(default_factory=dict)
    now_s: float = 1000.0
    failures: list[None] = field(default_factory=list)

    def meter(
        self, *, interval_s: float = 5.0, timeout_s: float = 10.0, **names: Sequence[str]
    ) -> NetworkMeter:
        server = self.make(lambda asked: self.answers[int(asked.path.rpartition("/")[2])])
        target = KafkaTarget(metrics_url=f"{server.url}/of/{{broker}}", timeout_s=timeout_s, **names)
        return NetworkMeter(
            target,
            interval_s=interval_s,
            clock_s=lambda: self.now_s,
            failed=lambda: self.failures.append(None),
        )

    def look(self, meter: NetworkMeter, *, after_s: float = 5.0, **pages: bytes | int | None) -> None:
        """One sweep, ``after_s`` later; pages by broker as ``b1``; an int is a status, None is no answer."""
        self.now_s += after_s
        for name, body in pages.items():
            status, text = (body, b"no") if isinstance(body, int) else (200, body)
            self.answers[int(name[1:])] = (status, {}, text)
        meter.begin({int(name[1:]): "127.0.0.1" for name in pages})
        asked = {broker: page.asked for broker, page in meter._pages.items()}
        answered = [each for broker, each in asked.items() if each and self.answers[broker][2] is not None]
        assert not futures.wait(answered, timeout=PATIENCE_S).not_done


@pytest.fixture
def pages() -> Iterator[Pages]:
    with http_brokers() as make:
        yield Pages(make)


def test_a_rate_is_the_growth_of_the_counters_between_two_looks_rounded_up(pages: Pages):
    meter = pages.meter()
    pages.look(meter, b1=page(10**9, 5, 0, 100))
    assert meter.traffic(1) == UNKNOWN
    pages.look(meter, b1=page(10**9 + 40, 11, 0, 300))
    assert meter.traffic(1) == Network(in_bytes_per_s=10, out_bytes_per_s=40)  # 46 and 200 in 5 s


def test_it_is_the_mean_of_the_last_half_minute(pages: Pages):
    meter = pages.meter()
    for copied in (0, 500, 500, 500, 500, 500, 500, 500):
        pages.look(meter, b1=page(copied=copied))
        if copied and len(meter._pages[1].readings) == 2:
            assert meter.traffic(1).in_bytes_per_s == 100
    assert meter.traffic(1).in_bytes_per_s == 0


def test_counters_that_shrank_are_unknown_until_the_next_look(pages: Pages):
    meter = pages.meter()
    pages.look(meter, b1=page(10**9, 5, 50, 100))
    pages.look(meter, b1=page(10**9, 10, 20, 1000))
    assert meter.traffic(1) == Network(in_bytes_per_s=1, out_bytes_per_s=None)
    pages.look(meter, b1=page(10**9, 15, 25, 1005))
    assert meter.traffic(1) == Network(in_bytes_per_s=1, out_bytes_per_s=2)


@pytest.mark.parametrize(
    "body",
    [
        page(text=PAGE.replace("kafka_server_brokertopicmetrics_replicationbytesin_total", "another")),
        page(produced="NaN"),
        page(produced="+Inf"),
        page(text=PAGE.replace("bytesin_total {produced}", 'bytesin_total{{topic="a"}} {produced}')),
    ],
    ids=["missing", "not-a-number", "infinite", "only-by-topic"],
)
def test_a_counter_that_is_not_there_leaves_its_direction_unknown(pages: Pages, body: bytes):
    meter = pages.meter()
    for _ in range(2):
        pages.look(meter, b1=body)
    assert meter.traffic(1) == Network(in_bytes_per_s=None, out_bytes_per_s=0)


@pytest.mark.parametrize(
    "broken", [503, b"kafka_server_brokertopicmetrics_bytesin_total is 5\n", b"\xff" * 10, 302], ids=str
)
def test_a_page_that_cannot_be_read_costs_its_own_broker_only(pages: Pages, broken: bytes | int):
    meter = pages.meter()
    pages.look(meter, b1=page(copied=0), b2=page(copied=0))
    pages.look(meter, b1=page(copied=10), b2=page(copied=10))
    pages.look(meter, b1=broken, b2=page(copied=20))
    pages.look(meter, b1=broken, b2=page(copied=30))
    assert (meter.traffic(1), meter.traffic(2).in_bytes_per_s) == (UNKNOWN, 2)


def test_a_page_that_is_silent_delays_nobody_and_is_not_asked_twice(pages: Pages):
    meter = pages.meter()
    began_s = time.monotonic()
    for copied in (0, 10, 20):
        pages.look(meter, b1=None, b2=page(copied=copied))
    assert meter.traffic(2).in_bytes_per_s == 2
    assert meter.traffic(1) == UNKNOWN
    assert time.monotonic() - began_s < 8, "the silent page would have taken 10 s"
    first = meter._pages[1].asked
    pages.look(meter, b1=None)
    assert meter._pages[1].asked is first


@contextmanager
def trickling() -> Iterator[str]:
    """URL of a page that is sent byte by byte, without a long pause."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not over.wait(0.01):
                    connection.sendall(b"#")

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/{{broker}}"
        finally:
            over.set()


def test_a_page_that_trickles_is_given_up_after_its_time():
    failed = threading.Event()
    with trickling() as url:
        target = KafkaTarget(metrics_url=url, timeout_s=0.2)
        meter = NetworkMeter(target, interval_s=5.0, clock_s=time.time, failed=failed.set)
        meter.begin({1: "127.0.0.1"})
        assert failed.wait(PATIENCE_S)
    assert meter.traffic(1) == UNKNOWN


def test_what_was_read_too_long_ago_is_unknown(pages: Pages):
    meter = pages.meter()
    pages.look(meter, b1=page(copied=0))
    pages.look(meter, b1=page(copied=10))
    pages.now_s += 8
    assert meter.traffic(1) == UNKNOWN


def test_brokers_that_left_the_cluster_are_forgotten(pages: Pages):
    meter = pages.meter()
    pages.look(meter, b1=page(), b2=page())
    pages.look(meter, b2=page())
    assert set(meter._pages) == {2}


def test_an_exporter_without_rules_and_a_network_card_are_named_by_their_labels(pages: Pages):
    text = """\
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec",}} {produced}
kafka_server_BrokerTopicMetrics_Count{{name="BytesInPerSec",topic="orders",}} 5
kafka_server_BrokerTopicMetrics_Count{{name="BytesOutPerSec",}} 99
node_network_transmit_bytes_total{{device="eth0"}} {fed}
node_network_transmit_bytes_total{{device="lo"}} 7
"""
    meter = pages.meter(
        received_metrics=('kafka_server_BrokerTopicMetrics_Count{name="BytesInPerSec"}',),
        sent_metrics=('node_network_transmit_bytes_total{device="eth0"}',),
    )
    pages.look(meter, b1=page(produced=100, fed=7, text=text))
    pages.look(meter, b1=page(produced=200, fed=107, text=text))
    assert meter.traffic(1) == Network(in_bytes_per_s=20, out_bytes_per_s=20)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics_url": "http://broker:7071/metrics"}, "so that each broker has its own"),
        ({"metrics_url": "ftp://{host}/"}, "metrics_url is 'ftp://{host}/'"),
        ({"metrics_url": "http://{host}:{port}/"}, "no other braces"),
        ({"received_metrics": ()}, "one or more of name"),
        ({"sent_metrics": ("rate(x[1m])",)}, r"sent_metrics is \('rate"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        KafkaTarget(**settings)
