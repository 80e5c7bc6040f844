"""What a sweep of a Kafka cluster reports: who is alive as a field of its own, and no move gone because one answer or file is odd."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from state.events import MovesReport, Reassignment
from streaming.collector.collector import EventWriter
from streaming.collector.kafka import KafkaSweeper
from streaming.collector.metrics import CollectorMetrics
from streaming.contract.decode import decode
from streaming.kafka.cluster import (
    KafkaCluster,
    LogSizes,
    PartitionState,
    RunningMove,
    Throttle,
    ThrottlesFound,
)
from tests.streaming.test_planned import file_of

RUNNING = RunningMove(replicas=(1, 2, 3), adding=(3,), removing=(2,))
STATE = PartitionState(replicas=(1, 2, 3), leader=1, in_sync=(1, 2))


class Cluster:
    """Stands in for a cluster of three brokers, of which those in ``alive`` are."""

    def __init__(self) -> None:
        self.alive: Mapping[int, str] = {1: "h1", 2: "h2", 3: "h3"}
        self.states = {("t", 0): STATE, ("u", 0): PartitionState(replicas=(1, 2), leader=1, in_sync=(1, 2))}

    def brokers(self) -> Mapping[int, str]:
        return self.alive

    def reassignments(self) -> dict[tuple[str, int], RunningMove]:
        return {("t", 0): RUNNING}

    def partitions(self, topics: Iterable[str]) -> dict[tuple[str, int], PartitionState]:
        return {where: state for where, state in self.states.items() if where[0] in topics}

    def throttle(self, *, topics: object, brokers: object) -> ThrottlesFound:
        del topics, brokers
        return ThrottlesFound(throttle=Throttle(), failed={})

    def end_offsets(self, leaders: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(leaders, 1)

    def log_sizes(self, partitions: Iterable[tuple[str, int]], brokers: Iterable[int]) -> LogSizes:
        return LogSizes(
            sizes_bytes={where: dict.fromkeys(brokers, 9) for where in partitions}, usable_bytes={}, failed={}
        )


class Sweeps:
    """A sweeper and what it wrote last."""

    def __init__(self, planned_file: str | None = None) -> None:
        self.sent: list[bytes] = []
        self.cluster = Cluster()
        metrics = CollectorMetrics("c")
        writer = EventWriter(self, metrics, cluster="c", clock_s=lambda: 1000.0)
        self._sweeper = KafkaSweeper(writer, metrics, planned_file=planned_file)

    def send(self, _: str, event: bytes) -> None:
        self.sent.append(event)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def moves(self) -> MovesReport:
        self.sent.clear()
        self._sweeper.sweep(cast("KafkaCluster", self.cluster))
        (found,) = (event for value in self.sent if isinstance(event := decode(value)[1], Reassignment))
        return found.report


def test_the_brokers_that_are_alive_are_reported_whether_or_not_they_take_part() -> None:
    sweeps = Sweeps()
    sweeps.cluster.alive = {1: "h1", 2: "h2", 9: "h9"}
    assert sweeps.moves().live_brokers == (1, 2, 9)


def test_a_running_move_whose_topic_a_broker_does_not_know_yet_is_still_reported() -> None:
    sweeps = Sweeps()
    known = sweeps.moves().moves.read()
    del sweeps.cluster.states["t", 0]
    unknown = sweeps.moves().moves.read()
    assert unknown.fingerprint() == known.fingerprint()
    assert (known.leader.tolist(), unknown.leader.tolist()) == ([1], [-1])


def test_a_plan_that_cannot_be_read_for_once_is_the_one_before_and_ends_no_throttle(tmp_path: Path) -> None:
    sweeps = Sweeps(file_of(tmp_path, ("u", 0, [1, 3])))
    both = ["t-0", "u-0"]
    assert sweeps.moves().moves.read().names() == both
    (tmp_path / "reassignment.json").write_text('{"partitions": [{"topic"')
    assert sweeps.moves().moves.read().names() == both
    file_of(tmp_path, ("u", 0, []))
    assert sweeps.moves().moves.read().names() == ["t-0"]
