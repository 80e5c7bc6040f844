"""Actions that fail again and again hold their kind until a person resumes the cluster."""

from collections.abc import Mapping
from typing import Any

from state.closing import Identity
from state.events import ActionResult, Event
from tests.state.pulsar.test_effects import BEFORE, SPLITTING, UNLOADING, after, reports
from tests.state.traces import facts, load, overlay, run, settings_of


class TestFailing:
    """One unload per round, each of another bundle, and the executor's result for each."""

    GUARDS: Mapping[str, Any] = {"failing_actions_count": 2, "ineffective_after_rounds_count": 0}

    def shown(
        self, outcomes: list[str], *controls: Event, guards: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Summaries of a run in which the actions get these outcomes one after the other, each a second after its decision."""
        pulsar = UNLOADING | {"guards": self.GUARDS | (guards or {})}
        names = [f"t/n/0x{i:x}0000000_0x{i + 1:x}0000000" for i in range(15)]
        events: list[Event] = [*controls]
        for number in range(14):
            events.append(
                load("b1", 10 * number + 5, cpu=90.0, bundles=dict.fromkeys(names, 20.0), rate=50.0)
            )
            events.append(load("b2", 10 * number + 5, cpu=10.0, rate=10.0))
        source = settings_of(**pulsar)
        for outcome in outcomes:
            message = {event.action_id for event in events if isinstance(event, ActionResult)}
            events.sort(key=lambda event: event.age_key)
            decided = [each for each in run([events], source).outputs if each.kind == "action"]
            action = next(each for each in decided if each.id not in message)
            events.append(
                ActionResult(
                    id=action.id, time_ms=action.time_ms + 1000, action_id=action.id, outcome=outcome
                )  # type: ignore[arg-type]
            )
        return run([sorted(events, key=lambda event: event.age_key)], source).summaries

    def test_a_cluster_is_held_from_the_round_in_which_too_many_failed(self):
        summaries = self.shown(["succeeded", "failed", "succeeded", "failed"])
        assert [summary["failing_since"] for summary in summaries[:6]] == [
            *[None] * 4,
            *["1970-01-01T00:00:50.000Z"] * 2,
        ]
        assert [summary["actions_count"] for summary in summaries] == [1] * 4 + [0] * 10
        assert summaries[4]["last_actions"] == {"failed": 2, "good": 2}
        held = summaries[4]["candidates"]["heaviest"]
        assert {"failing"} == {row["outcome"] for row in held} - {
            "acted",
            "need-met",
            "cooldown",
            "in-flight",
        }
        assert "2 of the last 10 actions failed" in next(
            row["detail"] for row in held if row["outcome"] == "failing"
        )

    def test_only_the_last_ten_count(self):
        spread = ["failed", *["succeeded"] * 9, "failed"]
        together = ["failed", *["succeeded"] * 8, "failed"]
        assert self.shown(spread)[-1]["failing_since"] is None
        assert self.shown(together)[-1]["failing_since"] is not None

    def test_skipped_ones_do_not_count(self):
        assert self.shown(["failed", "skipped", "skipped", "skipped"])[-1]["failing_since"] is None

    def test_it_stays_held_when_a_later_one_turns_out_well(self):
        """Unloads are decided in rounds 0 to 2; the third one's result comes when the cluster is held already."""
        summaries = self.shown(["failed", "failed"])
        assert [summary["failing_since"] for summary in summaries if summary["round"] >= 2] == [
            "1970-01-01T00:00:30.000Z"
        ] * 12

    def test_the_guard_can_be_switched_off(self):
        summaries = self.shown(["failed"] * 5, guards={"failing_actions_count": 0})
        assert {summary["failing_since"] for summary in summaries} == {None}
        assert [summary["actions_count"] for summary in summaries[:6]] == [1] * 6

    def test_a_person_resumes_it_and_what_was_before_counts_no_more(self):
        control = overlay(45, resumed_s=45)
        summaries = self.shown(["failed", "failed"], control)
        since = [summary["failing_since"] is not None for summary in summaries[:8]]
        assert since == [False, False, True, True, True, True, False, False], (
            "from 60 s on: 45 s and twice 5 s"
        )
        assert summaries[6]["last_actions"] == {}
        assert summaries[6]["actions_count"] == 1

    def test_a_resume_in_force_excuses_nothing_that_comes_later(self):
        control = overlay(45, resumed_s=45)
        summaries = self.shown(["failed", "failed", "failed", "failed"], control)
        assert [summary["failing_since"] for summary in summaries[6:9]] == [
            None,
            None,
            "1970-01-01T00:01:30.000Z",
        ]

    def test_a_resume_older_than_the_failing_changes_nothing(self):
        assert self.shown(["failed", "failed"], overlay(45, resumed_s=29))[-1]["failing_since"] is not None

    def test_a_pause_is_named_first(self):
        summaries = self.shown(["failed", "failed"], overlay(45, paused=True))
        outcomes = [set(summary["candidates"]["outcomes"]) for summary in summaries]
        assert "failing" in outcomes[5]
        assert "paused" in outcomes[6]
        assert "failing" not in outcomes[6]
        assert summaries[6]["failing_since"] is not None


def test_splits_are_held_too():
    """The split of the cluster failed; bundles that stand out for a split are held."""
    guards = {"failing_actions_count": 1}
    found = after([BEFORE] * 4, outcome="failed", pulsar=SPLITTING | {"guards": guards})
    assert [summary["splits"]["outcomes"] for summary in found.summaries] == [
        {"acted": 1},
        *[{"failing": 1}] * 4,
    ]
    assert found.summaries[1]["splits"]["heaviest"][0]["detail"].startswith("1 of the last 10 actions failed")


BOTH: dict[str, Any] = SPLITTING | {
    "avg_shedder": {"high_hit_count": 2, "min_unload_messages_per_s": 1.0},
    "guards": {"failing_actions_count": 1, "bundle_cooldown_s": 0},
}
"""The first round splits the hot bundle; the second wants to move bundles."""


def test_splits_that_fail_do_not_hold_unloads():
    found = after([BEFORE] * 3, outcome="failed", pulsar=BOTH)
    assert found.summaries[1]["candidates"]["outcomes"].get("acted") == 1
    assert not any("acted" in summary["splits"]["outcomes"] for summary in found.summaries[1:])
    assert "failing" not in found.summaries[1]["candidates"]["outcomes"]
    assert found.summaries[1]["failing_since"] is None
    assert found.summaries[1]["splits_failing_since"] == "1970-01-01T00:00:20.000Z"


def test_unloads_that_fail_do_not_hold_splits():
    """They also do not reserve a bundle that they cannot move."""
    splitting = {**SPLITTING["split"], "hit_count": 2}
    pulsar = UNLOADING | {"split": splitting, "guards": BOTH["guards"]}
    found = after([BEFORE] * 3, outcome="failed", pulsar=pulsar)
    assert {"failing"} < set(found.summaries[1]["candidates"]["outcomes"])
    assert [summary["splits"]["outcomes"].get("acted") for summary in found.summaries] == [
        None,
        None,
        1,
        None,
    ]
    assert found.summaries[1]["failing_since"] == "1970-01-01T00:00:20.000Z"
    assert "splits_failing_since" not in found.summaries[1]


def test_a_person_resumes_both_kinds_at_once():
    found = after([BEFORE] * 3, outcome="failed", pulsar=BOTH)
    assert "splits_failing_since" in found.summaries[3]
    events = [*reports(5, BEFORE), overlay(9, resumed_s=9)]
    assert [each["failing_since"] for each in run([events], settings_of(**BOTH)).summaries] == [None]


def test_a_broker_that_would_refuse_a_split_holds_splits_and_nothing_else():
    """It does so in a dry-run, too; a broker that could not be asked holds nothing."""
    events = [*reports(5, BEFORE), facts(6, restricted=["b3"])]
    for mode in ("act", "dry-run"):
        summary = run([events], settings_of(**BOTH), identity=Identity(mode=mode)).summaries[0]  # type: ignore[arg-type]
        assert summary["splits"]["outcomes"] == {"restricted-split": 1}
        detail = summary["splits"]["heaviest"][0]["detail"]
        assert detail.startswith("b3 would refuse it: add specified_positions_divide to supportedNamespaceB")
    moving = run([events], settings_of(**UNLOADING | {"split": SPLITTING["split"]})).summaries[0]
    assert moving["candidates"]["outcomes"]["acted"] == 1
