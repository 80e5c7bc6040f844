"""Actions and proposals that were published and are not decided again: they are remembered as they were published."""

from typing import Any

import pytest

from policies.shedding.view import Traffic
from policies.splitting.plan import BlindCut
from state.engine.ledger import Child, Decision
from state.engine.memory import Header, ProposalRecord
from state.facts import Facts
from state.outputs import Output, SplitChild
from state.pulsar.memory import Fleet
from state.pulsar.restoring import restore
from state.round_settings import RoundSettings
from state.settings import ClusterSettings, PulsarSettings
from tests.state.building import BUNDLE, EXPIRES_MS, LEFT, RIGHT, published, split, unload
from tests.state.engine.test_ledger import decision
from tests.state.engine.test_summary import closing

DECIDED_MS = 120_000
FORTY_S = ClusterSettings(pulsar=PulsarSettings(rounds=RoundSettings(max_report_age_s=40.0)))
SHEDDING_ELSEWHERE = Facts(["b9"], [], [], [], {})


def restored(
    *outputs: Output, known: dict[str, Decision] | None = None, facts: Facts | None = None, **fields: Any
) -> tuple[Header, Fleet]:
    header, fleet = Header(length_ms=60_000, facts=facts), Fleet()
    restore(closing(settings=FORTY_S, **fields), header, fleet, outputs, known or {})
    return header, fleet


def the_decision(*outputs: Output) -> Decision:
    (found,) = restored(*outputs)[0].ledger.decisions
    return found


def test_an_unload_is_remembered_with_its_load_and_promises_nothing() -> None:
    """An action shows in the reports 40 s after it expires, at the latest."""
    output = published(unload(), time_ms=DECIDED_MS)
    assert the_decision(output) == Decision(
        id=output.id,
        kind="unload",
        bundle=BUNDLE,
        source="b1",
        destination="b2",
        children=(),
        decided_ms=DECIDED_MS,
        expires_ms=EXPIRES_MS,
        until_ms=EXPIRES_MS + 40_000,
        dry_run=False,
        is_watched=True,
        is_leaving=True,
        traffic=Traffic(20.0, 300.0),
    )


def test_a_split_is_remembered_with_the_shares_of_its_children() -> None:
    """Of 40 messages/s the left child has 10, of 50 bytes/s nothing."""
    output = published(split(), time_ms=DECIDED_MS)
    assert the_decision(output) == Decision(
        id=output.id,
        kind="split",
        bundle=BUNDLE,
        source="b1",
        destination=None,
        children=(Child(LEFT, 0.25, 0.0), Child(RIGHT, 0.75, 1.0)),
        decided_ms=DECIDED_MS,
        expires_ms=EXPIRES_MS,
        until_ms=EXPIRES_MS + 40_000,
        dry_run=False,
        is_watched=True,
        is_leaving=False,
    )


def test_children_of_a_split_whose_topics_were_not_known_have_no_share() -> None:
    unknown = [
        SplitChild(range=range_, topics_count=None, messages_per_s=None, bytes_per_s=None)
        for range_ in ("0x00_0x40", "0x40_0x80")
    ]
    found = the_decision(published(split(children=unknown)))
    blind = BlindCut("messages", 40.0)
    assert found.children == (Child(LEFT, None, None, blind), Child(RIGHT, None, None, blind))


def test_an_unload_whose_destination_pulsar_chose_has_none() -> None:
    assert the_decision(published(unload(destination_broker=None))).destination is None


@pytest.mark.parametrize(("policy", "is_drain"), [("drain", True), ("avg-shedder", False)])
def test_an_unload_that_empties_its_broker_counts_for_the_budget_of_drains(
    policy: str, *, is_drain: bool
) -> None:
    assert the_decision(published(unload(policy=policy))).is_drain is is_drain


def test_a_decision_that_is_known_as_it_was_made_is_kept_as_it_is() -> None:
    known_one = published(unload())
    made = decision(known_one.id, before_points={"source": 80.0})
    header, _ = restored(known_one, published(unload(bundle=LEFT)), known={known_one.id: made})
    assert header.ledger.decisions[0] is made
    assert [each.bundle for each in header.ledger.decisions] == [made.bundle, LEFT]


def test_of_two_unloads_of_a_bundle_only_the_later_one_is_on_its_way() -> None:
    header, _ = restored(
        published(unload(), time_ms=60_000), published(unload(source_broker="b2"), time_ms=120_000)
    )
    found = header.ledger.decisions
    assert [(each.source, each.is_leaving) for each in found] == [("b1", False), ("b2", True)]


def test_the_mode_of_the_newest_action_is_the_last_mode() -> None:
    dry, acting = published(unload(dry_run=True)), published(unload())
    assert restored(acting, dry)[0].last_mode == "dry-run"
    assert restored(dry, acting)[0].last_mode == "act"
    assert restored()[0].last_mode is None


def test_nobody_looks_for_the_effect_of_an_unload_that_a_dry_run_showed() -> None:
    found = the_decision(published(unload(dry_run=True)))
    assert (found.dry_run, found.is_watched, found.is_leaving) == (True, False, True)


@pytest.mark.parametrize(
    ("fields", "facts", "expected"),
    [
        ({"mode": "dry-run"}, None, {BUNDLE: ("b1", "b2")}),
        ({"mode": "dry-run"}, SHEDDING_ELSEWHERE, {}),
        ({"mode": "act"}, None, {}),
    ],
    ids=["a dry-run", "another balancer sheds", "the cluster acts"],
)
def test_an_unload_counts_at_its_destination_where_the_shadow_is_on(
    fields: dict[str, Any], facts: Facts | None, expected: dict[str, tuple[str, str]]
) -> None:
    outputs = published(unload(dry_run=True)), published(split(bundle=LEFT, dry_run=True))
    assert restored(*outputs, facts=facts, **fields)[1].shadow == expected


def test_a_bundle_that_a_dry_run_moved_twice_counts_where_it_went_last() -> None:
    first = published(unload(dry_run=True))
    second = published(unload(dry_run=True, source_broker="b2", destination_broker="b3"))
    assert restored(first, second, mode="dry-run")[1].shadow == {BUNDLE: ("b1", "b3")}


def test_a_proposal_is_open_and_nothing_is_decided() -> None:
    first = published(unload(proposal=True, round=3))
    second = published(split(proposal=True, round=4))
    header, fleet = restored(first, second, mode="dry-run")
    assert header.proposals == [
        ProposalRecord(first.id, "unload", BUNDLE, "b1", "b2", 3, EXPIRES_MS, first.data),
        ProposalRecord(second.id, "split", BUNDLE, "b1", None, 4, EXPIRES_MS, second.data),
    ]
    assert header.ledger.decisions == []
    assert (header.last_mode, fleet.shadow) == (None, {})


def test_an_action_that_was_approved_is_no_proposal() -> None:
    header, _ = restored(published(unload(proposal_id="p")))
    assert (header.proposals, len(header.ledger.decisions)) == ([], 1)


def test_what_a_dry_run_showed_is_forgotten_once_the_cluster_acts() -> None:
    header, _ = restored(published(unload(dry_run=True)), published(unload(bundle=LEFT)))
    assert [each.bundle for each in header.ledger.decisions] == [LEFT]


def test_what_was_done_before_a_dry_run_stays() -> None:
    header, _ = restored(published(unload()), published(unload(bundle=LEFT, dry_run=True)))
    assert [each.bundle for each in header.ledger.decisions] == [BUNDLE, LEFT]
