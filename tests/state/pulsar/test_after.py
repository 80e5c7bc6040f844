"""The load of the brokers as the actions of a round change it."""

import pytest

from policies.shedding.view import NOBODY
from state.pulsar.holds import Move, share_ratio
from state.pulsar.shedding import After, traffic_of
from tests.state.building import seen
from tests.state.traces import load

HEAVY, LIGHT, LAST = "t/a/0x0_0x1", "t/a/0x1_0x2", "t/a/0x2_0x3"
"""Bundles of 60, 20 and 5 messages/s, rows 0 to 2; bytes/s are ten times that."""


def after() -> After:
    """Broker 0 has 70 messages/s by its own report, broker 1 has 5; their bundles' averages say 80 and 5."""
    return After(
        seen(
            load("b1", 470, bundles={HEAVY: 60.0, LIGHT: 20.0}, rate=70.0),
            load("b2", 470, bundles={LAST: 5.0}),
        ).table.view
    )


def test_a_move_takes_the_bundle_from_one_broker_to_the_other() -> None:
    assert after().move(Move(0, 0, 1)) == {
        "source": {"messages_per_s": 10.0, "bytes_per_s": 100.0},
        "destination": {"messages_per_s": 65.0, "bytes_per_s": 650.0},
    }


def test_each_move_goes_on_from_the_one_before_and_no_load_falls_below_nothing() -> None:
    found = after()
    found.move(Move(0, 0, 1))
    assert found.move(Move(1, 0, 1)) == {
        "source": {"messages_per_s": 0.0, "bytes_per_s": 0.0},
        "destination": {"messages_per_s": 85.0, "bytes_per_s": 850.0},
    }
    assert found.move(Move(2, 1, 0)) == {
        "source": {"messages_per_s": 80.0, "bytes_per_s": 800.0},
        "destination": {"messages_per_s": 5.0, "bytes_per_s": 50.0},
    }


def test_of_a_move_whose_destination_pulsar_chooses_only_the_source_is_known() -> None:
    found = after()
    assert found.move(Move(1, 0, NOBODY)) == {"source": {"messages_per_s": 50.0, "bytes_per_s": 500.0}}
    assert found.receive(1, 0.0, 0.0) == {"messages_per_s": 5.0, "bytes_per_s": 50.0}, (
        "no other broker has it"
    )


def test_a_broker_receives_from_outside_the_view() -> None:
    found = after()
    assert found.receive(1, 2.5, 1.0) == {"messages_per_s": 7.5, "bytes_per_s": 51.0}
    assert found.receive(1, 2.5, 1.0) == {"messages_per_s": 10.0, "bytes_per_s": 52.0}


def test_the_view_itself_stays_as_it_was_measured() -> None:
    view = seen(load("b1", 470, bundles={HEAVY: 60.0}), load("b2", 470)).table.view
    After(view).move(Move(0, 0, 1))
    assert view.brokers.messages_per_s.tolist() == [60.0, 0.0]
    assert view.brokers.bytes_per_s.tolist() == [600.0, 0.0]


def test_a_load_has_the_form_of_an_action() -> None:
    assert traffic_of(1.5, 2.0) == {"messages_per_s": 1.5, "bytes_per_s": 2.0}


@pytest.mark.parametrize(
    ("part", "whole", "share"),
    [
        (25.0, 100.0, 0.25),
        (0.0, 100.0, 0.0),
        (100.0, 100.0, 1.0),
        (130.0, 100.0, 1.0),
        (0.0, 0.0, 0.0),
        (1.0, 0.0, 1.0),
    ],
)
def test_a_bundle_has_at_most_all_of_its_brokers_load_and_all_of_a_load_that_nobody_reports(
    part: float, whole: float, share: float
) -> None:
    assert share_ratio(part, whole) == share
