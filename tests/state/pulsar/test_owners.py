"""Which of several brokers that list the same bundle owns it."""

from collections.abc import Mapping

import numpy as np
import pytest

from state.events import LoadReport
from state.layouts import seal
from state.pulsar.memory import Fleet
from state.systems import decode_memory
from tests.state.building import seen
from tests.state.traces import load, run, settings_of

A, B, C = "t/a/0x0_0x8", "t/b/0x0_0x8", "t/c/0x0_0x8"

Listed = dict[str, Mapping[str, float | None]]
"""By broker the bundles that it lists, with their messages/s."""


def round_of(b1: float | str | None = "", b2: float | str | None = "", b3: float | str | None = "") -> Listed:
    """What b1, b2 and b3 list of A; an empty text where one does not, None without statistics. Each has a bundle of its own."""
    found: Listed = {}
    for broker, own, rate in (("b1", B, b1), ("b2", C, b2), ("b3", "t/d/0x0_0x8", b3)):
        found[broker] = {own: 7.0} if isinstance(rate, str) else {own: 7.0, A: rate}
    return found


def owners(
    *each_round: Listed, keeps_absent: bool = False, destinations: Mapping[str, str] | None = None
) -> list[str]:
    """Owner of A after each round of a minute."""
    fleet, found = Fleet(), []
    for number, listed in enumerate(each_round):
        reports = [load(broker, 60 * number, bundles=bundles) for broker, bundles in listed.items()]
        advanced = seen(
            *reports,
            before=fleet,
            left=() if keeps_absent else None,
            destinations=destinations,
            end_ms=60_000 * number,
        ).advanced
        fleet = decode_memory("pulsar", seal(advanced.fleet))
        found.append(advanced.owners_of([A])[A])
    return found


OWN, MOVED = round_of(b1=10.0), round_of(b2=10.0)


@pytest.mark.parametrize("keeps_absent", [False, True], ids=["Pulsar's", "planner"])
@pytest.mark.parametrize(
    ("each_round", "expected"),
    [
        pytest.param([OWN, round_of(10.0, 0.0), OWN], "b1 b1 b1", id="a stray listing without traffic"),
        pytest.param([OWN, round_of(10.0, 10.0), OWN], "b1 b1 b1", id="a stray listing with traffic"),
        pytest.param([OWN, round_of(10.0, None), OWN], "b1 b1 b1", id="a stray one without statistics"),
        pytest.param(
            [OWN, *[round_of(10.0, 0.0)] * 5], "b1 b1 b1 b1 b1 b1", id="one without traffic for ever"
        ),
        pytest.param([OWN, *[round_of(0.0, 0.0)] * 3], "b1 b1 b1 b1", id="both without traffic"),
        pytest.param([OWN, MOVED], "b1 b2", id="moved at once"),
        pytest.param([OWN, round_of(10.0, 10.0), MOVED], "b1 b1 b2", id="both for a round"),
        pytest.param([OWN, *[round_of(10.0, 10.0)] * 3], "b1 b1 b2 b2", id="the former one stale for ever"),
        pytest.param([OWN, round_of(0.0, 10.0)], "b1 b2", id="the former one shows no traffic any more"),
        pytest.param([round_of(10.0, 0.0), OWN], "b1 b1", id="both in the first round"),
        pytest.param([MOVED, round_of(0.0, 5.0), MOVED], "b2 b2 b2", id="a former one from before our time"),
        pytest.param(
            [OWN, MOVED, *[round_of(10.0, 10.0)] * 5],
            "b1 b2 b2 b2 b2 b2 b2",
            id="a former one lists it again for ever",
        ),
        pytest.param(
            [OWN, MOVED, round_of(0.0, 10.0), MOVED, round_of(10.0, 10.0), MOVED],
            "b1 b2 b2 b2 b2 b2",
            id="a former one lists it every second round",
        ),
        pytest.param([OWN, MOVED, round_of(10.0, 10.0), OWN], "b1 b2 b2 b1", id="there and back"),
        pytest.param(
            [OWN, MOVED, *[round_of(10.0, 10.0, 10.0)] * 2],
            "b1 b2 b2 b3",
            id="on to a third one while the first is stale",
        ),
    ],
)
def test_who_lists_a_bundle_with_traffic_owns_it_until_it_stops(
    each_round: list[Listed], expected: str, *, keeps_absent: bool
) -> None:
    assert owners(*each_round, keeps_absent=keeps_absent) == expected.split()


def test_the_destination_of_our_unload_owns_the_bundle_as_soon_as_it_lists_it() -> None:
    for shown in (10.0, 0.0, None):
        assert owners(OWN, round_of(10.0, shown), destinations={A: "b2"})[-1] == "b2"
        assert owners(OWN, round_of(10.0, shown), destinations={A: "b3"})[-1] == "b1"


def test_a_broker_that_got_a_bundle_by_a_gap_gives_it_back_to_the_one_that_lists_it_again() -> None:
    """b2 lists for ever what it once had; the reports of b1, which has it, leave it out once."""
    stale = [round_of(b2=10.0), *[round_of(10.0, 10.0)] * 5]
    assert owners(*stale, round_of(b2=10.0), *[round_of(10.0, 10.0)] * 2)[-3:] == ["b2", "b2", "b1"]


def test_a_broker_that_lists_a_bundle_of_another_for_three_rounds_is_a_finding() -> None:
    def listing(number: int, *, is_stray: bool) -> list[LoadReport]:
        other = {A: 0.0} if is_stray else {}
        return [
            load("b1", 10 * number + 1, bundles={A: 10.0}),
            load("b2", 10 * number + 1, bundles={C: 10.0, **other}),
        ]

    for strays, expected in (((3, 4), []), ((3, 5, 7), []), ((3, 4, 5), [5]), ((3, 4, 5, 6), [5, 6])):
        trace = [event for at in range(9) for event in listing(at, is_stray=at in strays)]
        found = [
            (each["round"], row["broker"], A in row["advice"])
            for each in run([trace], settings_of()).summaries
            for row in each["findings"]["heaviest"]
            if row["kind"] == "listed-twice"
        ]
        assert found == [(at, "b2", True) for at in expected]


def test_topics_of_a_bundle_without_traffic_speak_for_the_broker_that_has_them() -> None:
    fleet = Fleet()
    for number in range(3):
        reports = [
            load("b1", 60 * number, bundles={A: 0.0}, topics_count=4),
            load("b2", 60 * number, bundles={A: 0.0} if number else {}),
        ]
        advanced = seen(*reports, before=fleet, end_ms=60_000 * number).advanced
        fleet = advanced.fleet
        assert advanced.owners_of([A]) == {A: "b1"}
        assert np.array_equal(advanced.counts, [[4, 4]])
