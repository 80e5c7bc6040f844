"""What a throttle action says: what it changes, the numbers that it was decided on, and one sentence for a person."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from policies.throttle.copies import LARGEST_NUMBER
from policies.throttle.lists import ThrottledLists
from policies.throttle.pacing_round import PacingExplanation, ThrottleDecision, Trigger
from policies.throttle.rates import BrokerRole
from policies.throttle.roles import by_role
from state.kafka.actions import bottleneck, left_out, throttle_action
from state.kafka.snapshot import Observation
from state.outputs import Throttle
from tests.policies.throttle.moving import Partition, copies_of
from tests.state.building import EXPIRES_AT, closing
from tests.state.kafka.reporting import (
    F3,
    FINISHED,
    FIRST,
    L1,
    L2,
    NOTHING_KNOWN,
    NOTHING_MOVES,
    SEEN,
    eta,
    explained,
    needs,
    plan,
)

UNPACED = replace(SEEN, rates_there={})
TWO_MOVE = replace(
    UNPACED,
    copies=copies_of(
        Partition("t-0", [1, 2], [2, 3], 10, 100),
        Partition("t-1", [1, 2], [2, 3], 10, 100),
    ),
)


def action(
    decision: ThrottleDecision = FIRST,
    explanation: PacingExplanation | None = None,
    observation: Observation = SEEN,
) -> Throttle:
    return throttle_action(decision, explanation or explained(), observation, closing())


def test_an_action_names_what_it_adds_and_the_rates_by_broker() -> None:
    found = action(explanation=explained(needs=needs(), plan=plan(), eta=eta()))
    assert (found.cluster, found.round, found.expires_at, found.dry_run) == ("east-1", 7, EXPIRES_AT, False)
    assert (found.policy, found.trigger) == ("reassignment-throttle", "first-throttle")
    assert found.add_leader_throttled_replicas == {"t": "0:1,0:2"}
    assert found.add_follower_throttled_replicas == {"t": "0:3"}
    assert (found.remove_leader_throttled_replicas, found.remove_follower_throttled_replicas) == ({}, {})
    assert (found.leader_rate_bytes_per_s, found.follower_rate_bytes_per_s) == ({"1": 24, "2": 24}, {"3": 24})
    assert (found.clear_leader_rates, found.clear_follower_rates) == ([], [])
    assert (found.eta_s, found.bottleneck) == (15.4, "leader:1")


def test_an_action_that_ends_a_throttle_names_what_it_takes_off_in_the_order_of_the_decision() -> None:
    found = action(replace(FINISHED, remove=ThrottledLists(leader={"u": "1:1"}, follower={"t": "0:3"})))
    assert found.remove_leader_throttled_replicas == {"u": "1:1"}
    assert found.remove_follower_throttled_replicas == {"t": "0:3"}
    assert (found.add_leader_throttled_replicas, found.add_follower_throttled_replicas) == ({}, {})
    assert (found.leader_rate_bytes_per_s, found.follower_rate_bytes_per_s) == ({}, {})
    assert (found.clear_leader_rates, found.clear_follower_rates) == ([1, 2], [3])


@pytest.mark.parametrize(
    ("observation", "reassignments", "has_fingerprint"),
    [
        (SEEN, "running", True),
        (replace(SEEN, is_running=False), "planned", True),
        (NOTHING_MOVES, "none", False),
        (NOTHING_KNOWN, "unknown", False),
    ],
    ids=["it runs", "it does not run yet", "nothing moves", "no report says what moves"],
)
def test_what_must_still_hold_is_what_the_round_saw(
    observation: Observation, reassignments: str, *, has_fingerprint: bool
) -> None:
    found = action(observation=observation)
    assert found.precondition == {"reassignments": reassignments}
    copies = observation.copies
    assert found.fingerprint == (copies.fingerprint() if has_fingerprint and copies is not None else None)


def test_a_plan_is_called_a_plan_and_its_end_what_it_would_take() -> None:
    found = action(
        explanation=explained(plan=plan(), eta=eta()), observation=replace(UNPACED, is_running=False)
    )
    assert found.reason.startswith("What is planned to move is not paced yet, 1 partition: 24 B/s ")
    assert ", would take " in found.reason
    assert "done in" not in found.reason


def test_minimums_are_named_also_where_they_are_not_known() -> None:
    unsure = needs(min_bytes_per_s={L1: 20, L2: None, F3: 10})
    found = action(explanation=explained(needs=unsure))
    assert found.leader_min_bytes_per_s == {"1": 20, "2": None}
    assert found.follower_min_bytes_per_s == {"3": 10}
    bare = action()
    assert (bare.leader_min_bytes_per_s, bare.follower_min_bytes_per_s) == ({}, {})
    assert (bare.eta_s, bare.bottleneck) == (None, None)


STARTS = "What moves is not paced yet, 1 partition: "


@pytest.mark.parametrize(
    ("decision", "explanation", "observation", "reason"),
    [
        pytest.param(FIRST, explained(), UNPACED, f"{STARTS}24 B/s for 3 roles of 3 brokers.", id="one rate"),
        pytest.param(
            replace(FIRST, set_rates={L1: 7, BrokerRole("follower", 1): 9, F3: 8}),
            explained(),
            TWO_MOVE,
            "What moves is not paced yet, 2 partitions: 7 B/s to 9 B/s for 3 roles of 2 brokers.",
            id="several rates, and a broker with two roles",
        ),
        pytest.param(
            FIRST,
            explained(plan=plan(), eta=eta()),
            UNPACED,
            f"{STARTS}24 B/s for 3 roles of 3 brokers, done in 15.4 s, leader:1 last.",
            id="its end is known",
        ),
        pytest.param(
            FIRST,
            explained(plan=plan(bottleneck=None), eta=eta(0.0)),
            UNPACED,
            f"{STARTS}24 B/s for 3 roles of 3 brokers, done in 0.0 s.",
            id="nothing is left, and no role is the last",
        ),
        pytest.param(
            FIRST,
            explained(plan=plan(), eta=eta(None)),
            UNPACED,
            f"{STARTS}24 B/s for 3 roles of 3 brokers.",
            id="its end is not known",
        ),
        pytest.param(
            FIRST,
            explained(needs=needs(without_leader=("t-0",))),
            UNPACED,
            f"{STARTS}24 B/s for 3 roles of 3 brokers. t-0 takes no quota until it has a leader.",
            id="a partition without a leader",
        ),
        pytest.param(
            FIRST,
            explained(),
            SEEN,
            "What moves is paced already by a throttle that was set before, whose rates stay, 1 partition: "
            "24 B/s for 3 roles of 3 brokers.",
            id="the lists and rates of an operator are the same",
        ),
        pytest.param(
            FIRST,
            explained(),
            replace(SEEN, rates_there={L1: 30, L2: 24, F3: 24}),
            "What moves is paced already by a throttle that was set before, whose rates change, 1 partition: "
            "24 B/s for 3 roles of 3 brokers.",
            id="an operator has set other rates",
        ),
        pytest.param(
            FIRST,
            explained(),
            replace(SEEN, lists=ThrottledLists(leader={"t": "0:1"}, follower={"t": "0:3"})),
            f"{STARTS}24 B/s for 3 roles of 3 brokers.",
            id="the lists of an operator lack a source",
        ),
        pytest.param(
            FINISHED,
            explained(eta=eta()),
            NOTHING_MOVES,
            "Nothing is left to pace, so what trimtab added comes off.",
            id="it is over",
        ),
        pytest.param(
            replace(FINISHED, trigger="moves-left"),
            explained(needs=needs(without_leader=("t-0", "t-1"))),
            UNPACED,
            "Some copies are done or left. t-0, t-1 take no quota until they have a leader.",
            id="no rate changes",
        ),
        pytest.param(
            FIRST,
            explained(),
            NOTHING_KNOWN,
            "What moves is not paced yet, 0 partitions: 24 B/s for 3 roles of 3 brokers.",
            id="no report says what moves",
        ),
    ],
)
def test_the_sentence_has_cause_rates_and_end(
    decision: ThrottleDecision, explanation: PacingExplanation, observation: Observation, reason: str
) -> None:
    assert action(decision, explanation, observation).reason == reason


def test_every_trigger_has_a_sentence_of_its_own() -> None:
    found = {action(ThrottleDecision(trigger=each)).reason for each in get_args(Trigger)}
    assert len(found) == len(get_args(Trigger))
    assert all(each[0].isupper() and each.endswith(".") and "{" not in each for each in found)


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (0, None),
        (1, "t-0 takes no quota until it has a leader"),
        (5, "t-0, t-1, t-2, t-3, t-4 take no quota until they have a leader"),
        (7, "t-0, t-1, t-2, t-3, t-4 and 2 more take no quota until they have a leader"),
    ],
)
def test_the_first_five_partitions_without_a_leader_are_named(count: int, names: str | None) -> None:
    without = tuple(f"t-{at}" for at in range(count))
    assert list(left_out(explained(needs=needs(without_leader=without)))) == (
        [] if names is None else [names]
    )


def test_where_nobody_knows_what_is_needed_no_partition_lacks_a_leader() -> None:
    assert not list(left_out(explained()))


def test_partitions_that_fit_under_no_throttle_are_named_with_the_reason() -> None:
    one, two = (" ".join(left_out(replace(explained(), unfit=names))) for names in (("t-0",), ("t-0", "t-1")))
    assert one == (
        "t-0 needs more than a broker is declared to carry, so no throttle is set for it: none with which it ends would fit"
    )
    assert two.startswith("t-0, t-1 need more than")


@pytest.mark.parametrize(
    ("decision", "explanation", "evidence"),
    [
        pytest.param(FINISHED, explained(), {}, id="nothing is known"),
        pytest.param(FIRST, explained(), {"lowest_rate_bytes_per_s": 24}, id="rates alone"),
        pytest.param(
            replace(FIRST, set_rates={L1: 7, L2: 6, F3: 8}),
            explained(needs=needs(), eta=eta()),
            {
                "largest_min_bytes_per_s": 30,
                "bytes_left": 100,
                "lowest_rate_bytes_per_s": 6,
                "eta_basis": "predicted",
            },
            id="everything is known",
        ),
        pytest.param(
            FINISHED,
            explained(needs=needs(min_bytes_per_s=by_role({}, {3: 40, 4: None}))),
            {"largest_min_bytes_per_s": 40, "bytes_left": 100},
            id="the largest minimum is a follower's, and one is not known",
        ),
        pytest.param(
            FINISHED,
            explained(
                needs=needs(
                    min_bytes_per_s={L1: 0, F3: 0},
                    bytes_left={F3: 0},
                )
            ),
            {"largest_min_bytes_per_s": 0, "bytes_left": 0},
            id="nothing is written and nothing is left",
        ),
        pytest.param(
            FINISHED,
            explained(
                needs=needs(
                    min_bytes_per_s={L1: None, F3: None},
                    bytes_left=by_role({}, {3: 100, 4: None}),
                )
            ),
            {},
            id="no minimum and not all bytes are known",
        ),
    ],
)
def test_the_evidence_has_the_numbers_that_are_known(
    decision: ThrottleDecision, explanation: PacingExplanation, evidence: dict[str, Any]
) -> None:
    counts = {"partitions_moving_count": 1, "brokers_reporting_count": 3}
    assert action(decision, explanation).evidence == counts | evidence


def test_the_evidence_counts_what_moves_and_who_reported() -> None:
    seen = replace(TWO_MOVE, brokers=frozenset({1}))
    assert action(observation=seen).evidence["partitions_moving_count"] == 2
    assert action(observation=seen).evidence["brokers_reporting_count"] == 1
    assert action(observation=NOTHING_KNOWN).evidence["partitions_moving_count"] == 0


@pytest.mark.parametrize(
    ("explanation", "expected"),
    [
        pytest.param(
            explained(needs=needs(), plan=plan()),
            {
                "leader:1": {"bytes_left": 60.0, "duration_s": 15.0},
                "leader:2": {"bytes_left": 40.0, "duration_s": 2.5},
                "follower:3": {"bytes_left": 100.0, "duration_s": 7.0},
            },
            id="everything is known",
        ),
        pytest.param(
            explained(
                needs=needs(bytes_left=by_role({1: 60, 2: None}, {3: 100})),
                plan=plan(durations_s={L1: None, L2: 2.5, F3: 0.0, BrokerRole("follower", 4): 1.0}),
            ),
            {"follower:3": {"bytes_left": 100.0, "duration_s": 0.0}},
            id="1 has no duration, 2 no bytes, 4 neither of its needs",
        ),
        pytest.param(explained(needs=needs()), {}, id="no rates"),
        pytest.param(explained(plan=plan()), {}, id="no needs"),
    ],
)
def test_what_is_expected_of_a_role_is_said_where_bytes_and_duration_are_known(
    explanation: PacingExplanation, expected: dict[str, dict[str, float]]
) -> None:
    assert action(explanation=explanation).expected == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 0),
        ({1: 5, 2: 7}, 12),
        ({1: 0, 2: 7}, 7),
        ({1: None, 2: 7}, None),
        ({1: LARGEST_NUMBER, 2: 0}, LARGEST_NUMBER),
        ({1: LARGEST_NUMBER, 2: 1}, LARGEST_NUMBER),
    ],
    ids=str,
)
def test_a_sum_is_unknown_with_one_of_its_parts_and_never_above_the_largest_number(
    values: dict[int, int | None], expected: int | None
) -> None:
    assert needs(bytes_left=by_role({9: None}, values)).total_bytes_left == expected


def test_the_role_that_finishes_last_is_named_where_it_is_known() -> None:
    assert bottleneck(explained(plan=plan(bottleneck=F3))) == "follower:3"
    assert bottleneck(explained(plan=plan(bottleneck=None))) is None
    assert bottleneck(explained()) is None
