"""Actions that expire without a result: nobody carries them out, or somebody who says nothing."""

from typing import Any

import pytest

from state.closing import Identity
from state.events import ActionResult, Event
from tests.state.traces import Run, load, overlay, run, settings_of

BUNDLES = [f"t/n/0x{i}0000000_0x{i + 1}0000000" for i in range(4)]
HOT = {"rounds": {"warmup_rounds": 0}, "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0}}
TTL_S = 20.0
ACT = Identity(mode="act", action_ttl_s=TTL_S)
"""Rounds last ten seconds: an action of round 0 expires with round 2, and round 3 has the first reports after that."""


def reports(number: int, *, gone: int = 0, cpu: float = 90.0) -> list[Event]:
    """A round's reports: b1 is hot and has all bundles but ``gone`` ones, which are at b2."""
    return [
        load("b1", 10 * number + 5, cpu=cpu, rate=400.0, bundles=dict.fromkeys(BUNDLES[gone:], 50.0)),
        load("b2", 10 * number + 5, cpu=10.0, rate=20.0, bundles=dict.fromkeys(BUNDLES[:gone], 1.0)),
    ]


def rounds(count: int, *, gone_from: int | None = None, gone: int = 0) -> list[list[Event]]:
    """So many rounds; from one of them on, ``gone`` bundles are at b2."""
    return [reports(at, gone=gone if gone_from is not None and at >= gone_from else 0) for at in range(count)]


def played(batches: list[list[Event]], *, identity: Identity = ACT, **pulsar: Any) -> Run:
    return run(batches, settings_of(**HOT | pulsar), identity=identity)


def kinds(found: Run) -> list[list[str]]:
    """Kinds of the findings of each round."""
    return [[each["kind"] for each in summary["findings"]["heaviest"]] for summary in found.summaries]


def ids(count: int) -> list[str]:
    """Ids of the actions of the first round, which decides on ``count``."""
    found = [each.id for each in played([reports(0)]).outputs if each.kind == "action"]
    assert len(found) == count
    return found


def answer(action_id: str, time_s: float, outcome: Any = "succeeded") -> ActionResult:
    return ActionResult(
        id=f"r/{action_id}/{time_s}", time_ms=round(1000 * time_s), action_id=action_id, outcome=outcome
    )


def test_three_actions_without_result_and_effect_are_found_within_two_lifetimes() -> None:
    assert len(ids(3)) == 3
    found = played(rounds(6))
    assert kinds(found) == [[], [], [], *[["nobody-obeys"]] * 3]
    [finding] = found.summaries[3]["findings"]["heaviest"]
    assert found.summaries[3]["end"] == "1970-01-01T00:00:40.000Z", "decided at 10 s, and they live for 20 s"
    assert (finding["subject"], finding["broker"]) == ("east-1", "")
    assert finding["advice"] == (
        "the last 3 actions, since 1970-01-01T00:00:10.000Z, expired without a result, and the reports show no effect: nobody "
        "carries them out. Start an executor: `trimtab execute pulsar east-1`"
    )


def test_it_says_so_since_the_first_of_them_and_counts_on() -> None:
    cooling = {"guards": {"bundle_cooldown_s": 30.0}}
    advice = [
        summary["findings"]["heaviest"][0]["advice"]
        for summary in played(rounds(9), **cooling).summaries
        if summary["findings"]["count"]
    ]
    assert advice[0].startswith("the last 3 actions, since 1970-01-01T00:00:10.000Z")
    assert advice[-1].startswith("the last 6 actions, since 1970-01-01T00:00:10.000Z")


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "skipped"])
@pytest.mark.parametrize("time_s", [12.0, 42.0])
def test_any_result_shows_that_somebody_obeys(outcome: str, time_s: float) -> None:
    batches = rounds(7)
    batches[int(time_s) // 10].append(answer(ids(3)[1], time_s, outcome))
    assert "nobody-obeys" not in kinds(played(batches))[-1]


def test_a_result_of_somebody_elses_action_is_no_answer() -> None:
    batches = rounds(6)
    batches[4].append(answer("another", 42.0))
    assert kinds(played(batches))[-1] == ["nobody-obeys"]


def test_what_came_after_the_newest_answer_counts() -> None:
    batches = rounds(7)
    batches[1].append(answer(ids(3)[0], 12.0))
    found = played(batches)
    assert "nobody-obeys" in kinds(found)[-1], "the second, the third and the one of the next round"


def test_moves_that_are_seen_without_results_are_information() -> None:
    found = played(rounds(5, gone_from=2, gone=3))
    assert kinds(found)[2:] == [["no-results"]] * 3
    assert "the reports show their effect" in found.summaries[-1]["findings"]["heaviest"][0]["advice"]


def test_a_move_that_is_seen_among_the_last_three_is_neither() -> None:
    assert kinds(played(rounds(5, gone_from=2, gone=1)))[-1] == []


def test_fewer_than_three_actions_may_be_an_accident() -> None:
    found = played(rounds(6), guards={"max_unloads_per_round_count": 2, "max_unloads_per_hour_count": 2})
    assert kinds(found) == [[]] * 6


def test_a_source_that_does_not_report_shows_neither_and_the_next_report_counts() -> None:
    batches = rounds(6)
    batches[3] = batches[3][1:]
    assert kinds(played(batches)) == [[], [], [], [], ["nobody-obeys"], ["nobody-obeys"]]


def test_a_dry_run_and_proposals_are_not_meant_to_be_obeyed() -> None:
    for identity in (
        Identity(mode="dry-run", action_ttl_s=TTL_S),
        Identity(mode="act", action_ttl_s=TTL_S, approval="required"),
    ):
        assert kinds(played(rounds(6), identity=identity)) == [[]] * 6


def test_it_is_over_in_a_dry_run_and_begins_anew_with_mode_act() -> None:
    batches = rounds(12)
    batches[4].append(overlay(40, mode="dry-run"))
    batches[7].append(overlay(75, mode="act"))
    found = played(batches)
    modes = [summary["mode"] for summary in found.summaries]
    said = [mode for mode, each in zip(modes, kinds(found), strict=True) if "nobody-obeys" in each]
    first_again = modes.index("act", modes.index("dry-run"))
    assert "dry-run" not in said
    assert "nobody-obeys" not in kinds(found)[first_again]


def test_resume_forgets_it() -> None:
    batches = rounds(9)
    batches[5].append(overlay(50, resumed_s=50))
    assert kinds(played(batches))[-1] == []
