"""The file of moves that are still to be started: what is refused, and which moves are named because they are impossible."""

import json
from pathlib import Path

import pytest

from streaming.collector.kafka import find_conflicts, read_planned
from streaming.kafka.cluster import PartitionState, RunningMove

BEFORE = {("t", 9): (1, 2)}
STATE = PartitionState(replicas=(1, 2), leader=1, in_sync=(1, 2))


def file_of(path: Path, *rows: tuple[str, int, list[int]]) -> str:
    file = path / "reassignment.json"
    partitions = [{"topic": topic, "partition": number, "replicas": found} for topic, number, found in rows]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def test_targets_are_read_and_a_file_that_is_not_there_plans_nothing(tmp_path: Path) -> None:
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
) -> None:
    planned, odd = read_planned(file_of(tmp_path, ("u", 7, [1]), *rows, ("u", 8, [2, 1])), {})
    assert planned == {("u", 7): (1,), ("u", 8): (2, 1)}
    assert odd == [message]


def test_what_is_no_json_is_named_and_leaves_the_plan_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{")
    planned, (line,) = read_planned(str(tmp_path / "plan.json"), BEFORE)
    assert planned == BEFORE
    assert "plan.json cannot be read, so the plan before it counts" in line


def test_an_unknown_partition_an_unknown_broker_and_another_move_are_named() -> None:
    planned = {("nowhere", 0): (1,), ("t", 0): (1, 9), ("t", 3): (7, 3), ("t", 1): (2, 3), ("t", 2): (1, 3)}
    states = {("t", number): STATE for number in range(3)}
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
