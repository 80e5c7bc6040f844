"""Approval: a proposal spends nothing, an answer counts by its place in the log, and a replay of it is exact."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from state.closing import Identity
from state.controller import Controller
from state.events import Approval, Coordinates, Event
from state.guard_settings import NO_ZONES, StandingApproval
from state.memory import MAX_APPROVALS_COUNT, ProposalRecord
from state.outputs import Output
from state.pulsar import approvals
from state.pulsar.admission import PROPOSED
from state.store import DictStore
from tests.state.building import seen
from tests.state.traces import (
    BROKERS,
    BUNDLES,
    CLUSTER,
    FIRING,
    Run,
    load,
    overlay,
    run,
    seeds,
    settings_of,
    sweep,
)

REQUIRED = Identity(mode="act", approval="required", proposal_ttl_s=30.0)
SETTINGS = settings_of(
    **FIRING,
    rounds={"warmup_rounds": 0, "quorum_ratio": 0.0},
    guards={"bundle_cooldown_s": 0},
    split={"enabled": True, "max_messages_per_s": 40, "hit_count": 1, "without_topic_stats": "range"},
)


def word(proposal_id: str, verdict: Any = "approved", *, time_s: float = 0.0, id_: str = "w") -> Approval:
    return Approval(
        id=id_,
        time_ms=round(time_s * 1000),
        proposal_id=proposal_id,
        verdict=verdict,
        who="ann",
        why="a test",
    )


def steady(random: Random) -> list[Event]:
    """Rounds in which every broker reports; now and then a bundle moves by hand, and load changes."""
    owner = {bundle: random.choice(BROKERS) for bundle in BUNDLES}
    cpu = {broker: random.choice([10.0, 30.0, 60.0, 90.0]) for broker in BROKERS}
    found: list[Event] = []
    for number in range(random.randint(4, 9)):
        if random.random() < 0.3:
            owner[random.choice(BUNDLES)] = random.choice(BROKERS)
            cpu[random.choice(BROKERS)] = random.choice([10.0, 50.0, 90.0])
        for broker in BROKERS:
            bundles = {name: 10.0 + 5 * place for place, name in enumerate(BUNDLES) if owner[name] == broker}
            found.append(load(broker, 10 * number + 5, cpu=cpu[broker], bundles=bundles, topics_count=9))
        found.append(sweep(10 * number + 16))
    return found


def answered(trace: list[Event], random: Random) -> list[Event]:
    """The trace with an answer behind some of the events that made a proposal, at any time; two laptops may disagree."""
    controller = Controller(CLUSTER, DictStore(), identity=REQUIRED, settings=SETTINGS)
    found: list[Event] = []
    for event in trace:
        found.append(event)
        for output in controller.step(event).outputs:
            if output.kind == "action" and output.dry_run and random.random() < 0.8:
                answer = word(
                    output.id,
                    random.choice(["approved", "approved", "approved", "rejected"]),
                    time_s=random.choice([0.0, 50.0, 1e6]),
                    id_=f"w{len(found)}",
                )
                found.append(answer)
                controller.step(answer)
    return found


def cut(trace: list[Event], random: Random) -> list[list[Event]]:
    """The same events in their order, in batches."""
    batches: list[list[Event]] = [[]]
    for event in trace:
        if random.random() < 0.3:
            batches.append([])
        batches[-1].append(event)
    return batches


def shown(outputs: list[Output]) -> list[tuple[str, bytes, bool]]:
    return [(each.id, each.data, each.dry_run) for each in outputs]


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_batches_and_restarts_change_nothing_of_what_was_proposed_and_approved(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    trace = answered(steady(random), random)
    whole = run([trace], SETTINGS, identity=REQUIRED)
    assert shown(run(cut(trace, random), SETTINGS, identity=REQUIRED).outputs) == shown(whole.outputs)


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_an_action_goes_out_once_for_an_approved_proposal_and_is_named_there(
    seed: int,
) -> None:
    random = Random(seed)  # noqa: S311
    trace = answered(steady(random), random)
    found = run([trace], SETTINGS, identity=REQUIRED)
    proposals = {
        each.id for each in found.outputs if each.kind == "action" and b'"proposal":true' in each.data
    }
    done: list[str] = []
    for action in found.actions:
        if action["policy"] == "drain" or action["dry_run"]:
            continue
        done.append(action["proposal_id"])
        (row,) = [
            row
            for summary in found.summaries
            for row in summary.get("approval", {"answers": []})["answers"]
            if summary["round"] == action["round"]
            and row["proposal_id"] == action["proposal_id"]
            and row["outcome"] == "acted"
        ]
        assert row["verdict"] == "approved"
    assert len(set(done)) == len(done)
    assert set(done) <= proposals


def test_the_traces_of_these_tests_have_every_kind_of_answer() -> None:
    """Properties over traces in which nothing is approved would prove nothing."""
    seen: set[str] = set()
    for seed in range(40):
        random = Random(seed)  # noqa: S311
        found = run([answered(steady(random), random)], SETTINGS, identity=REQUIRED)
        for summary in found.summaries:
            approval = summary.get("approval", {"answers": [], "expired": []})
            seen |= {row["outcome"] for row in approval["answers"]} | (
                {"lapsed"} if approval["expired"] else set()
            )
            seen |= {"proposed"} & {*summary["candidates"]["outcomes"], *summary["splits"]["outcomes"]}
    assert seen >= {"acted", "rejected", "owner-changed", "no-longer-helps", "lapsed", "proposed"}


def leaning(at_s: float, *, busy: float = 80.0) -> list[Event]:
    bundles = {BUNDLES[0]: 30.0, BUNDLES[1]: 30.0, BUNDLES[2]: 20.0}
    return [load("b1", at_s, cpu=busy, bundles=bundles), load("b2", at_s, cpu=20, bundles={BUNDLES[3]: 20.0})]


PLAIN = settings_of(**FIRING, rounds={"warmup_rounds": 0})


def proposals_of(found: Run) -> list[dict[str, Any]]:
    return [each for each in found.actions if each.get("proposal")]


def ids_of(found: Run) -> list[str]:
    return [each.id for each in found.outputs if each.kind == "action"]


def test_an_answer_moves_no_clock_is_never_late_or_ahead_of_its_log_and_a_repeat_counts_once() -> None:
    found = run([[*leaning(5), sweep(16)]], PLAIN, identity=REQUIRED, is_closed=False)
    said = [
        (word(ids_of(found)[0], time_s=1e9, id_="w"), Coordinates(appended_ms=at_ms))
        for at_ms in (16_000, 17_000)
    ]
    after = run(
        [[*leaning(5), sweep(16), *said, *leaning(15), sweep(26)]], PLAIN, identity=REQUIRED, is_closed=False
    )
    assert after.rejections == []
    assert [
        (kind.__name__, result, count) for (kind, result), count in after.results.items() if kind is Approval
    ] == [
        ("Approval", "used", 1),
        ("Approval", "superseded", 1),
    ]
    (row,) = after.summaries[1]["approval"]["answers"]
    assert (row["outcome"], row["action_id"]) == ("acted", ids_of(after)[1])


def test_while_a_cluster_is_paused_nothing_is_proposed_and_what_is_approved_does_not_go_out() -> None:
    found = run([[*leaning(5), sweep(16)]], PLAIN, identity=REQUIRED, is_closed=False)
    paused = [
        overlay(10, paused=True),
        *leaning(5),
        sweep(16),
        word(ids_of(found)[0]),
        *leaning(25),
        sweep(36),
    ]
    last = run([paused], PLAIN, identity=REQUIRED, is_closed=False).summaries[-1]
    assert [row["outcome"] for row in last["approval"]["answers"]] == ["paused"]
    assert last["candidates"]["outcomes"]["paused"] > 0


def test_an_approved_unload_of_a_bundle_that_may_not_be_touched_any_more_says_what_keeps_it() -> None:
    found = run([[*leaning(5), sweep(16)]], PLAIN, identity=REQUIRED, is_closed=False)
    excluding = {"pulsar": {"guards": {"excluded_namespaces": ["t/a"]}}}
    events = [
        *leaning(5),
        sweep(16),
        word(ids_of(found)[0]),
        overlay(10, settings=excluding),
        *leaning(25),
        sweep(36),
    ]
    last = run([events], PLAIN, identity=REQUIRED, is_closed=False).summaries[-1]
    (row,) = last["approval"]["answers"]
    assert (row["outcome"], row["who"], row["action_id"]) == ("excluded-namespace", "ann", None)


def test_an_approved_action_does_not_go_out_in_a_round_without_quorum_and_is_told_so() -> None:
    found = run([[*leaning(5), sweep(16)]], PLAIN, identity=REQUIRED, is_closed=False)
    alone = [*leaning(5), sweep(16), word(ids_of(found)[0]), *leaning(25)[:1], sweep(36)]
    source = settings_of(**FIRING, rounds={"warmup_rounds": 0, "quorum_ratio": 1.0})
    last = run([alone], source, identity=REQUIRED, is_closed=False).summaries[-1]
    (row,) = last["approval"]["answers"]
    assert (last["outcome"], row["outcome"], row["kind"]) == ("no-quorum", "no-quorum", "unload")
    assert row["detail"] == last["reason"]


def test_an_approved_split_goes_out_as_it_was_proposed() -> None:
    busy = [load("b1", 5, bundles={BUNDLES[0]: 90.0, BUNDLES[1]: 1.0}, topics_count=9), load("b2", 5)]
    source = settings_of(
        rounds={"warmup_rounds": 0},
        split={"enabled": True, "max_messages_per_s": 40, "hit_count": 0, "without_topic_stats": "range"},
    )
    found = run([[*busy, sweep(16)]], source, identity=REQUIRED, is_closed=False)
    (proposal,) = proposals_of(found)
    (row,) = found.summaries[0]["splits"]["heaviest"]
    assert (row["outcome"], row["detail"]) == (PROPOSED.reason, PROPOSED.detail)
    later = [load("b1", 25, bundles={BUNDLES[0]: 90.0, BUNDLES[1]: 1.0}, topics_count=9), load("b2", 25)]
    events = [*busy, sweep(16), word(ids_of(found)[0]), *later, sweep(36)]
    acted = run([events], source, identity=REQUIRED, is_closed=False)
    (action,) = [each for each in acted.actions if not each["dry_run"]]
    assert action["proposal_id"] == ids_of(found)[0]
    assert (action["bundle"], action["boundaries"]) == (proposal["bundle"], proposal["boundaries"])
    assert "ann" in action["reason"]


def test_an_answer_for_a_cluster_that_nobody_knows_or_of_another_partition_is_refused() -> None:
    assert [each.reason for each in run([[word("p")]], PLAIN).rejections] == ["unknown-cluster"]
    events = [(load("b1", 5), Coordinates(3)), (word("p"), Coordinates(2))]
    assert [each.reason for each in run([events], PLAIN).rejections] == ["wrong-partition"]


def test_more_answers_than_anybody_gives_are_refused() -> None:
    said = [word("p", id_=f"w{number}") for number in range(MAX_APPROVALS_COUNT + 1)]
    found = run([[load("b1", 5), *said]], PLAIN, is_closed=False)
    assert [each.reason for each in found.rejections] == ["too-many-approvals"]


@pytest.mark.parametrize(
    ("rule", "approved"),
    [
        (StandingApproval(), True),
        (StandingApproval(kinds=("splits",)), False),
        (StandingApproval(namespaces=("t/a",)), True),
        (StandingApproval(namespaces=("s/*", "t/?")), True),
        (StandingApproval(namespaces=("t",)), False),
        (StandingApproval(max_messages_per_s=10), True),
        (StandingApproval(max_messages_per_s=9.9), False),
        (StandingApproval(max_bytes_per_s=100, max_messages_per_s=10), True),
        (StandingApproval(max_bytes_per_s=99), False),
        (StandingApproval(hours=("00:00-01:00", "Thu 01:00-02:00")), True),
        (StandingApproval(hours=("01:00-02:00",)), False),
    ],
)
def test_a_standing_approval_covers_what_keeps_within_all_of_its_limits(
    rule: StandingApproval, *, approved: bool
) -> None:
    found = rule.approves(
        "unloads", "t/a", messages_per_s=10, bytes_per_s=100, end_ms=600_000, zones=NO_ZONES
    )
    assert found is approved


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("kinds", ("throttles",), "kinds has 'throttles'; expected unloads or splits"),
        ("hours", ("8-9",), "hours has '8-9'; expected a span of the day"),
        ("hours", ("08:00-09:00 splits",), "kinds says which actions are approved"),
        ("max_bytes_per_s", -1.0, "expected 0 or more"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(field: str, value: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        StandingApproval(**{field: value})


@pytest.mark.parametrize("verdict", ["approved", "rejected"])
def test_one_answer_is_for_all_open_proposals_of_its_round_and_for_no_other(verdict: Any) -> None:
    proposals = [
        ProposalRecord(f"p{at}", "unload", f"t/n/{at}", "b1", "b2", 5 if at < 150 else 6, 900_000, b"")
        for at in range(151)
    ]
    said = [Approval(1, "w", "round/5", verdict, "ann", "a test")]
    asked = seen(
        load("b1", 470), header={"proposals": proposals, "approvals": said}, proposals_expire_ms=900_000
    )
    header, found = asked.context.header, approvals.begin(asked.context)
    assert [each.id for each in header.proposals] == ["p150"]
    assert [(each.record.id, each.record.proposal_id) for each in found.given] == [
        ("w", f"p{at}") for at in range(150)
    ]
    assert len(found.approved) == (150 if verdict == "approved" else 0)
    assert len(header.rejected) == (150 if verdict == "rejected" else 0)


@pytest.mark.parametrize(
    ("named", "outcome"),
    [("p", "expired"), ("round/5", "expired"), ("q", "unknown"), ("round/6", "unknown")],
)
def test_an_answer_to_an_expired_proposal_says_so_whether_it_names_it_or_its_round(
    named: str, outcome: str
) -> None:
    """The round ends at 480 s."""
    expired = ProposalRecord("p", "unload", "t/n/0", "b1", "b2", 5, 480_000, b"")
    said = [Approval(1, "w", named, "approved", "ann", "a test")]
    asked = seen(
        load("b1", 470), header={"proposals": [expired], "approvals": said}, proposals_expire_ms=900_000
    )
    (given,) = approvals.begin(asked.context).given
    assert given.outcome == outcome
