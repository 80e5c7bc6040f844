"""Positions in a partition's log: how far a batch goes, and when data is gone."""

import pytest

from streaming.pulsar_log.positions import DataLoss, Ledger, Log, Position, pack

LOG = Log([Ledger(5, 3), Ledger(7, 0), Ledger(9, 4), Ledger(12, 0)])
"""Three entries, an empty ledger, four entries, and a new one nothing was written to yet."""


@pytest.mark.parametrize(
    ("start", "most", "end"),
    [
        ("5:-1", None, "9:3"),
        ("5:-1", 1, "5:0"),
        ("5:-1", 3, "5:2"),
        ("5:-1", 4, "9:0"),
        ("5:1", 2, "9:0"),
        ("5:2", 100, "9:3"),
        ("9:3", 1, "9:3"),
        ("12:-1", None, "12:-1"),
        ("7:-1", 2, "9:1"),
    ],
)
def test_a_batch_ends_with_a_whole_entry_that_is_there(start: str, most: int | None, end: str) -> None:
    assert str(LOG.advance(Position.parse(start), most)) == end


def test_the_whole_of_a_log_is_from_before_its_first_entry_to_its_last() -> None:
    assert (str(LOG.first), str(LOG.last)) == ("5:-1", "9:3")
    empty = Log([Ledger(4, 0)])
    assert empty.first == empty.last == Position(4, -1)


@pytest.mark.parametrize(
    ("start", "said"), [("4:9", "was trimmed"), ("13:0", "made anew"), ("6:0", "made anew")]
)
def test_a_position_whose_ledger_is_gone_is_lost_data(start: str, said: str) -> None:
    with pytest.raises(DataLoss, match=said):
        LOG.require(Position.parse(start), "persistent://t/n/x")
    LOG.require(Position.parse("9:3"), "persistent://t/n/x")


def test_packed_places_rise_along_the_log_and_never_wrap_around() -> None:
    places = [(Position(1, 0), -1), (Position(1, 1), 0), (Position(1, 1), 9), (Position(2, 0), -1)]
    packed = [pack(position, batch) for position, batch in places]
    assert packed == sorted(set(packed))
    assert pack(Position(2**29 - 1, 2**24 - 1), 1023) == 2**63 - 1
    for position, batch in ((Position(2**29, 0), 0), (Position(1, 2**24), 0), (Position(1, 0), 1024)):
        with pytest.raises(OverflowError, match="does not fit"):
            pack(position, batch)


def test_what_is_no_position_is_named() -> None:
    with pytest.raises(ValueError, match="'x:1' is no position"):
        Position.parse("x:1")
