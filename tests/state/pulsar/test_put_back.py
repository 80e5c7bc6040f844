"""When a drain begins, and which bundles were put back at its broker since then."""

from collections.abc import Mapping

import pytest

from state.events import LoadReport
from state.memory import DrainRecord
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar import drain_records
from state.pulsar.memory import Fleet
from tests.state.building import AGE_MS, seen
from tests.state.traces import load

A, B, C = (f"t/{name}/0x0_0x1" for name in "abc")


def report(broker: str, time_s: float, *bundles: str) -> LoadReport:
    return load(broker, time_s, bundles=dict.fromkeys(bundles, 1.0))


def begun(
    *reports: LoadReport,
    before: Fleet | None = None,
    known: dict[str, DrainRecord] | None = None,
    drained: tuple[str, ...] = ("b1",),
) -> tuple[list[tuple[str, str]], dict[str, DrainRecord]]:
    """Bundles and brokers of what was put back, and the drains that are remembered after the round."""
    overlay = ControlData(drained_brokers=dict.fromkeys(drained, MaintenanceWindow(since=moment_at(0))))
    context = seen(*reports, before=before, header={"drains": dict(known or {})}, overlay=overlay).context
    found = drain_records.begin(context)
    return found, context.header.drains


EARLIER = seen(report("b1", 410, A), report("b2", 410, B, C)).advanced.fleet
"""At 410 s, b1 had A, and b2 had B and C."""
SINCE_410 = DrainRecord(410_000, 1)


def test_a_drain_begins_with_the_first_report_in_it_and_everything_there_is_to_leave() -> None:
    put_back, known = begun(report("b1", 470, A, B), report("b2", 470, C))
    assert (put_back, known) == ([], {"b1": DrainRecord(470_000, 2)})


def test_the_drain_of_a_broker_without_bundles_begins_as_well() -> None:
    assert begun(report("b1", 470), report("b2", 470, A)) == ([], {"b1": DrainRecord(470_000, 0)})


def test_the_drain_of_a_silent_broker_begins_with_its_next_report() -> None:
    silent = begun(report("b2", 470, A), before=EARLIER)
    assert silent == ([], {})
    assert begun(report("b2", 470, A), before=EARLIER, known={"b1": SINCE_410}) == ([], {"b1": SINCE_410})


def test_a_drain_that_ended_is_forgotten_and_begins_anew_if_it_is_asked_for_again() -> None:
    """b2 is not drained any more. What b1 lists new since the end of its earlier drain was not put back."""
    reports = (report("b1", 470, A, B), report("b2", 470, C))
    put_back, known = begun(*reports, before=EARLIER, known={"b2": SINCE_410})
    assert (put_back, known) == ([], {"b1": DrainRecord(470_000, 2)})
    assert begun(*reports, known={"b1": SINCE_410, "b2": SINCE_410}, drained=())[1] == {}


@pytest.mark.parametrize(
    ("report_ms", "put_back"),
    [(410_000, [(B, "b1")]), (469_999, [(B, "b1")]), (470_000, [])],
    ids=["it began with A there", "B came a moment later", "it began with B there"],
)
def test_what_a_broker_lists_since_after_the_beginning_of_its_drain_was_put_back(
    report_ms: int, put_back: list[tuple[str, str]]
) -> None:
    """b1 lists A since 410 s and B since 470 s."""
    found, known = begun(
        report("b1", 470, A, B), report("b2", 470, C), before=EARLIER, known={"b1": DrainRecord(report_ms, 1)}
    )
    names = tuple(bundle for bundle, _ in put_back)
    assert (found, known) == (put_back, {"b1": DrainRecord(report_ms, 1, names)})


def test_a_bundle_that_another_broker_has_by_now_was_not_put_back() -> None:
    """Both list B; b2 does so only since 475 s."""
    reports = (report("b1", 470, A, B), report("b2", 475, B))
    before = seen(report("b1", 410, A), report("b2", 410)).advanced.fleet
    assert begun(*reports, before=before, known={"b1": SINCE_410})[0] == []


def test_what_came_back_is_named_broker_by_broker() -> None:
    reports = (report("b1", 470, A, C), report("b2", 470, B))
    before = seen(report("b1", 410), report("b2", 410)).advanced.fleet
    found, _ = begun(*reports, before=before, known={"b2": SINCE_410, "b1": SINCE_410}, drained=("b2", "b1"))
    assert found == [(A, "b1"), (C, "b1"), (B, "b2")]


PARENT, LEFT, RIGHT = (
    f"t/d/0x{span}" for span in ("00000000_0x80000000", "00000000_0x40000000", "40000000_0x80000000")
)
Listed = Mapping[str, tuple[str, ...]]
FULL: Listed = {"b1": (A, PARENT), "b2": (B,)}


def drained(*rounds: Listed, since: int = 0, gaps: Mapping[int, int] | None = None) -> list[list[str]]:
    """What was put back at b1 in each round of 60 s, as Pulsar's policies see it; b1 is drained from the round ``since`` on.

    Before the rounds of ``gaps`` nobody reports for so many rounds.
    """
    found: list[list[str]] = []
    fleet, known, at = Fleet(), dict[str, DrainRecord](), 0
    for number, listed in enumerate(rounds):
        at += 1 + (gaps or {}).get(number, 0)
        window = MaintenanceWindow(since=moment_at(0))
        overlay = ControlData(drained_brokers={"b1": window} if number >= since else {})
        reports = (report(broker, 60 * at, *bundles) for broker, bundles in listed.items())
        context = seen(
            *reports, before=fleet, header={"drains": known}, overlay=overlay, end_ms=60_000 * at
        ).context
        found.append([bundle for bundle, _ in drain_records.begin(context)])
        fleet, known = context.fleet, context.header.drains
    return found


MOVED: Listed = {"b1": (PARENT,), "b2": (A, B)}


def test_what_was_put_back_is_named_as_long_as_it_is_there() -> None:
    gap: Listed = {"b1": (PARENT,), "b2": (B,)}
    assert drained(FULL, MOVED, FULL, FULL, gap, FULL, MOVED, MOVED) == [[], [], [A], [A], [], [A], [], []]


def test_a_bundle_that_is_new_to_the_cluster_was_put_at_the_broker() -> None:
    new = "t/e/0x00000000_0x80000000"
    assert drained(FULL, {"b1": (A, PARENT, new), "b2": (B,)}) == [[], [new]]


def test_what_a_report_leaves_out_once_was_not_put_back() -> None:
    assert drained(FULL, {"b1": (PARENT,), "b2": (B,)}, FULL, FULL) == [[]] * 4


def test_after_an_outage_what_was_there_before_it_was_not_put_back() -> None:
    assert AGE_MS < 5 * 60_000
    assert drained(FULL, FULL, FULL, FULL, gaps={2: 4}) == [[]] * 4


def test_after_an_outage_what_another_broker_had_before_it_was_put_back() -> None:
    assert drained(FULL, MOVED, FULL, FULL, gaps={2: 4}) == [[], [], [A], [A]]


def test_when_a_drained_broker_is_back_after_a_long_silence_its_bundles_were_not_put_back() -> None:
    """By then it is forgotten, and so is what it had; only B was at another broker."""
    alone: Listed = {"b2": (B,)}
    found = drained(FULL, *[alone] * 5, {"b1": (A, B, PARENT), "b2": ()}, {"b1": (A, B, PARENT), "b2": ()})
    assert found == [[]] * 6 + [[B]] * 2


def test_the_parts_of_a_bundle_that_is_split_at_a_drained_broker_were_not_put_back() -> None:
    halves: Listed = {"b1": (A, LEFT, RIGHT), "b2": (B,)}
    assert drained(FULL, halves, halves) == [[]] * 3


def test_the_parts_of_a_bundle_that_was_put_back_were_put_back() -> None:
    without: Listed = {"b1": (A,), "b2": (B, PARENT)}
    halves: Listed = {"b1": (A, LEFT, RIGHT), "b2": (B,)}
    assert drained(FULL, without, FULL, halves, halves) == [[], [], [PARENT], [LEFT, RIGHT], [LEFT, RIGHT]]
