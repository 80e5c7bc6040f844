"""What a sweep of a Kafka cluster reports: moves and planned ones, who is alive, and brokers' traffic from their metrics pages."""

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from state.events import CopiesReport, Reassignment
from streaming.collector.collector import EventWriter, Swept
from streaming.collector.copies import find_conflicts, read_planned
from streaming.collector.kafka import KafkaSweeper
from streaming.collector.metrics import CollectorMetrics
from streaming.collector.network_metrics import NetworkMeter
from streaming.contract.decode import decode
from streaming.contract.kafka import Network
from streaming.kafka.cluster import KafkaCluster, LogSizes, OffsetSpec, PartitionState, RunningMove
from streaming.kafka.throttles import Throttle, ThrottlesFound
from streaming.settings import KafkaTarget
from tests.streaming.http_broker import Answer, Brokers, http_brokers

RUNNING = RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,))
STATE = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=(1, 2))


class Cluster:
    """Stands in for a cluster of three brokers, of which those in ``alive`` are."""

    def __init__(self) -> None:
        self.alive: Mapping[int, str] = {1: "h1", 2: "h2", 3: "h3"}
        self.looked_at_all = 0
        self.disk_lags: dict[tuple[str, int], dict[int, int]] = {}
        self.silent: set[int] = set()
        """Brokers that do not tell their log directories."""
        self.running = {("t", 0): RUNNING}
        self.states = {("t", 0): STATE, ("u", 0): PartitionState(replicas=(1, 2), leader=1, in_sync=(1, 2))}

    def brokers(self) -> Mapping[int, str]:
        return self.alive

    def reassignments(self) -> dict[tuple[str, int], RunningMove]:
        return self.running

    def partitions(self, topics: Iterable[str] | None) -> dict[tuple[str, int], PartitionState]:
        self.looked_at_all += topics is None
        return {where: state for where, state in self.states.items() if topics is None or where[0] in topics}

    def throttle(self, *, topics: object, brokers: object) -> ThrottlesFound:
        del topics, brokers
        return ThrottlesFound(throttle=Throttle(), failed={})

    def end_offsets(
        self, leaders: Mapping[tuple[str, int], int], *, at: OffsetSpec = OffsetSpec.LATEST
    ) -> dict[tuple[str, int], int]:
        return dict.fromkeys(leaders, 10 if at == OffsetSpec.EARLIEST else 110)

    def replica_end_offsets(
        self, _: int, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, 60)

    def log_sizes(self, partitions: Iterable[tuple[str, int]] | None, brokers: Iterable[int]) -> LogSizes:
        asked = set(self.states if partitions is None else partitions)
        answering = set(brokers) - self.silent
        lags = {
            where: {broker: lag for broker, lag in of_brokers.items() if broker in answering}
            for where, of_brokers in self.disk_lags.items()
            if where in asked
        }
        return LogSizes(
            sizes_bytes={where: dict.fromkeys(answering, 900) for where in asked},
            usable_bytes={},
            failed=dict.fromkeys(set(brokers) & self.silent, "no answer"),
            disk_lags={where: of_brokers for where, of_brokers in lags.items() if of_brokers},
            directories=dict.fromkeys(answering, ("/a", "/b")),
        )


class Sweeps:
    """A sweeper and what it wrote last."""

    def __init__(self, planned_file: str | None = None) -> None:
        self.sent: list[bytes] = []
        self.cluster = Cluster()
        metrics = CollectorMetrics("c")
        self.now_s = 1000.0
        writer = EventWriter(self, metrics, cluster="c", clock_s=lambda: self.now_s)
        self._sweeper = KafkaSweeper(writer, metrics, planned_file=planned_file)

    def send(self, _: str, event: bytes) -> None:
        self.sent.append(event)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def swept(self) -> Swept:
        self.sent.clear()
        return self._sweeper.sweep(cast("KafkaCluster", self.cluster))

    def rows(self) -> list[dict[str, Any]]:
        """What is copied, as the event of a sweep has it."""
        self.swept()
        (data,) = (found["data"] for found in map(json.loads, self.sent) if "reassignment" in found["type"])
        return list(data["moves"])

    def replicas(self, broker: int) -> list[dict[str, Any]]:
        """The replicas in a broker's newest report."""
        reports = (found["data"] for found in map(json.loads, self.sent) if "load-report" in found["type"])
        return next(list(data["replicas"]) for data in reports if data["broker"] == broker)

    def moves(self) -> CopiesReport:
        self.swept()
        (found,) = (event for value in self.sent if isinstance(event := decode(value)[1], Reassignment))
        return found.report


def test_the_brokers_that_are_alive_are_reported_whether_or_not_they_take_part():
    sweeps = Sweeps()
    sweeps.cluster.alive = {1: "h1", 2: "h2", 9: "h9"}
    assert sweeps.moves().live_brokers == (1, 2, 9)


def test_a_running_move_whose_topic_a_broker_does_not_know_yet_is_still_reported():
    sweeps = Sweeps()
    known = sweeps.moves().copies
    del sweeps.cluster.states["t", 0]
    unknown = sweeps.moves().copies
    assert unknown.fingerprint() == known.fingerprint()
    assert (known.leader.tolist(), unknown.leader.tolist()) == ([1], [-1])


def test_a_sweep_says_what_is_copied_by_kind_and_nothing_of_kinds_that_are_not(tmp_path: Path):
    planned = Sweeps(file_of(tmp_path, ("u", 0, [1, 3])))
    assert planned.swept().copied == "1 partition reassigned, 1 partition planned to be reassigned"
    sweeps = Sweeps()
    sweeps.cluster.states["u", 0] = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=(1,))
    sweeps.cluster.disk_lags = {("u", 0): {1: 7}}
    assert sweeps.swept().copied == (
        "1 partition reassigned, 2 replicas brought up to date, 1 replica moved between disks"
    )
    sweeps = Sweeps()
    sweeps.cluster.running, sweeps.cluster.states = {}, {}
    assert sweeps.swept().copied == "nothing is copied"


def test_a_plan_that_cannot_be_read_for_once_is_the_one_before_and_ends_no_throttle(tmp_path: Path):
    sweeps = Sweeps(file_of(tmp_path, ("u", 0, [1, 3])))
    both = ["t-0", "u-0"]
    assert sweeps.moves().copies.names() == both
    (tmp_path / "reassignment.json").write_text('{"partitions": [{"topic"')
    assert sweeps.moves().copies.names() == both
    file_of(tmp_path, ("u", 0, []))
    assert sweeps.moves().copies.names() == ["t-0"]


LATE = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=(1, 2))


def test_a_replica_out_of_sync_is_reported_with_what_it_lacks_by_its_own_offsets():
    sweeps = Sweeps()
    sweeps.cluster.states["v", 0] = LATE
    (late,) = [move for move in sweeps.rows() if move["topic"] == "v"]
    assert (late["recovering"], late["adding"], late["isr"]) == ([3], [], [1, 2])
    (replica,) = [row for row in sweeps.replicas(3) if row["topic"] == "v"]
    assert replica["missing_bytes"] == 450, "50 records of 9 bytes: the leader's 100 have 900"


def test_one_that_a_reassignment_adds_is_no_recovery():
    assert [move["recovering"] for move in Sweeps().rows()] == [[]]


def test_everything_is_looked_at_first_then_once_a_minute_and_when_a_broker_comes_or_goes():
    sweeps = Sweeps()
    looks = []
    for at_s, alive in (
        (0, "123"),
        (5, "123"),
        (59, "123"),
        (60, "123"),
        (65, "12"),
        (70, "12"),
        (75, "123"),
    ):
        sweeps.now_s = 1000.0 + at_s
        sweeps.cluster.alive = {int(broker): "h" for broker in alive}
        before = sweeps.cluster.looked_at_all
        sweeps.swept()
        looks.append(sweeps.cluster.looked_at_all - before)
    assert looks == [1, 0, 0, 1, 1, 0, 1]


def test_what_fell_behind_is_followed_between_the_looks_and_let_go_when_it_is_in_sync():
    sweeps = Sweeps()
    sweeps.cluster.states["v", 0] = LATE
    assert [move["topic"] for move in sweeps.rows()] == ["t", "v"]
    sweeps.cluster.states["v", 0] = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=(1, 2, 3))
    assert [move["topic"] for move in sweeps.rows()] == ["t"]


def test_a_move_between_disks_is_reported_with_what_its_copy_lacks():
    sweeps = Sweeps()
    sweeps.cluster.disk_lags = {("u", 0): {2: 10}}
    (moved,) = [move for move in sweeps.rows() if move["topic"] == "u"]
    assert (moved["between_disks"], moved["recovering"]) == ([2], [])
    (replica,) = [row for row in sweeps.replicas(2) if row["topic"] == "u"]
    assert replica["disk_missing_bytes"] == 90


def test_a_move_between_disks_stays_while_its_broker_does_not_answer_and_one_that_hid_is_found():
    sweeps = Sweeps()
    sweeps.cluster.disk_lags = {("u", 0): {2: 10}}

    def on_disks() -> list[list[int]]:
        sweeps.now_s += 5
        return [move["between_disks"] for move in sweeps.rows() if move["topic"] == "u"]

    assert on_disks() == [[2]]
    sweeps.cluster.silent = {2}
    assert on_disks() == on_disks() == [[2]]
    sweeps.cluster.silent = set()
    assert on_disks() == [[2]]
    sweeps.cluster.disk_lags = {}
    assert on_disks() == []
    sweeps.cluster.disk_lags, sweeps.cluster.silent = {("u", 0): {1: 10}}, {1}
    sweeps.now_s += 60
    assert on_disks() == []
    sweeps.cluster.silent = set()
    assert on_disks() == [[1]], "it is asked again at once, not at the next look at everything"


BEFORE = {("t", 9): (1, 2)}
PAIR = PartitionState(replicas=(1, 2), leader=1, in_sync=(1, 2))


def file_of(path: Path, *rows: tuple[str, int, list[int]]) -> str:
    file = path / "reassignment.json"
    partitions = [{"topic": topic, "partition": number, "replicas": found} for topic, number, found in rows]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def test_a_file_that_is_not_there_plans_nothing_and_is_named_once_with_its_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    missing = tmp_path / "later.json"
    sweeps = Sweeps(str(missing))
    assert "planned" not in sweeps.swept().copied
    assert "planned" not in sweeps.swept().copied
    (record,) = caplog.records
    assert record.getMessage().startswith(f'targets."c".kafka.planned_file: there is no file {missing}, so')


def test_the_targets_of_a_plan_are_read(tmp_path: Path):
    assert read_planned(file_of(tmp_path, ("t", 0, [1, 3])), {}) == ({("t", 0): (1, 3)}, [])
    assert read_planned(None, BEFORE) == ({}, [])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("t", 0, [])], r"t-0 is left out: replicas is []; give one broker or more, each once"),
        ([("t", 0, [3, 3])], r"t-0 is left out: replicas is [3, 3]; give one broker or more, each once"),
        ([("t", 0, [-1])], r"t-0 is left out: replicas is [-1]; give one broker or more, each once"),
        ([("u", 7, [2])], "u-7 is given twice, and the first counts: give each partition once"),
    ],
)
def test_a_partition_that_cannot_be_is_named_and_keeps_no_other_from_being_planned(
    tmp_path: Path, rows: list[tuple[str, int, list[int]]], message: str
):
    planned, odd = read_planned(file_of(tmp_path, ("u", 7, [1]), *rows, ("u", 8, [2, 1])), {})
    assert planned == {("u", 7): (1,), ("u", 8): (2, 1)}
    assert odd == [message]


def test_a_plan_that_cannot_be_read_is_named_in_words(tmp_path: Path):
    planned, odd = read_planned(str(tmp_path), BEFORE)
    assert planned == BEFORE
    assert odd == [f"{tmp_path} cannot be read, so the plan before it counts: Is a directory"]


def test_what_is_no_json_is_named_and_leaves_the_plan_as_it_was(tmp_path: Path):
    (tmp_path / "plan.json").write_text("{")
    planned, (line,) = read_planned(str(tmp_path / "plan.json"), BEFORE)
    assert planned == BEFORE
    assert "plan.json cannot be read, so the plan before it counts" in line


def test_an_unknown_partition_an_unknown_broker_and_another_move_are_named():
    planned = {("nowhere", 0): (1,), ("t", 0): (1, 9), ("t", 3): (7, 3), ("t", 1): (2, 3), ("t", 2): (1, 3)}
    states = {("t", number): PAIR for number in range(3)}
    states["t", 3] = PartitionState(replicas=(1, 7), leader=1, in_sync=(1,))
    running = {
        ("t", 1): RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,)),
        ("t", 2): RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,)),
    }
    assert list(find_conflicts(planned, states, running, [1, 2, 3])) == [
        "nowhere-0 is planned, but the cluster has no such partition: it is left out",
        "t-0 is planned for [1, 9], but the cluster has no broker [9]: start it, or plan another one",
        "t-1 is planned for [2, 3], but already moves to [1, 3]: the running move counts",
    ]


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
        ({"metrics_url": "http://{host}:70710/metrics"}, "70710/metrics'; expected ports from 1 to 65535"),
        ({"received_metrics": ()}, "one or more of name"),
        ({"sent_metrics": ("rate(x[1m])",)}, r"sent_metrics is \('rate"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        KafkaTarget(**settings)
