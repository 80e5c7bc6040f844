"""What it costs the collector to see all copies of a large cluster: the answers of brokers, decoded and compared.

The answers are made up and complete, so that what is measured is the collector alone: no network, and no time of brokers.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.metadata import MetadataResponse

from streaming.collector.copies import CopyFinder
from streaming.kafka.cluster import KafkaCluster
from tests.bench.report import Row, Section, best_cpu_s

_BROKERS_COUNT, _PARTITIONS_COUNT = 1_000, 100_000
_PARTITIONS_OF_A_TOPIC = 50
_REPLICAS_COUNT = 3
_BEHIND_COUNT = 300
"""Replicas of one broker, which is the one that is behind."""
_LOOK_MS = 60_000
_METADATA_VERSION, _LOG_DIRS_VERSION = 12, 4


class _Brokers:
    """Stands in for the admin client: it answers with bytes as brokers send them, and decodes them as the client does."""

    def __init__(self, *, brokers_count: int, partitions_count: int) -> None:
        self.alive = range(brokers_count)
        self._manager = self
        topics_count = partitions_count // _PARTITIONS_OF_A_TOPIC
        self._topics = {f"topic-{number}": _topic(number, brokers_count) for number in range(topics_count)}
        self._metadata = _metadata(list(self._topics.values()))
        replicas = partitions_count * _REPLICAS_COUNT // brokers_count
        self._log_dirs = bytes(_log_dirs(replicas).encode())
        self.bytes_count = 0

    def list_partition_reassignments(self) -> dict[object, object]:
        return {}

    def describe_topics(self, names: list[str] | None) -> list[dict[str, Any]]:
        asked = self._metadata if names is None else _metadata([self._topics[name] for name in names])
        self.bytes_count += len(asked)
        topics: list[dict[str, Any]] = MetadataResponse.decode(asked, version=_METADATA_VERSION).to_dict()[
            "topics"
        ]
        return topics

    def run(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Nothing is waited for, so that a coroutine is over at its first step."""
        try:
            ask().send(None)
        except StopIteration as answer:
            return answer.value

    async def send(self, request: object, *, node_id: int) -> Any:
        assert isinstance(request, DescribeLogDirsRequest), (request, node_id)
        self.bytes_count += len(self._log_dirs)
        return DescribeLogDirsResponse.decode(self._log_dirs, version=_LOG_DIRS_VERSION)


def _topic(number: int, brokers_count: int) -> Any:
    """Broker 0 is out of sync wherever it has a replica."""
    topic = MetadataResponse.MetadataResponseTopic
    partitions = []
    for partition in range(_PARTITIONS_OF_A_TOPIC):
        first = number * _PARTITIONS_OF_A_TOPIC + partition
        replicas = [(first + place) % brokers_count for place in range(_REPLICAS_COUNT)]
        in_sync = [broker for broker in replicas if broker]
        partitions.append(
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=partition,
                leader_id=in_sync[0],
                leader_epoch=1,
                replica_nodes=replicas,
                isr_nodes=in_sync,
                offline_replicas=[],
            )
        )
    return topic(error_code=0, name=f"topic-{number}", is_internal=False, partitions=partitions)


def _metadata(topics: list[Any]) -> bytes:
    return bytes(
        MetadataResponse(
            version=_METADATA_VERSION, brokers=[], cluster_id="bench", controller_id=1, topics=topics
        ).encode()
    )


def _log_dirs(replicas_count: int) -> Any:
    """A broker's answer; which replicas it has does not matter here."""
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic
    logs = [
        topic(
            name=f"topic-{number}",
            partitions=[
                topic.DescribeLogDirsPartition(
                    partition_index=0, partition_size=10**9, offset_lag=0, is_future_key=False
                )
            ],
        )
        for number in range(replicas_count)
    ]
    directories = [
        result(error_code=0, log_dir=path, topics=part, total_bytes=10**12, usable_bytes=10**11)
        for path, part in (("/data/a", logs[::2]), ("/data/b", logs[1::2]))
    ]
    return DescribeLogDirsResponse(
        version=_LOG_DIRS_VERSION, throttle_time_ms=0, error_code=0, results=directories
    )


def measure_kafka_looks(*, quick: bool) -> Section:
    """A look at everything, and one at what is known to be behind."""
    share = 100 if quick else 1
    brokers = _Brokers(brokers_count=_BROKERS_COUNT, partitions_count=_PARTITIONS_COUNT // share)
    cluster, finder, now_ms = KafkaCluster(brokers), CopyFinder("bench"), 0  # type: ignore[arg-type]

    def look(*, pause_ms: int) -> None:
        nonlocal now_ms
        now_ms += pause_ms
        found = finder.find(cluster, brokers.alive, now_ms=now_ms)
        assert len(found) == _BEHIND_COUNT // share, "what is behind was not seen"

    times = 1 if quick else 3
    whole = best_cpu_s(partial(look, pause_ms=_LOOK_MS), times=times)
    brokers.bytes_count = 0
    look(pause_ms=_LOOK_MS)
    whole_bytes = brokers.bytes_count
    return Section(
        title="What the collector pays to see recoveries",
        method=f"{_PARTITIONS_COUNT:,} partitions with {_REPLICAS_COUNT} replicas on {_BROKERS_COUNT:,} brokers, of which one is out of "
        f"sync with its {_BEHIND_COUNT} replicas of 200 topics. A look at everything comes once a minute and "
        "when a broker comes or goes; a look at what is known in each other sweep, and in a cluster where nothing is behind it asks for "
        "nothing. Made-up answers of brokers, from their bytes to the moves that are reported; CPU time, the best of 3.",
        rows=[
            Row("a look at everything", whole, "s"),
            Row("the answers that it reads", whole_bytes / 1e6, "MB"),
            Row(
                "a look at what is known to be behind",
                best_cpu_s(partial(look, pause_ms=0), times=times),
                "s",
            ),
        ],
    )
