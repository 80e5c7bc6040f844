"""What a sweep of a Kafka cluster reports, and which moves of the file of planned ones are refused or impossible."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

from state.events import MovesReport, Reassignment
from streaming.collector.collector import EventWriter
from streaming.collector.kafka import KafkaSweeper, find_conflicts, read_planned
from streaming.collector.metrics import CollectorMetrics
from streaming.contract.decode import decode
from streaming.kafka.admin import KafkaCluster
from streaming.kafka.cluster import LogSizes, PartitionState, RunningMove
from streaming.kafka.throttles import Throttle, ThrottlesFound

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


def test_the_brokers_that_are_alive_are_reported_whether_or_not_they_take_part():
    sweeps = Sweeps()
    sweeps.cluster.alive = {1: "h1", 2: "h2", 9: "h9"}
    assert sweeps.moves().live_brokers == (1, 2, 9)


def test_a_running_move_whose_topic_a_broker_does_not_know_yet_is_still_reported():
    sweeps = Sweeps()
    known = sweeps.moves().moves.read()
    del sweeps.cluster.states["t", 0]
    unknown = sweeps.moves().moves.read()
    assert unknown.fingerprint() == known.fingerprint()
    assert (known.leader.tolist(), unknown.leader.tolist()) == ([1], [-1])


def test_a_plan_that_cannot_be_read_for_once_is_the_one_before_and_ends_no_throttle(tmp_path: Path):
    sweeps = Sweeps(file_of(tmp_path, ("u", 0, [1, 3])))
    both = ["t-0", "u-0"]
    assert sweeps.moves().moves.read().names() == both
    (tmp_path / "reassignment.json").write_text('{"partitions": [{"topic"')
    assert sweeps.moves().moves.read().names() == both
    file_of(tmp_path, ("u", 0, []))
    assert sweeps.moves().moves.read().names() == ["t-0"]


BEFORE = {("t", 9): (1, 2)}
PAIR = PartitionState(replicas=(1, 2), leader=1, in_sync=(1, 2))


def file_of(path: Path, *rows: tuple[str, int, list[int]]) -> str:
    file = path / "reassignment.json"
    partitions = [{"topic": topic, "partition": number, "replicas": found} for topic, number, found in rows]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def test_targets_are_read_and_a_file_that_is_not_there_plans_nothing(tmp_path: Path):
    assert read_planned(file_of(tmp_path, ("t", 0, [1, 3])), {}) == ({("t", 0): (1, 3)}, [])
    assert read_planned(str(tmp_path / "later.json"), BEFORE) == ({}, [])
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
