"""Numbers of partitions that are remembered between rounds, and found again among other partitions."""

import numpy as np
import pytest

from policies.throttle.moves import Moves
from state.kafka.memory import MISSING, PartitionTable, find_places, partition_keys, places_in
from tests.policies.throttle.moving import Partition, moves_of


def moving(*names: str) -> Moves:
    return moves_of(*(Partition(name, [1, 2], [2, 3]) for name in names))


def numbers(*rows: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([[each, 10 * each] for each in rows], dtype=np.int64)


def kept(*rows: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array(rows, dtype=np.bool_)


MOVES = moving("t-0", "t-2", "u-1", "v-0")
TABLE = PartitionTable.of(MOVES, numbers(1, 2, 3, 4), kept(True, True, True, True))


def test_a_table_has_topic_partition_and_numbers_of_each_row_that_is_kept() -> None:
    assert TABLE.topics == ("t", "u", "v")
    assert TABLE.columns.tolist() == [[0, 0, 1, 10], [0, 2, 2, 20], [1, 1, 3, 30], [2, 0, 4, 40]]
    assert len(TABLE) == 4


def test_a_table_names_only_the_topics_of_its_rows_and_counts_them_anew() -> None:
    found = PartitionTable.of(MOVES, numbers(1, 2, 3, 4), kept(False, True, False, True))
    assert found.topics == ("t", "v")
    assert found.columns.tolist() == [[0, 2, 2, 20], [1, 0, 4, 40]]
    none = PartitionTable.of(MOVES, numbers(1, 2, 3, 4), kept(False, False, False, False))
    assert none == PartitionTable.empty(2)


def test_an_empty_table_has_a_column_for_each_number() -> None:
    found = PartitionTable.empty(3)
    assert (len(found), found.topics, found.columns.shape) == (0, (), (0, 5))


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["t-0", "t-2", "u-1", "v-0"], [0, 1, 2, 3]),
        (["v-0"], [3]),
        (["t-1", "t-2", "t-3"], [MISSING, 1, MISSING]),
        (["s-0", "u-0", "u-1", "w-0"], [MISSING, MISSING, 2, MISSING]),
    ],
    ids=str,
)
def test_a_partition_is_found_by_topic_and_number_whatever_moves_beside_it(
    names: list[str], places: list[int]
) -> None:
    assert TABLE.places_of(moving(*names)).tolist() == places


def test_nothing_is_found_in_an_empty_table_nor_by_a_table_without_moves() -> None:
    assert PartitionTable.empty(2).places_of(MOVES).tolist() == [MISSING] * 4
    assert TABLE.places_of(moving()).tolist() == []


def test_a_part_of_a_table_keeps_its_topics_and_the_whole_is_the_table_itself() -> None:
    part = TABLE.take(kept(False, True, False, True))
    assert part.topics == ("t", "u", "v")
    assert part.columns.tolist() == [[0, 2, 2, 20], [2, 0, 4, 40]]
    assert part.places_of(MOVES).tolist() == [MISSING, 0, MISSING, 1]
    assert TABLE.take(kept(True, True, True, True)) is TABLE


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (PartitionTable(TABLE.topics, TABLE.columns.copy()), True),
        (PartitionTable(("t", "u", "w"), TABLE.columns), False),
        (PartitionTable(TABLE.topics, TABLE.columns + 1), False),
        (PartitionTable(TABLE.topics, TABLE.columns[:3]), False),
        (TABLE.columns.tolist(), False),
    ],
    ids=["a copy", "another topic", "another number", "fewer rows", "no table"],
)
def test_tables_are_equal_with_equal_topics_and_numbers(other: object, *, is_equal: bool) -> None:
    assert (other == TABLE) is is_equal


def test_a_key_is_found_where_it_is_and_nowhere_else() -> None:
    keys = np.array([2, 5, 9])
    assert find_places(keys, np.array([9, 2, 5, 1, 3, 10])).tolist() == [2, 0, 1, MISSING, MISSING, MISSING]
    assert find_places(keys[:0], np.array([9, 2])).tolist() == [MISSING, MISSING]
    assert find_places(keys, keys[:0]).tolist() == []


def test_no_partition_of_an_unknown_topic_has_the_key_of_a_known_one() -> None:
    """Partition numbers go up to 2**31 - 1."""
    largest = 2**31 - 1
    found = partition_keys(np.array([MISSING, MISSING, 0, 0, 1]), np.array([0, largest, 0, largest, 0]))
    assert found.tolist() == [-(2**31), -1, 0, largest, 2**31]
    assert places_in({"t": 0, "u": 1}, ("u", "x", "t")).tolist() == [1, MISSING, 0]
