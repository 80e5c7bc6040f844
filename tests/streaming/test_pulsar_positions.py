"""Positions in a partition's log: how far a batch goes, and when data is gone."""

import pytest

from streaming.pulsar.positions import DataLoss, Ledger, Log, Position, pack

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
    ("start", "message"), [("4:9", "was trimmed"), ("13:0", "made anew"), ("6:0", "made anew")]
)
def test_a_position_whose_ledger_is_gone_is_lost_data(start: str, message: str) -> None:
    with pytest.raises(DataLoss, match=message):
        LOG.require(Position.parse(start), "persistent://t/n/x")
    LOG.require(Position.parse("9:3"), "persistent://t/n/x")


def test_packed_places_rise_along_the_log_and_never_wrap_around() -> None:
    places = [(Position(1, 0), -1), (Position(1, 1), 0), (Position(1, 1), 9), (Position(2, 0), -1)]
    packed = [pack(position, batch) for position, batch in places]
    assert packed == sorted(set(packed))
    assert pack(Position(2**29 - 1, 2**24 - 1), 1023) == 2**63 - 1
    for position, batch in ((Position(1, 2**24), 0), (Position(1, 0), 1024)):
        with pytest.raises(OverflowError, match="does not fit"):
            pack(position, batch)


def test_what_is_no_position_is_named() -> None:
    with pytest.raises(ValueError, match="'x:1' is no position"):
        Position.parse("x:1")


EMPTY = Position(4, -1)
"""The beginning of a ledger that is not in ``LOG``."""


@pytest.mark.parametrize("acknowledged", ["4:-1", "5:-1"])
def test_a_ledger_that_was_empty_and_is_gone_loses_nothing(acknowledged: str) -> None:
    log = Log(LOG.ledgers, written=Position(9, 3), acknowledged=Position.parse(acknowledged))
    log.require(EMPTY, "persistent://t/n/x")
    assert str(log.advance(EMPTY, 1)) == "5:0"
    empty = Log([Ledger(6, 0)], written=Position(6, -1), acknowledged=Position(6, -1))
    empty.require(EMPTY, "persistent://t/n/x")
    assert empty.advance(EMPTY, None) == EMPTY, "without entries there is no batch"


@pytest.mark.parametrize(
    ("written", "acknowledged", "message"),
    [
        ("9:3", None, "somebody removed the subscription"),
        ("9:3", "4:2", "was trimmed"),
        ("9:3", "9:1", "was trimmed"),
        ("4:2", "4:-1", "was trimmed"),
    ],
)
def test_a_ledger_that_may_have_held_something_unread_is_lost_data(
    written: str, acknowledged: str | None, message: str
) -> None:
    moved = None if acknowledged is None else Position.parse(acknowledged)
    log = Log(LOG.ledgers, written=Position.parse(written), acknowledged=moved)
    with pytest.raises(DataLoss, match=message):
        log.require(EMPTY, "persistent://t/n/x")
    assert log.nearest(EMPTY) == log.first, (
        "a reader that accepts the loss goes on at the first position that is left"
    )
    assert log.nearest(Position(9, 1)) == Position(9, 1)


def test_ids_of_ledgers_beyond_29_bits_are_packed_and_a_range_never_holds_two_that_are_out_of_order() -> None:
    edge = 2**29
    log = Log([Ledger(edge - 1, 2), Ledger(edge, 3), Ledger(2**40 + 1, 1)])
    start, ranges = log.first, []
    while (end := log.advance(start, None)) != start:
        ranges.append(str(end))
        start = end
    assert ranges == [f"{edge - 1}:1", f"{edge}:2", f"{2**40 + 1}:0"]
    assert pack(Position(edge, 0), -1) < pack(Position(edge, 2), -1) < pack(Position(edge + 5, 0), -1)
