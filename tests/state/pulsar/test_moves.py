"""How much of its owner's traffic a bundle takes along."""

import pytest

from policies.shedding.view import NOBODY, RoundView
from state.pulsar.holds import Move, name_of, share_of, share_ratio
from tests.state.building import seen, uneven
from tests.state.traces import load

BY_MESSAGES, BY_BYTES, MORE_THAN_ALL = (f"t/a/0x{at}_0x{at + 1}" for at in range(3))
"""Rows 0 to 2. Broker b1 has 80 messages/s and 400 bytes/s; b2 reports no traffic at all."""
IDLE, BUSY = "t/b/0x0_0x1", "t/b/0x1_0x2"


def view() -> RoundView:
    bundles = {BY_MESSAGES: (40.0, 100.0), BY_BYTES: (10.0, 300.0), MORE_THAN_ALL: (4.0, 800.0)}
    return seen(
        uneven("b1", cpu=50.0, bundles=bundles, total=(80.0, 400.0)),
        load("b2", 470, bundles={IDLE: 0.0, BUSY: 1.0}, rate=0.0),
    ).table.view


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        pytest.param(1.0, 4.0, 0.25, id="a part of it"),
        pytest.param(0.0, 4.0, 0.0, id="nothing of it"),
        pytest.param(4.0, 4.0, 1.0, id="all of it"),
        pytest.param(5.0, 4.0, 1.0, id="more than all of it, by an average that lags behind"),
        pytest.param(0.0, 0.0, 0.0, id="nothing of nothing"),
        pytest.param(5.0, 0.0, 1.0, id="some of nothing counts as all"),
    ],
)
def test_a_share_is_between_nothing_and_all(part: float, whole: float, expected: float) -> None:
    assert share_ratio(part, whole) == expected


@pytest.mark.parametrize(
    ("row", "source", "share"), [(0, 0, 0.5), (1, 0, 0.75), (2, 0, 1.0), (3, 1, 0.0), (4, 1, 1.0)]
)
def test_a_bundle_takes_its_share_of_messages_or_bytes_whichever_is_more(
    row: int, source: int, share: float
) -> None:
    assert share_of(view(), Move(row, source, NOBODY)) == share


def test_where_pulsar_chooses_no_broker_is_named_not_even_the_last_one() -> None:
    found = view()
    assert [name_of(found, broker) for broker in (0, 1, NOBODY)] == ["b1", "b2", None]
