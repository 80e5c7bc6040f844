"""Whether unloads helped: what they promise, when that is checked, and what is said of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from state.events import ActionResult, Event
from state.outputs import PromisesSummary, Section
from state.pulsar.effects import find_failed_promises
from tests.state.traces import Run, load, overlay, run, settings_of, sweep

HOT, OTHER, COLD = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff"
UNLOADING: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}
RATES = {HOT: 60.0, OTHER: 140.0, COLD: 20.0}
BEFORE, MOVED = {"b1": [HOT, OTHER], "b2": [COLD]}, {"b1": [OTHER], "b2": [COLD, HOT]}
CPU = {"b1": 78.0, "b2": 10.0}
Points = Mapping[str, float]


def reports(number: int, cpu: Points, listed: Mapping[str, list[str]]) -> list[Event]:
    return [
        load(
            name,
            10.0 * number + 5,
            cpu=points,
            bundles={bundle: RATES[bundle] for bundle in sorted(listed[name])},
            rate=sum(RATES[bundle] for bundle in listed[name]),
        )
        for name, points in cpu.items()
    ]


def after(rounds: Sequence[Points], *others: Event, before: Points = CPU) -> Run:
    """A run in which HOT is moved in round 0 with success, and brokers report ``rounds`` from round 1 on."""
    settings = settings_of(**UNLOADING)
    outputs = run([reports(0, before, BEFORE)], settings).outputs
    (action,) = [each for each in outputs if each.kind == "action"]
    assert action.subject == HOT
    result = ActionResult(id="r", time_ms=12_000, action_id=action.id, outcome="succeeded")
    seen = [event for number, cpu in enumerate(rounds, start=1) for event in reports(number, cpu, MOVED)]
    events = sorted(
        [*reports(0, before, BEFORE), result, *seen, *others, sweep(16)], key=lambda event: event.age_key
    )
    return run([events], settings)


def promises(found: Run) -> list[dict[str, Any] | None]:
    return [summary.get("promises") for summary in found.summaries]


def checked(found: Run) -> list[dict[str, Any]]:
    return [row for each in promises(found) if each for row in each["checked"]["heaviest"]]


SETTLED = {"b1": 55.5, "b2": 31.95}
"""A bundle with 60 of 200 messages per second takes 22.5 of 75 points above idle, and a little less where a message costs less."""


def test_a_promise_is_checked_two_rounds_after_the_move_is_known_to_be_good() -> None:
    found = after([{"b1": 70.0, "b2": 60.0}, {"b1": 70.0, "b2": 60.0}, SETTLED, SETTLED])
    assert [None if each is None else each["checked"]["count"] for each in promises(found)] == [
        None,
        None,
        None,
        1,
        0,
    ]
    (row,) = checked(found)
    assert (row["bundle"], row["brokers"]) == (HOT, {"source": "b1", "destination": "b2"})
    assert row["before_points"] == {"source": 78.0, "destination": 10.0}
    assert row["expected_points"] == pytest.approx({"source": 55.5, "destination": 31.95}, abs=0.002)
    assert row["seen_points"] == pytest.approx({"source": 55.5, "destination": 31.95})
    assert row["outcome"] == "kept"


@pytest.mark.parametrize(
    ("seen", "outcome", "gain", "error"),
    [
        (SETTLED, "kept", 22.5, 0.0),
        ({"b1": 59.0, "b2": 30.0}, "kept", 19.0, 3.5),
        ({"b1": 66.9, "b2": 21.3}, "kept", 11.1, 11.4),
        ({"b1": 67.2, "b2": 21.3}, "failed", 10.8, 11.7),
        ({"b1": 78.0, "b2": 34.0}, "kept", 0.0, 22.5),
        ({"b1": 78.0, "b2": 10.0}, "failed", 0.0, 22.5),
        ({"b1": 83.0, "b2": 10.0}, "failed", -5.0, 27.5),
        ({"b1": 40.0, "b2": 60.0}, "kept", 18.0, 28.05),
    ],
    ids=[
        "as promised",
        "nearly so",
        "just half",
        "less than half",
        "one side alone is half",
        "nothing",
        "worse",
        "more than promised is no failure, but an error",
    ],
)
def test_a_promise_is_kept_where_the_brokers_came_at_least_half_as_much_closer(
    seen: Points, outcome: str, gain: float, error: float
) -> None:
    found = after([SETTLED, SETTLED, seen])
    assert [row["outcome"] for row in checked(found)] == [outcome]
    last = promises(found)[-1]
    assert last is not None
    assert last["expected_gain_points"] == pytest.approx(22.5, abs=0.002)
    assert (last["gain_points"], last["error_points"]) == pytest.approx((gain, error), abs=0.002)
    assert (last["kept_count"], last["failed_count"]) == ((1, 0) if outcome == "kept" else (0, 1))


def test_a_broker_that_is_too_busy_to_show_what_is_taken_off_it_promises_nothing() -> None:
    assert promises(after([SETTLED] * 6, before={"b1": 80.0, "b2": 10.0})) == [None] * 7


def test_a_promise_whose_broker_is_gone_is_never_checked() -> None:
    assert promises(after([SETTLED, SETTLED] + [{"b2": 34.0}] * 6)) == [None] * 9


def test_a_broker_that_is_silent_for_a_round_is_waited_for() -> None:
    found = after([SETTLED, SETTLED, {"b2": 34.0}, SETTLED])
    assert [row["outcome"] for row in checked(found)] == ["kept"]


def test_what_was_promised_is_forgotten_after_an_hour_and_by_a_resume() -> None:
    long = after([SETTLED] * 364)
    shown = [number for number, each in enumerate(promises(long)) if each]
    assert (shown[0], shown[-1]) == (3, 362), "checked at 40 s, and so until 3,640 s"
    shown = [each is not None for each in promises(after([SETTLED] * 6, overlay(41, resumed_s=41)))]
    assert shown == [False, False, False, True, True, True, False], "in force from the second round after it"


def summary(*, kept: int, failed: int) -> PromisesSummary:
    return PromisesSummary(
        kept_count=kept,
        failed_count=failed,
        expected_gain_points=8.0,
        gain_points=0.5,
        error_points=9.0,
        checked=Section(count=0, outcomes={}, heaviest=[]),
    )


@pytest.mark.parametrize(
    ("kept", "failed", "is_found"),
    [(0, 4, False), (2, 3, True), (0, 5, True), (5, 5, False), (4, 6, True), (10, 0, False)],
)
def test_a_finding_says_so_once_most_of_five_or_more_promises_failed(
    kept: int, failed: int, *, is_found: bool
) -> None:
    """It is about the cluster's unloads, whichever policies decided them."""
    found = find_failed_promises(summary(kept=kept, failed=failed), "east-1")
    assert [(each.kind, each.subject) for each in found] == [("promises-failed", "east-1")] * is_found
    if found:
        assert f"{failed} of the last {kept + failed} unloads" in found[0].advice
        assert "mean gain 0.5 points, expected 8.0" in found[0].advice
        assert "topics or clients load them rather than traffic" in found[0].advice
