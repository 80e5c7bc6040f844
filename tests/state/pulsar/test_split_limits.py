"""Splits over several rounds: limits of bundles, of splits in a round, and approved splits."""

from collections.abc import Collection
from typing import Any

import pytest

from state.closing import Identity
from state.events import Approval, Event
from state.pulsar import splits
from state.pulsar.admission import Admission
from state.pulsar.budgets import with_rules
from state.pulsar.splits import topic_table
from state.settings import SettingsSource
from tests.state.building import seen, split
from tests.state.traces import BUNDLES, Run, load, run, settings_of, split_settings, with_results

BIG, SMALL, OTHER = BUNDLES[:3]
QUARTERS = [f"t/n/0x{at}0000000_0x{at + 4:x}0000000" for at in (0, 4, 8)] + ["t/n/0xc0000000_0xffffffff"]
"""The four bundles of a namespace; the first two are at b1 and b2, the others at b3."""


def quarters(time_s: float, hot: Collection[int] = (), *, without: Collection[int] = ()) -> list[Event]:
    """A round of the namespace: a bundle that is ``hot`` has 200 messages/s where 100 are allowed, and others have 1."""
    rates = {name: 200.0 if at in hot else 1.0 for at, name in enumerate(QUARTERS) if at not in without}
    owners = {"b1": QUARTERS[:1], "b2": QUARTERS[1:2], "b3": QUARTERS[2:]}
    return [
        load(
            broker,
            time_s,
            bundles={name: rates[name] for name in owned if name in rates},
            topics_count=9,
        )
        for broker, owned in owners.items()
    ]


def halves(name: str) -> list[str]:
    """The children of a bundle that is cut in the middle of its range."""
    namespace, _, text = name.rpartition("/")
    lower, upper = (int(edge, 16) for edge in text.split("_"))
    middle = lower + (upper - lower) // 2
    return [f"{namespace}/0x{lower:08x}_0x{middle:08x}", f"{namespace}/0x{middle:08x}_0x{upper:08x}"]


def cuts_of(found: Run) -> list[tuple[int, str]]:
    return [(each["round"], each["bundle"]) for each in found.actions if not each["dry_run"]]


def splits_shown(found: Run, number: int) -> dict[str, int]:
    """Outcomes of splits in a round."""
    (summary,) = [each for each in found.summaries if each["round"] == number]
    outcomes: dict[str, int] = summary["splits"]["outcomes"]
    return outcomes


def limited(**split: Any) -> SettingsSource:
    return split_settings(**{"hit_count": 1, "without_topic_stats": "range"} | split)


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ([], "namespace-full"),
        (["succeeded"], "namespace-full"),
        (["failed"], "acted"),
        (["skipped"], "acted"),
    ],
    ids=["no result", "it succeeded", "it failed", "it was skipped"],
)
def test_a_namespace_keeps_to_its_limit_of_bundles_while_a_split_of_it_is_on_its_way(
    results: list[str], outcome: str
) -> None:
    """Four bundles and five allowed: the first split, of round 1, makes five of them, whatever the reports show by round 2."""
    source = limited(max_namespace_bundles_count=5)
    trace = [*quarters(5, {0}), *quarters(15, {0, 1}), *quarters(25, {0, 1})]
    found = run([with_results(trace, source, results)], source)
    assert cuts_of(found)[0] == (1, QUARTERS[0])
    assert splits_shown(found, 2).get(outcome) == 1
    assert len(cuts_of(found)) == (2 if outcome == "acted" else 1)


@pytest.mark.parametrize("listed", [[], [0], [0, 1]], ids=["neither child", "one child", "both children"])
def test_children_of_a_split_count_once_whether_the_reports_list_them_yet_or_not(listed: list[int]) -> None:
    """Six are allowed: after the first split there is room for one more of two, and the parent that is gone takes none."""
    source = limited(max_namespace_bundles_count=6)
    children = dict.fromkeys((halves(QUARTERS[0])[at] for at in listed), 1.0)
    trace = [
        *quarters(5, {0}),
        *quarters(15, {0, 1, 2}),
        load("b1", 25, bundles=children, topics_count=9),
        *quarters(25, {1, 2})[1:],
    ]
    assert splits_shown(run([trace], source), 2) == {"acted": 1, "namespace-full": 1}


REQUIRED = Identity(mode="act", approval="required", proposal_ttl_s=600.0)


def approving(source: SettingsSource, trace: list[Event], then: list[Event], said: list[str]) -> Run:
    """A trace that proposes splits; then all that ``said`` names is approved, and the trace goes on."""
    before = run([trace], source, identity=REQUIRED, is_closed=False)
    ids = {each.subject: each.id for each in before.outputs if each.kind == "action"}
    answers = [Approval(1, f"w/{name}", ids[name], "approved", "ann", "a test") for name in said]
    return run([[*trace, *answers, *then]], source, identity=REQUIRED)


def answers_of(found: Run) -> list[str]:
    return [
        row["outcome"]
        for summary in found.summaries
        for row in summary.get("approval", {}).get("answers", [])
    ]


@pytest.mark.parametrize(
    ("limits", "hot", "outcomes"),
    [
        ({}, {0, 1}, ["acted", "acted"]),
        ({"max_splits_per_round_count": 1}, {0, 1}, ["acted", "budget"]),
        ({"max_namespace_bundles_count": 5}, {0, 1}, ["acted", "namespace-full"]),
        ({"max_namespace_bundles_count": 6}, {0, 1}, ["acted", "acted"]),
        ({"max_splits_per_round_count": 1}, {1}, ["no-longer-helps", "acted"]),
        ({}, set(), ["no-longer-helps", "no-longer-helps"]),
    ],
    ids=["no limit", "one split a round", "room for one", "room for both", "one is calm", "both are calm"],
)
def test_an_approved_split_keeps_the_limits_of_splits_and_goes_out_only_where_it_still_helps(
    limits: dict[str, Any], hot: set[int], outcomes: list[str]
) -> None:
    """Four bundles of a namespace. One is proposed in round 1, the other in round 2; both are approved before round 3."""
    trace = [*quarters(5, {0}), *quarters(15, {0, 1}), *quarters(25, {0, 1}), load("b9", 36)]
    found = approving(limited(**limits), trace, quarters(37, hot), QUARTERS[:2])
    assert answers_of(found) == outcomes
    acted = [name for name, outcome in zip(QUARTERS, outcomes, strict=False) if outcome == "acted"]
    assert cuts_of(found) == [(3, name) for name in acted]


@pytest.mark.parametrize(
    ("rate", "trigger", "outcome"),
    [
        (25.0, "broker-messages", None),
        (20.0, "broker-messages", "no-longer-helps"),
        (25.0, "broker-bytes", None),
        (20.0, "broker-bytes", "no-longer-helps"),
        (25.0, "messages", "no-longer-helps"),
    ],
)
def test_an_approved_split_for_its_brokers_sake_helps_while_no_other_can_take_the_bundle(
    rate: float, trigger: str, outcome: str | None
) -> None:
    """b1 has 40 more, b2 has 20. With 25, b2 would have 45 and b1 40 left; with 20 both would have 40."""
    found = seen(load("b1", 470, bundles={BIG: rate, SMALL: 40.0}), load("b2", 470, bundles={OTHER: 20.0}))
    admission = Admission(found.context, *with_rules(found.context, found.table, {}))
    action = split(bundle=BIG, trigger=trigger)
    refusal = splits.refuse_approved(admission, topic_table(found.table, {}), action, 0, ())
    assert (refusal and refusal[0]) == outcome


def test_approved_splits_and_those_of_the_round_share_its_limits_of_splits() -> None:
    """The third bundle needs no approval. One split a round: the approved one goes out, and the other in the next round."""
    rule = {"approval": {"standing": {"rest": {"kinds": ["splits"], "max_messages_per_s": 150}}}}
    source = settings_of(
        **rule,
        rounds={"warmup_rounds": 0},
        split={
            "enabled": True,
            "max_messages_per_s": 100.0,
            "hit_count": 0,
            "without_topic_stats": "range",
            "max_splits_per_round_count": 1,
        },
        avg_shedder={"low_threshold_points": 99.0, "high_threshold_points": 99.0},
    )
    hot = {QUARTERS[2]: 120.0, QUARTERS[3]: 1.0}
    trace = [*quarters(5, {0}), load("b9", 16)]
    then = [
        event
        for time_s in (17, 27)
        for event in [*quarters(time_s, {0})[:2], load("b3", time_s, bundles=hot, topics_count=9)]
    ]
    found = approving(source, trace, then, QUARTERS[:1])
    assert cuts_of(found) == [(1, QUARTERS[0]), (2, QUARTERS[2])]


def test_a_split_that_waits_for_approval_leaves_the_limit_of_splits_to_others() -> None:
    """One split a round. While that of the first bundle is open, that of the second, at another broker, is proposed."""
    source = limited(max_splits_per_round_count=1, hit_count=0)
    found = run([[*quarters(5, {0}), *quarters(15, {0, 1})]], source, identity=REQUIRED)
    assert [(each["round"], each["bundle"]) for each in found.actions] == [(0, QUARTERS[0]), (1, QUARTERS[1])]
    assert splits_shown(found, 1) == {"proposed": 2}
