"""Statistics of topics by bundle: whose count, and which a round's view keeps."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from policies.splitting.plan import TopicTable
from state.events import TopicStats
from state.pulsar.splits import as_in, topic_table
from state.pulsar.view import PolicyView
from tests.state.building import Listed, seen, waiting
from tests.state.traces import load

A, B, C, GONE = (f"t/{name}/0x0_0x1" for name in ("a", "b", "c", "gone"))
REPORTS = (load("b1", 470, bundles={A: 1.0, B: 1.0}), load("b2", 470, bundles={C: 1.0}))
TABLE = seen(*REPORTS).table
"""Rows 0 to 2 are A and B of b1, and C of b2."""


def listed(table: TopicTable) -> list[list[tuple[str, float, float]] | None]:
    """Topics of each bundle row with both rates; None where there are no statistics."""
    found: list[list[tuple[str, float, float]] | None] = []
    for row in range(len(table.starts)):
        rows = table.rows_of(row)
        topics = zip(
            table.names[rows],
            table.messages_per_s[rows].tolist(),
            table.bytes_per_s[rows].tolist(),
            strict=True,
        )
        found.append(list(topics) if table.ends[row] >= table.starts[row] else None)
    return found


B1: Listed = {B: [("p", 1.0), ("q", 2.0)], GONE: [("r", 3.0)], A: [("s", 4.0)]}
B2: Listed = {A: [("old", 9.0)], C: [("u", 5.0), ("v", 6.0)]}
TOPICS = {"b1": waiting(B1), "b2": waiting(B2)}
OF_A, OF_B, OF_C = (
    [("s", 4.0, 40.0)],
    [("p", 1.0, 10.0), ("q", 2.0, 20.0)],
    [("u", 5.0, 50.0), ("v", 6.0, 60.0)],
)


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ({}, [None, None, None]),
        (TOPICS, [OF_A, OF_B, OF_C]),
        ({"b1": waiting(B1)}, [OF_A, OF_B, None]),
        ({"b2": waiting(B2)}, [None, None, OF_C]),
        ({"b9": waiting(B1)}, [None, None, None]),
        ({"b1": waiting({A: [], B: [("p", 1.0)]})}, [[], [("p", 1.0, 10.0)], None]),
    ],
    ids=["none", "both owners'", "of b1", "of b2", "of an unknown broker", "a bundle without topics"],
)
def test_the_statistics_of_a_bundle_are_those_of_its_owner(
    topics: Mapping[str, TopicStats], expected: list[list[tuple[str, float, float]] | None]
) -> None:
    assert listed(topic_table(TABLE, topics)) == expected


def rows(*fleet_rows: int) -> PolicyView:
    """A view whose bundles are these rows of the fleet."""
    return replace(TABLE, fleet_rows=np.array(fleet_rows, dtype=np.int64))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (rows(0, 1, 2), [OF_A, OF_B, OF_C]),
        (rows(2, 0, 1), [OF_C, OF_A, OF_B]),
        (rows(1), [OF_B]),
        (rows(0, 3, 2), [OF_A, None, OF_C]),
        (rows(), []),
    ],
    ids=["the same rows", "another order", "a part", "with a bundle that was not measured", "no bundle"],
)
def test_statistics_follow_their_bundles_into_another_view(
    table: PolicyView, expected: list[list[tuple[str, float, float]] | None]
) -> None:
    assert listed(as_in(table, TABLE, topic_table(TABLE, TOPICS))) == expected


def test_a_view_without_the_drained_broker_has_no_statistics_of_its_bundles_in_the_whole_one() -> None:
    part = seen(*REPORTS, apart={"b1"}).table
    of_part = topic_table(part, TOPICS)
    assert listed(of_part) == [OF_C]
    assert listed(as_in(TABLE, part, of_part)) == [None, None, OF_C]
    assert as_in(part, part, of_part) is of_part


def test_a_measured_view_without_bundles_has_no_statistics_for_another_one() -> None:
    nothing = seen(*REPORTS, apart={"b1", "b2"}).table
    assert listed(as_in(TABLE, nothing, topic_table(nothing, TOPICS))) == [None, None, None]
