"""What the ledger remembers of the actions that a round decided."""

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from policies.shedding.view import DESTINATION_RISES, SOURCE_FALLS, Traffic
from state.closing import Identity
from state.events import Approval
from state.ledger import Child, Decision, Ledger
from state.memory import decode_header
from state.outputs import Split, Unload
from state.pulsar.decide import remember
from state.settings import ClusterSettings, PulsarSettings, RoundSettings
from state.store import DictStore
from tests.state.building import (
    BUNDLE,
    END_MS,
    EXPIRES_MS,
    LEFT,
    RIGHT,
    decision,
    ledger_of,
    published,
    seen,
    split,
    unload,
)
from tests.state.traces import COLD, EVEN, HOT, load, run, settings_of, split_settings, topic_stats

FORTY_S = ClusterSettings(pulsar=PulsarSettings(rounds=RoundSettings(max_report_age_s=40.0)))
REPORTS = (
    load("b1", 470, cpu=80.0, bundles={BUNDLE: 20.0}, rate=100.0),
    load("b2", 470, cpu=10.0, rate=5.0),
)
"""b1 is at 80 points with 100 messages/s and 1000 bytes/s, b2 at 10 points with 5 and 50."""
PARTS = [Child(LEFT, 0.25, 0.0), Child(RIGHT, 0.75, 1.0)]


def remembered(*actions: Unload | Split, ledger: Ledger | None = None, **fields: Any) -> list[Decision]:
    """The decisions of a round with these actions."""
    found = seen(*REPORTS, header={"ledger": ledger or Ledger()}, settings=FORTY_S, **fields)
    made = [replace(each, dry_run=found.context.closing.is_dry_run) for each in actions]
    remember(found.context, found.table, [(published(each), each) for each in made])
    return found.context.ledger.decisions


def test_an_unload_is_remembered_with_what_its_brokers_had_and_what_it_promises() -> None:
    """A fifth of the messages and three tenths of the bytes: a quarter of 80 points on the mean."""
    assert remembered(unload()) == [
        Decision(
            id=published(unload()).id,
            kind="unload",
            bundle=BUNDLE,
            source="b1",
            destination="b2",
            children=(),
            decided_ms=END_MS,
            expires_ms=EXPIRES_MS,
            until_ms=EXPIRES_MS + 40_000,
            dry_run=False,
            is_watched=True,
            is_leaving=True,
            traffic=Traffic(20.0, 300.0),
            before={"source": Traffic(100.0, 1000.0), "destination": Traffic(5.0, 50.0)},
            before_points={"source": 80.0, "destination": 10.0},
            promised_points=pytest.approx({"source": -25.0, "destination": 25.0}),
        )
    ]


def test_of_an_unload_whose_destination_pulsar_chooses_only_the_source_is_remembered() -> None:
    (found,) = remembered(unload(destination_broker=None))
    assert found.destination is None
    assert found.before == {"source": Traffic(100.0, 1000.0)}
    assert found.before_points == {"source": 80.0}
    assert found.promised_points == pytest.approx({"source": -25.0})


def test_an_unload_of_a_policy_that_predicts_usage_promises_what_the_policy_says() -> None:
    evidence = unload().evidence | {SOURCE_FALLS: 7.0, DESTINATION_RISES: 9.0}
    (found,) = remembered(unload(evidence=evidence))
    assert found.promised_points == {"source": -7.0, "destination": 9.0}


def test_an_approved_split_is_remembered_with_its_children_and_leaves_no_broker() -> None:
    assert remembered(split()) == [
        Decision(
            id=published(split()).id,
            kind="split",
            bundle=BUNDLE,
            source="b1",
            destination=None,
            children=tuple(PARTS),
            decided_ms=END_MS,
            expires_ms=EXPIRES_MS,
            until_ms=EXPIRES_MS + 40_000,
            dry_run=False,
            is_watched=True,
            is_leaving=False,
        )
    ]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_each_decision_has_the_id_of_its_own_action_in_whatever_order_actions_come(
    order: tuple[int, ...],
) -> None:
    one, other, cut = unload(bundle="t/a/0x0_0x1"), unload(bundle="t/s/0x0_0x1"), split()
    actions = [(one, other, cut)[place] for place in order]
    assert [(each.id, each.kind, each.bundle) for each in remembered(*actions)] == [
        (published(each).id, "unload" if isinstance(each, Unload) else "split", each.bundle)
        for each in actions
    ]


def test_an_unload_that_empties_its_broker_promises_nothing_and_has_a_budget_of_its_own() -> None:
    (found,) = remembered(unload(policy="drain"))
    assert found.is_drain
    assert (found.before_points, found.promised_points) == ({}, {})
    assert found.before["source"] == Traffic(100.0, 1000.0)
    assert not remembered(unload())[0].is_drain


@pytest.mark.parametrize(("mode", "is_dry_run"), [("dry-run", True), ("act", False)])
def test_nobody_looks_for_the_effect_of_what_a_dry_run_shows(mode: str, *, is_dry_run: bool) -> None:
    found = remembered(unload(), split(bundle=LEFT), mode=mode)
    assert [each.dry_run for each in found] == [is_dry_run] * 2
    assert [each.is_watched for each in found] == [not is_dry_run] * 2
    assert [each.is_leaving for each in found] == [True, False]


def test_a_split_of_the_criteria_is_remembered_with_the_shares_of_its_topics() -> None:
    """The hot bundle has 200 messages/s and 2000 bytes/s, a quarter of both in each of its four topics."""
    store = DictStore()
    events = [load("b1", 5, bundles={HOT: 200.0}, topics_count=4), topic_stats(5, EVEN), load("b2", 5)]
    (action,) = run([events], split_settings(), store=store).actions
    header = store.header()
    assert header is not None
    (found,) = decode_header(header).ledger.decisions
    assert (found.kind, found.bundle, found.source, found.is_leaving) == ("split", HOT, "b1", False)
    counts = [each["topics_count"] for each in action["children"]]
    assert sum(counts) == 4
    assert found.children == tuple(
        Child(f"t/n/{each['range']}", count / 4, count / 4)
        for each, count in zip(action["children"], counts, strict=True)
    )


def test_splits_approved_and_by_criteria_each_have_the_id_of_their_own_action() -> None:
    """HOT has 200 messages/s and needs approval. COLD has 150 since the second round and needs none."""
    source = settings_of(
        rounds={"warmup_rounds": 0},
        bundle_average_samples=1,
        split={
            "enabled": True,
            "hit_count": 0,
            "average_samples": 1,
            "max_messages_per_s": 100.0,
            "without_topic_stats": "range",
        },
        approval={"standing": {"light": {"kinds": ["splits"], "max_messages_per_s": 150.0}}},
    )
    identity, store = Identity(mode="act", approval="required"), DictStore()
    first, second = (
        [
            load("b1", time_s, bundles={HOT: 200.0}, topics_count=4),
            load("b2", time_s, bundles={COLD: rate}, topics_count=4),
        ]
        for time_s, rate in ((5, 1.0), (15, 150.0))
    )
    (proposal,) = (
        each for each in run([first], source, identity=identity, store=store).outputs if each.kind == "action"
    )
    answer = Approval(id="yes", time_ms=0, proposal_id=proposal.id, verdict="approved", who="", why="")
    actions = [
        each
        for each in run([[answer, *second]], source, identity=identity, store=store).outputs
        if each.kind == "action"
    ]
    header = store.header()
    assert header is not None
    found = decode_header(header).ledger.decisions
    assert [each.subject for each in actions] == [HOT, COLD]
    assert [(each.id, each.bundle, each.source) for each in found] == [
        (actions[0].id, HOT, "b1"),
        (actions[1].id, COLD, "b2"),
    ]
    assert [len(each.children) for each in found] == [2, 2]


def test_an_older_unload_of_the_bundle_no_longer_says_that_it_leaves() -> None:
    older = ledger_of(decision("a", BUNDLE), decision("b", LEFT))
    assert [each.is_leaving for each in remembered(unload(), ledger=older)] == [False, True, True]


def test_a_round_that_decides_nothing_leaves_the_ledger_as_it_is() -> None:
    assert remembered(ledger=ledger_of(decision())) == [decision()]
