"""Rows of a summary's tables, as they are published and read again."""

from typing import Any

import msgspec
import pytest

from state.outputs import (
    BrokerLoad,
    BrokerTraffic,
    CandidateRow,
    ExaminedRow,
    InFlightRow,
    JudgedRow,
    Section,
    canonical,
)

EXAMINED = ExaminedRow(
    high_broker="b1", low_broker=None, group=None, outcome="fired", detail="", trigger="", evidence={}
)
TRAFFIC: dict[Any, BrokerTraffic] = {"source": BrokerTraffic(messages_per_s=1.0, bytes_per_s=2.0)}
JUDGED = JudgedRow(
    id="a",
    kind="unload",
    bundle="t/a/0x0_0x1",
    outcome="good",
    brokers={"source": "b1"},
    before=TRAFFIC,
    expected=TRAFFIC,
    seen={},
)
LOAD = BrokerLoad(
    broker="b1",
    usage_points=12.5,
    resources={"cpu": 12.5, "memory": "not-measured"},
    messages_per_s=1.0,
    bytes_per_s=2.0,
    bundles_count=3,
    excluded=False,
    group=None,
)
IN_FLIGHT = InFlightRow(id="a", kind="throttle", target="reassignments", expires_at="then")


def test_a_row_has_all_its_fields_also_those_that_are_null_or_empty() -> None:
    assert canonical(EXAMINED) == (
        b'{"detail":"","evidence":{},"group":null,"high_broker":"b1","low_broker":null,"outcome":"fired","trigger":""}'
    )


@pytest.mark.parametrize("row", [EXAMINED, JUDGED, LOAD, IN_FLIGHT], ids=lambda row: type(row).__name__)
def test_a_row_that_is_read_again_is_the_same(row: msgspec.Struct) -> None:
    assert msgspec.json.decode(canonical(row), type=type(row)) == row


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        (JUDGED, "outcome", "acted"),
        (JUDGED, "kind", "throttle"),
        (JUDGED, "brokers", {"owner": "b1"}),
        (LOAD, "resources", {"cpu": "unknown"}),
        (IN_FLIGHT, "kind", "move"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_value_that_no_row_can_have_is_refused_when_it_is_read(
    row: msgspec.Struct, field: str, value: object
) -> None:
    strange = msgspec.to_builtins(row) | {field: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(strange, type(row))


def test_a_section_counts_more_rows_than_it_shows_and_knows_their_type() -> None:
    section = Section(count=2, outcomes={"fired": 2}, heaviest=[EXAMINED])
    text = canonical(section)
    assert msgspec.json.decode(text, type=Section[ExaminedRow]) == section
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Section[CandidateRow])
