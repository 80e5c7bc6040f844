"""What is said of the effects of actions, what holds further ones while they fail, and the reason of a round."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.shedding.avg_shedder import AvgShedderSettings
from policies.splitting.plan import SplitSettings
from state.closing import Identity, MemoryStart
from state.events import ActionResult, Event
from state.guard_settings import GuardSettings
from state.overlay import ControlData, MaintenanceWindow, moment_at
from state.pulsar.approvals import Answers
from state.pulsar.decide import judge
from state.pulsar.splits import topic_table
from state.pulsar.summary import Decided
from state.settings import ClusterSettings, PulsarSettings
from tests.state.building import BUNDLE, PROPOSALS_EXPIRE_MS, control, seen, split, unload
from tests.state.traces import Run, facts, load, run, settings_of, sweep

HOT, OTHER, COLD = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff"
LEFT, RIGHT = "t/n/0x00000000_0x20000000", "t/n/0x20000000_0x40000000"
UNLOADING: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0},
    "avg_shedder": {"high_hit_count": 1, "min_unload_messages_per_s": 1.0},
    "bundle_average_samples": 1,
}
SPLITTING: dict[str, Any] = {
    "rounds": {"warmup_rounds": 0},
    "split": {
        "enabled": True,
        "hit_count": 0,
        "max_messages_per_s": 70.0,
        "algorithm": "range_equally_divide",
        "without_topic_stats": "range",
    },
}

BEFORE = {"b1": [HOT, OTHER], "b2": [COLD], "b3": []}
MOVED = {"b1": [OTHER], "b2": [COLD, HOT], "b3": []}
CUT = {"b1": [LEFT, RIGHT, OTHER], "b2": [COLD], "b3": []}
RATES = {HOT: 80.0, OTHER: 60.0, COLD: 10.0, LEFT: 40.0, RIGHT: 40.0}


def reports(time_s: float, listed: Mapping[str, list[str]]) -> list[Event]:
    """The warm broker b1 and two others, with the bundles that each reporting broker lists."""
    return [
        load(
            name,
            time_s,
            cpu=90.0 if name == "b1" else 10.0,
            bundles={bundle: RATES[bundle] for bundle in sorted(bundles)},
            rate=200.0 if name == "b1" else 10.0,
            topics_count=4,
        )
        for name, bundles in listed.items()
    ]


def first_action(pulsar: Mapping[str, Any]) -> tuple[str, str]:
    """Id and bundle of what is decided in round 0."""
    outputs = run([reports(5, BEFORE)], settings_of(**pulsar)).outputs
    action = next(each for each in outputs if each.kind == "action")
    return action.id, action.subject


def after(
    rounds: list[Mapping[str, list[str]]],
    *,
    outcome: str = "succeeded",
    pulsar: Mapping[str, Any] = UNLOADING,
    identity: Identity | None = None,
) -> Run:
    """A run whose first action ended with ``outcome``, and whose rounds after it saw ``rounds``."""
    action_id, bundle = first_action(pulsar)
    assert bundle == HOT
    result = ActionResult(id="r", time_ms=12_000, action_id=action_id, outcome=outcome)  # type: ignore[arg-type]
    seen = [
        event for number, listed in enumerate(rounds, start=1) for event in reports(10 * number + 5, listed)
    ]
    events = sorted([*reports(5, BEFORE), result, *seen, sweep(16)], key=lambda event: event.age_key)
    return run([events], settings_of(**pulsar), identity=identity)


def judged(found: Run) -> list[dict[str, int]]:
    """How the judged actions ended, as each round after the first says."""
    return [summary["last_actions"] for summary in found.summaries[1:]]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([MOVED], [{"effective": 1}]),
        ([{"b1": [OTHER], "b2": [COLD], "b3": [HOT]}], [{"effective": 1}]),
        ([{"b1": [OTHER], "b2": [COLD], "b3": []}], [{"effective": 1}]),
        ([{"b1": [HOT, OTHER], "b2": [COLD, HOT], "b3": []}], [{"effective": 1}]),
        ([{"b2": [COLD, HOT], "b3": []}], [{"effective": 1}]),
        ([{"b2": [COLD], "b3": []}] * 2, [{}, {}]),
        ([BEFORE, MOVED], [{}, {"effective": 1}]),
        ([BEFORE, BEFORE, BEFORE], [{}, {}, {"ineffective": 1}]),
        ([BEFORE, {"b2": [COLD], "b3": []}, BEFORE, BEFORE], [{}, {}, {}, {"ineffective": 1}]),
        ([BEFORE, BEFORE, BEFORE, MOVED], [{}, {}, {"ineffective": 1}, {"ineffective": 1}]),
    ],
    ids=[
        "at its destination",
        "at another than its destination",
        "listed by nobody, and its owner reported",
        "listed by both for a while",
        "listed elsewhere, its owner silent",
        "listed by nobody, its owner silent: unknown",
        "an effect that takes a round",
        "three rounds without effect",
        "a silent round counts neither way",
        "a verdict stands, whatever comes later",
    ],
)
def test_an_unload_is_good_once_the_owner_is_another(
    rounds: list[Mapping[str, list[str]]], expected: list[dict[str, int]]
):
    assert judged(after(rounds)) == expected


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([CUT], [{"effective": 1}]),
        ([{"b1": [OTHER], "b2": [COLD, RIGHT], "b3": []}], [{"effective": 1}]),
        ([{"b1": [HOT, LEFT, OTHER], "b2": [COLD], "b3": []}] * 4, [{"effective": 1}] * 4),
        ([{"b1": [OTHER], "b2": [COLD], "b3": []}] * 4, [{}, {}, {}, {}]),
        ([BEFORE, BEFORE, BEFORE], [{}, {}, {"ineffective": 1}]),
    ],
    ids=[
        "both children at the owner",
        "one child, at another broker",
        "a child, and its parent is listed beside it for long",
        "neither parent nor child: unknown",
        "three rounds without effect",
    ],
)
def test_a_split_is_good_once_a_child_is_listed_whether_or_not_brokers_still_list_the_parent(
    rounds: list[Mapping[str, list[str]]], expected: list[dict[str, int]]
):
    found = after(rounds, pulsar=SPLITTING)
    assert "boundaries" in found.actions[0]
    assert judged(found) == expected


def test_the_summary_of_the_judging_round_shows_the_load_expected_and_seen():
    summaries = after([BEFORE, MOVED, MOVED]).summaries
    assert [summary.get("judged", {}).get("outcomes") for summary in summaries] == [
        None,
        None,
        {"effective": 1},
        None,
    ]
    (row,) = summaries[2]["judged"]["heaviest"]
    assert (row["id"], row["bundle"]) == first_action(UNLOADING)
    assert row["brokers"] == {"source": "b1", "destination": "b2"}
    rates = {
        name: {side: load["messages_per_s"] for side, load in row[name].items()}
        for name in ("before", "expected", "seen")
    }
    assert rates == {
        "before": {"source": 200.0, "destination": 10.0},
        "expected": {"source": 120.0, "destination": 90.0},
        "seen": {"source": 200.0, "destination": 10.0},
    }


def test_a_broker_that_has_not_reported_since_the_result_shows_no_load():
    found = after([{"b2": [COLD, HOT], "b3": []}])
    (row,) = found.summaries[1]["judged"]["heaviest"]
    assert set(row["expected"]) == {"source", "destination"}
    assert set(row["seen"]) == {"destination"}


def test_a_failed_unload_and_a_split_show_how_they_ended_and_no_load():
    failed = after([BEFORE], outcome="failed").summaries[1]["judged"]["heaviest"][0]
    assert (failed["outcome"], failed["expected"], failed["seen"]) == ("failed", {}, {})
    cut = after([CUT], pulsar=SPLITTING).summaries[1]["judged"]["heaviest"][0]
    assert (cut["kind"], cut["outcome"]) == ("split", "effective")
    assert [cut[name] for name in ("brokers", "before", "expected", "seen")] == [{}] * 4


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("failed", [{"failed": 1}] * 4),
        ("skipped", [{}] * 4),
        ("succeeded", [{}, {}, *[{"ineffective": 1}] * 2]),
    ],
)
def test_a_failed_action_is_judged_by_its_result_and_a_skipped_one_never(
    outcome: str, expected: list[dict[str, int]]
):
    assert judged(after([BEFORE] * 4, outcome=outcome)) == expected


def test_an_action_without_a_result_is_never_judged():
    assert {str(each) for each in judged(run_without_result())} == {"{}"}


def run_without_result() -> Run:
    events = [event for number in range(30) for event in reports(10 * number + 5, BEFORE)]
    return run([events], settings_of(**UNLOADING))


def test_a_dry_run_is_never_judged_whatever_is_said_of_it():
    found = run([reports(5, BEFORE)], settings_of(**UNLOADING), identity=Identity(mode="dry-run"))
    result = ActionResult(id="r", time_ms=12_000, action_id=found.outputs[0].id, outcome="failed")
    events = [*reports(5, BEFORE), result, *reports(15, BEFORE), *reports(25, BEFORE)]
    again = run([events], settings_of(**UNLOADING), identity=Identity(mode="dry-run"))
    assert again.outputs[0].id == result.action_id
    assert judged(again) == [{}, {}]


def test_the_first_result_of_an_action_counts_and_a_repeat_does_not():
    action_id, _ = first_action(UNLOADING)
    results = [
        ActionResult(id=f"r{place}", time_ms=12_000 + place, action_id=action_id, outcome=outcome)
        for place, outcome in enumerate(["skipped", "failed", "failed", "succeeded"])
    ]
    events = [*reports(5, BEFORE), *results, *reports(15, MOVED), *reports(25, MOVED)]
    assert judged(run([events], settings_of(**UNLOADING))) == [{"failed": 1}] * 2


@pytest.mark.parametrize("rest_s", [0.0, 30.0])
def test_an_ineffective_bundle_is_left_alone_for_as_long_as_the_setting_says(rest_s: float):
    """The verdict falls at 40 s, the cooldown of the unload is over at 45 s."""
    guards = {"bundle_cooldown_s": 35.0, "ineffective_rest_s": rest_s}
    found = after([BEFORE] * 7, pulsar=UNLOADING | {"guards": guards})
    outcomes = [
        next(row["outcome"] for row in summary["candidates"]["heaviest"] if row["bundle"] == HOT)
        for summary in found.summaries
    ]
    rested = [number for number, outcome in enumerate(outcomes) if outcome == "ineffective"]
    assert rested == ([3, 4, 5] if rest_s else [])
    findings = [summary["findings"]["outcomes"].get("ineffective", 0) for summary in found.summaries]
    assert [number for number, count in enumerate(findings) if count] == (rested or [3])


def test_what_succeeded_is_taken_for_good_where_nobody_looks_after_it():
    pulsar = UNLOADING | {"guards": {"ineffective_after_rounds": 0}}
    assert judged(after([BEFORE, BEFORE], pulsar=pulsar)) == [{"effective": 1}] * 2


def test_an_unload_that_landed_elsewhere_is_good_and_is_told():
    found = after([{"b1": [OTHER], "b2": [COLD], "b3": [HOT]}, MOVED])
    shown = [summary["findings"]["heaviest"] for summary in found.summaries]
    assert [[(each["kind"], each["subject"], each["broker"]) for each in round_] for round_ in shown] == [
        [],
        [("landed-elsewhere", HOT, "b3")],
        [],
    ]
    assert "to go to b2" in shown[1][0]["advice"]


def test_after_three_rounds_whose_unloads_landed_elsewhere_that_destination_is_not_chosen():
    """b1 has six bundles; each that is told to go to b2, the idlest, lands at b3."""
    owners = {f"t/n/0x{at}0000000_0x{at + 1}0000000": "b1" for at in range(6)}
    events: list[Event] = []
    destinations: list[list[str]] = []
    pulsar = UNLOADING | {
        "guards": {"max_unloads_per_round_count": 1},
        "placement": "least-resource-usage",
        "shedding_policy": "overload-shedder",
        "overload_shedder": {"threshold_points": 70},
    }
    for number in range(5):
        for broker, cpu in (("b1", 90.0), ("b2", 10.0), ("b3", 20.0)):
            bundles = {name: 20.0 for name, owner in owners.items() if owner == broker}
            events.append(load(broker, 10 * number + 5, cpu=cpu, bundles=bundles, topics_count=4))
        found = run([[*events, sweep(10 * number + 16)]], settings_of(**pulsar))
        made = [each for each in found.outputs if each.kind == "action"][len(destinations) :]
        destinations.append([found.actions[-1]["destination_broker"]] if made else [])
        for each in made:
            owners[each.subject] = "b3"
            events.append(
                ActionResult(
                    id=each.id, time_ms=10_000 * number + 12_000, action_id=each.id, outcome="succeeded"
                )
            )
    assert destinations == [["b2"], ["b2"], ["b2"], ["b3"], ["b3"]]


def test_nobody_waits_for_an_owner_that_never_reports_again():
    gone: list[Mapping[str, list[str]]] = [{"b2": [COLD], "b3": []}]
    found = after([*gone * 7, BEFORE, BEFORE, BEFORE, BEFORE])
    assert judged(found)[-1] == {}, "3 rounds and 25 s after its result it is no longer looked after"


BOTH: dict[str, Any] = SPLITTING | {
    "avg_shedder": {"high_hit_count": 2, "min_unload_messages_per_s": 1.0},
    "guards": {"failing_actions_count": 1, "bundle_cooldown_s": 0},
}
"""The first round splits the hot bundle; the second wants to move bundles."""


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


ONE = {"bundle_cooldown_s": 0.0, "max_unloads_per_hour_count": 1}
"""The first action is the only one; the budget holds every other bundle that would move."""
WAITING = UNLOADING | {"guards": {"hold_unsettled_brokers": True, **ONE}}
LISTED_TWICE = {"b1": MOVED["b1"] + BEFORE["b1"][:1], "b2": MOVED["b2"], "b3": []}


def held(found: Run) -> list[bool]:
    """For each round after the first, whether a bundle that would move waits for its broker."""
    return [bool(each["candidates"]["outcomes"].get("unsettled-broker")) for each in found.summaries[1:]]


@pytest.mark.parametrize(
    ("rounds", "waits"),
    [
        ([BEFORE, MOVED, MOVED], [True, True, False]),
        ([LISTED_TWICE, LISTED_TWICE, MOVED], [True, False, False]),
        ([BEFORE] * 5, [True, True, False, False, False]),
    ],
    ids=["until the round after it first shows", "though both list it for a while", "or has no effect"],
)
def test_after_a_success_a_broker_waits(rounds: list[Mapping[str, list[str]]], waits: list[bool]) -> None:
    assert held(after(rounds, pulsar=WAITING)) == waits


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_what_changed_nothing_holds_nobody(outcome: str) -> None:
    assert held(after([BEFORE, BEFORE], outcome=outcome, pulsar=WAITING)) == [False, False]


BIG, SMALL, IDLE = "t/a/0x00000000_0x40000000", "t/b/0x00000000_0x40000000", "t/c/0x00000000_0x40000000"
OF_B3 = "t/d/0x00000000_0x40000000"
REPORTS = (
    load("b1", 470, cpu=90.0, bundles={BIG: 100.0, SMALL: 20.0, IDLE: 0.0}, rate=400.0, topics_count=9),
    load("b2", 470, cpu=10.0, rate=0.0),
    load("b3", 470, cpu=50.0, bundles={OF_B3: 1.0}, topics_count=9),
)
"""b1 and b2 are far enough apart to fire at once, and b1 then gives BIG and SMALL away; b3 stands alone."""
EAGER: dict[str, Any] = {"avg_shedder": AvgShedderSettings(high_hit_count=1, min_unload_messages_per_s=1.0)}
WITH_SPLITS = SplitSettings(enabled=True, max_messages_per_s=10.0, hit_count=0, without_topic_stats="range")
"""BIG and SMALL are above the limit; the policy wants to move them."""
SPLITS_OF_B3 = SplitSettings(enabled=True, max_messages_per_s=0.5, hit_count=0, without_topic_stats="range")
DRAINED = ControlData(drained_brokers={"b3": MaintenanceWindow(since=moment_at(0))})


def judged_round(
    *,
    split: SplitSettings | None = None,
    answers: Answers | None = None,
    guards: dict[str, Any] | None = None,
    **fields: Any,
) -> Decided:
    pulsar = PulsarSettings(
        **EAGER,
        split=split or SplitSettings(),
        guards=GuardSettings(**(guards or {})),
    )
    settings = ClusterSettings(pulsar=pulsar)
    found = seen(*REPORTS, settings=settings, **fields)
    topics = topic_table(found.table, {})
    return judge(found.context, found.table, topics, leaving={}, answers=answers or Answers())


APPROVED = Answers(unloads=[unload()], cuts=[split()])
ASKED = {"proposals_expire_ms": PROPOSALS_EXPIRE_MS}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "2 unloads, 1 bundle has no traffic"),
        (
            {"control": control()},
            "0 unloads: 2 bundles wait for the end of the pause, 1 has no traffic",
        ),
        (
            {"memory_start": MemoryStart(10**6)},
            (
                "starting: the memory of earlier rounds began at 1970-01-01T00:16:40.000Z: the first round that acts ends after "
                "1970-01-01T00:16:40.000Z; 0 unloads: 2 bundles wait for the end of the start, 1 has no traffic"
            ),
        ),
        (
            {"guards": {"max_unloads_per_round_count": 1}},
            "1 unload, 1 bundle waits for a budget (max_unloads_per_round_count), 1 has no traffic",
        ),
        ({"answers": APPROVED}, "3 unloads (1 approved), 1 bundle has no traffic; 1 split (1 approved)"),
        ({"overlay": DRAINED}, "3 unloads (1 to empty drained brokers), 1 bundle has no traffic"),
        (ASKED, "0 unloads: 2 bundles wait for approval, 1 has no traffic"),
        (
            {"split": WITH_SPLITS},
            "2 unloads, 1 bundle has no traffic; 0 splits: 2 bundles are to move instead",
        ),
        (
            {"split": SPLITS_OF_B3},
            "2 unloads, 1 bundle has no traffic; 1 split, 2 bundles are to move instead",
        ),
        (
            {"split": SPLITS_OF_B3, **ASKED},
            (
                "0 unloads: 2 bundles wait for approval, 1 has no traffic; "
                "0 splits: 2 bundles are to move instead, 1 waits for approval"
            ),
        ),
        (
            {"split": SPLITS_OF_B3, "overlay": DRAINED, "answers": APPROVED},
            (
                "4 unloads (1 approved, 1 to empty drained brokers), 1 bundle has no traffic; "
                "1 split (1 approved), 2 bundles are to move instead"
            ),
        ),
    ],
    ids=[
        "unloads",
        "held",
        "starting",
        "budget",
        "approved",
        "drained",
        "proposed",
        "left to the policy",
        "splits",
        "all proposed",
        "everything",
    ],
)
def test_a_decided_round_says_what_it_found_did_and_held(options: dict[str, Any], reason: str) -> None:
    found = judged_round(**options)
    assert (found.outcome, found.reason) == ("decided", reason)


def test_in_a_round_with_a_single_broker_nothing_fires() -> None:
    apart = ControlData(
        maintenance_brokers={
            "b1": MaintenanceWindow(since=moment_at(0)),
            "b2": MaintenanceWindow(since=moment_at(0)),
        }
    )
    assert judged_round(overlay=apart).reason == "0 unloads: no broker stands out (1 below-threshold)"


@pytest.mark.parametrize(("limit", "unloads"), [(1, [OF_B3]), (2, [OF_B3, BIG]), (3, [OF_B3, BIG, SMALL])])
def test_drains_spend_the_budget_of_the_round_before_the_policy_does(limit: int, unloads: list[str]) -> None:
    found = judged_round(overlay=DRAINED, guards={"max_unloads_per_round_count": limit})
    assert [each.bundle for each in found.unloads] == unloads


def test_what_people_approved_goes_before_drains_and_those_before_the_policy() -> None:
    found = judged_round(overlay=DRAINED, answers=Answers(unloads=[unload()], cuts=[split()]))
    assert [each.bundle for each in found.actions] == [BUNDLE, OF_B3, BIG, SMALL, BUNDLE]


def test_a_bundle_that_an_approved_split_cuts_is_not_moved_as_well() -> None:
    found = judged_round(answers=Answers(split_rows={0}))
    assert {row: hold.reason for row, hold in found.admitted.holds.items()} == {0: "split-instead"}
    assert [each.bundle for each in found.unloads] == [SMALL]


def test_a_bundle_that_an_approved_unload_moves_is_not_moved_again() -> None:
    found = judged_round(answers=Answers(unload_rows={0}))
    assert [each.bundle for each in found.unloads] == [SMALL]
    assert found.admitted.holds == {}
