"""From a plan to actions: which unloads happen, together with which, which wait for a person, and what each of them says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from policies.shedding import avg_shedder
from policies.shedding.contract import SheddingPlan
from policies.shedding.registry import POLICIES, AnyPolicy
from policies.shedding.rules import Rules
from policies.shedding.view import NOBODY, Traffic
from state.closing import Hold
from state.facts import Isolation
from state.guard_settings import ApprovalSettings, StandingApproval
from state.memory import ProposalRecord
from state.outputs import Unload, rfc3339
from state.pulsar.admission import PROPOSED, After
from state.pulsar.shedding import Admitted, admit
from state.settings import ClusterSettings, PulsarSettings
from tests.policies.fleets import evidence_names
from tests.state.building import (
    EXPIRES_AT,
    EXPIRES_MS,
    PROPOSALS_EXPIRE_MS,
    Seen,
    Wanted,
    admission,
    plan,
    seen,
    spent,
    told_to_leave,
)
from tests.state.traces import load

A, B, C, D, E = (f"t/{name}/0x0_0x1" for name in "abcde")
"""Bundle rows 0 to 4, of namespaces of their own."""


def cluster(*isolation: Isolation) -> Seen:
    """b1 is at 75 points with A of 60, B of 30 and C of 10 messages/s, b2 at 25 with D of 20 and E of 5, b3 idles at 50."""
    return seen(
        load("b1", 470, cpu=75.0, bundles={A: 60.0, B: 30.0, C: 10.0}),
        load("b2", 470, cpu=25.0, bundles={D: 20.0, E: 5.0}),
        load("b3", 470, cpu=50.0),
        isolation=isolation,
    )


def asking(**rules: StandingApproval) -> dict[str, Any]:
    """A round whose actions have to be approved, but for those that a standing approval covers."""
    pulsar = PulsarSettings(approval=ApprovalSettings(standing=rules))
    return {"settings": ClusterSettings(pulsar=pulsar), "proposals_expire_ms": PROPOSALS_EXPIRE_MS}


@dataclass(kw_only=True)
class Round:
    """What a round admits, and what it leaves of the rules and the loads."""

    rules: Rules
    after: After
    admitted: Admitted

    @property
    def moves(self) -> list[tuple[str, str | None]]:
        return [(each.bundle, each.destination_broker) for each in self.admitted.unloads]

    @property
    def proposed(self) -> list[str]:
        return [each.bundle for each in self.admitted.proposals]

    @property
    def holds(self) -> dict[int, tuple[str, str]]:
        return {row: (each.reason, each.detail) for row, each in self.admitted.holds.items()}


def admitted(
    wanted: SheddingPlan,
    *,
    together: tuple[str, ...] = (),
    split_rows: Collection[int] = (),
    before_moves: Mapping[int, Hold] = {},
    done_rows: Collection[int] = (),
    isolation: Collection[Isolation] = (),
    **options: Any,
) -> Round:
    """A round that decides on a plan; ``together`` are namespaces of one anti-affinity group, other options those of ``admission``."""
    limits: dict[str, Any] = {"keep_sole_bundle": False, "fields": {"expires_ms": EXPIRES_MS}} | options
    made = admission(cluster(*isolation), groups={"spread": list(together)}, **limits)
    decided = admit(made, wanted, split_rows=split_rows, before_moves=before_moves, done_rows=done_rows)
    return Round(rules=made.rules, after=made.after, admitted=decided)


def left_at(found: Round, broker: str) -> dict[str, float]:
    """The load of a broker after the round's actions."""
    return found.after.move(broker, None, Traffic(0.0, 0.0))["source"]


def test_the_budget_is_spent_in_the_order_of_the_policy() -> None:
    found = admitted(plan((1, 1), (0, 2), (2, 1), (3, 0)), max_unloads_per_round_count=2)
    assert found.moves == [(B, "b2"), (A, "b3")]
    held = ("budget", "max_unloads_per_round_count 2 is spent")
    assert found.holds == {2: held, 3: held}
    assert spent(found.rules)["unloads_per_round"] == 2


def test_what_a_hold_keeps_leaves_the_budget_to_the_next() -> None:
    found = admitted(plan((0, 1), (1, 1)), split_rows=(0,), max_unloads_per_round_count=1)
    assert found.moves == [(B, "b2")]
    assert found.holds.keys() == {0}


def test_a_broker_gives_nothing_while_the_split_of_a_heavy_bundle_comes_first() -> None:
    """A and B are at b1, D is at b2."""
    first = {0: Hold("split-first", "why")}
    found = admitted(plan((0, 1), (3, 2), (1, 2)), before_moves=first, max_unloads_per_round_count=1)
    assert found.moves == [(D, "b3")]
    assert found.holds == {0: ("split-first", "why"), 1: ("split-first", "why")}


def test_a_bundle_whose_approved_unload_goes_out_is_neither_unloaded_again_nor_held() -> None:
    found = admitted(plan((0, 1), (1, 1)), done_rows={0}, max_unloads_per_round_count=1)
    assert (found.moves, found.holds) == ([(B, "b2")], {})


def test_a_plan_without_unloads_admits_nothing() -> None:
    assert admitted(plan()).admitted == Admitted()


NUMBERS: dict[str, Any] = dict.fromkeys(evidence_names(avg_shedder.POLICY), 1.0)


def test_an_unload_says_what_it_was_decided_on_and_what_must_still_hold() -> None:
    """The brokers are at 75, 25 and 50 points, so 50 on the mean."""
    (found,) = admitted(
        plan((0, 1), unload_evidence={"destination_usage_points": np.array([25.0])})
    ).admitted.unloads
    assert found == Unload(
        cluster="east-1",
        round=7,
        policy="avg-shedder",
        trigger="high-threshold",
        reason="b1 is at 1.0 % and b2 at 1.0 %, 1.0 points apart with 1 allowed, found in 1 round, 1 is enough: moving "
        f"{A} (60 messages/s, 600 bytes/s) to b2, the least used at 25.0 %",
        evidence=NUMBERS
        | {
            "destination_usage_points": 25.0,
            "bundle_messages_per_s": 60.0,
            "bundle_bytes_per_s": 600.0,
            "brokers_count": 3,
            "mean_usage_points": 50.0,
        },
        expected={
            "source": {"messages_per_s": 40.0, "bytes_per_s": 400.0},
            "destination": {"messages_per_s": 85.0, "bytes_per_s": 850.0},
        },
        precondition={"owner": "b1", "range": "0x0_0x1"},
        expires_at=EXPIRES_AT,
        dry_run=False,
        bundle=A,
        source_broker="b1",
        destination_broker="b2",
    )


def test_each_unload_has_the_trigger_and_the_numbers_of_its_own_finding() -> None:
    """The second one comes from the pair b1 and b3, and its column of evidence has its own number."""
    points = {"destination_usage_points": np.array([25.0, 50.0])}
    _, found = admitted(plan((0, 1), (1, 2), unload_evidence=points)).admitted.unloads
    assert found.trigger == "low-threshold"
    assert found.reason.startswith("b1 is at 2.0 % and b3 at 2.0 %")
    assert found.evidence["difference_points"] == 2.0
    assert found.evidence["destination_usage_points"] == 50.0


def test_where_pulsar_chooses_the_destination_none_is_named_and_only_the_source_changes() -> None:
    (found,) = admitted(plan((0, NOBODY))).admitted.unloads
    assert found.destination_broker is None
    assert found.expected == {"source": {"messages_per_s": 40.0, "bytes_per_s": 400.0}}


def test_a_finding_about_one_broker_alone_is_about_the_owner_of_what_moves() -> None:
    """The finding names neither broker, as that of a policy that looks at the whole fleet."""
    wanted = plan((3, 0))
    nobody = np.array([NOBODY, NOBODY])
    (found,) = admitted(
        replace(wanted, examined=replace(wanted.examined, high=nobody, low=nobody))
    ).admitted.unloads
    assert found.reason.startswith("b2 is at 1.0 % and None at 1.0 %")
    assert " in return " not in found.reason


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_unload_of_a_dry_run_is_marked_as_one(*, dry_run: bool) -> None:
    (found,) = admitted(plan((0, 1)), fields={"mode": "dry-run" if dry_run else "act"}).admitted.unloads
    assert (found.dry_run, found.proposal is True) == (dry_run, False)


def test_each_unload_expects_the_loads_that_those_before_it_leave() -> None:
    """b1 has 100 messages/s, b2 25: A leaves 40 and 85, then B 10 and 115, and D brings b1 to 30 and b2 to 95."""
    found = admitted(plan((0, 1), (1, 1), (3, 0)))
    rates = [
        [each.expected[side]["messages_per_s"] for side in ("source", "destination")]
        for each in found.admitted.unloads
    ]
    assert rates == [[40.0, 85.0], [10.0, 115.0], [95.0, 30.0]]
    assert left_at(found, "b1") == {"messages_per_s": 30.0, "bytes_per_s": 300.0}


BLUE = Isolation("blue", ["t/a", "t/d"], ["b[12]"])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [((0, 1), (2, 50.0, "blue")), ((3, 0), (2, 50.0, "blue"))],
    ids=["from b1", "from b2"],
)
def test_a_broker_is_compared_with_those_of_its_isolation_group(
    wanted: Wanted, expected: tuple[int, float, str]
) -> None:
    """b1 and b2 are at 75 and 25 points."""
    (found,) = admitted(plan(wanted), isolation=[BLUE]).admitted.unloads
    names = ("brokers_count", "mean_usage_points", "group")
    assert tuple(found.evidence[name] for name in names) == expected


def test_each_group_has_its_own_mean_and_the_default_group_no_name() -> None:
    """b1 is alone in its group; b2 and b3 are at 25 and 50 points."""
    alone = Isolation("blue", ["t/a"], ["b1"])
    found = admitted(plan((0, NOBODY), (3, 2), (1, NOBODY)), isolation=[alone]).admitted.unloads
    assert [
        (each.evidence["brokers_count"], each.evidence["mean_usage_points"], each.evidence.get("group"))
        for each in found
    ] == [(1, 75.0, "blue"), (2, 37.5, None), (1, 75.0, "blue")]


@pytest.mark.parametrize(
    ("first", "moves"),
    [((0, 2), [(A, "b3")]), ((0, NOBODY), [(A, None), (D, "b3")])],
    ids=["to the same broker", "to one that Pulsar chooses"],
)
def test_an_unload_counts_in_its_anti_affinity_group_for_those_after_it(
    first: Wanted, moves: list[tuple[str, str | None]]
) -> None:
    """D goes to b3 only if nothing of its group went there before it."""
    found = admitted(plan(first, (3, 2)), together=("t/a", "t/d"))
    assert found.moves == moves


SWAP = ((0, 1, 0), (3, 0, 0))
"""A goes from b1 to b2, and D comes back for it."""


def test_a_swap_happens_as_a_whole_and_spends_for_each_of_its_unloads() -> None:
    found = admitted(plan(*SWAP, (1, 1)), max_unloads_per_round_count=3)
    assert found.moves == [(A, "b2"), (D, "b1"), (B, "b2")]
    assert (spent(found.rules)["unloads_per_round"], found.holds) == (3, {})
    assert f"moving {D} from b2 in return (" in found.admitted.unloads[1].reason


@pytest.mark.parametrize(
    ("options", "held", "reason", "detail"),
    [
        (
            {"split_rows": (3,)},
            D,
            "split-instead",
            "it is too big for any other broker, and is split",
        ),
        (
            {"split_rows": (0,)},
            A,
            "split-instead",
            "it is too big for any other broker, and is split",
        ),
        ({"max_unloads_per_round_count": 1}, D, "budget", "max_unloads_per_round_count 1 is spent"),
        (
            {"hour_count": 59, "max_moved_per_hour_ratio": 0.0},
            D,
            "budget",
            "max_unloads_per_hour_count 60 is spent",
        ),
    ],
    ids=["the second is split", "the first is split", "one is left of the round", "one is left of the hour"],
)
def test_if_one_unload_of_a_swap_is_held_so_is_the_other_and_names_it(
    options: dict[str, Any], held: str, reason: str, detail: str
) -> None:
    """What a held swap would have spent is left for B."""
    found = admitted(plan(*SWAP, (1, 1)), **options)
    swapped = f"swapped with {held}: {detail}"
    assert found.holds == {
        0: (reason, detail if held == A else swapped),
        3: (reason, detail if held == D else swapped),
    }
    assert found.moves == [(B, "b2")]
    assert spent(found.rules)["unloads_per_round"] == 1
    assert found.admitted.unloads[0].expected["source"]["messages_per_s"] == 70.0, (
        "A and D count where they are"
    )


def test_a_swap_that_would_gather_an_anti_affinity_group_by_both_of_its_unloads_is_held() -> None:
    """A alone may go to b3, and so may D: only together they would gather. D alone goes after that."""
    found = admitted(plan((0, 2, 0), (3, 2, 0), (3, 2)), together=("t/a", "t/d"))
    why = "b3 owns bundles of 1 other namespaces of anti-affinity group spread, b2 of 0"
    assert found.holds[0] == ("anti-affinity", f"swapped with {D}: {why}")
    assert found.moves == [(D, "b3")]


def test_of_a_swap_whose_other_part_goes_out_as_approved_the_rest_is_decided_alone() -> None:
    found = admitted(plan(*SWAP), done_rows={3}, max_unloads_per_round_count=1)
    assert (found.moves, found.holds) == ([(A, "b2")], {})


ASKING = asking()
LIGHT = asking(light=StandingApproval(kinds=("unloads",), max_messages_per_s=30.0))
"""Unloads of bundles of up to 30 messages/s go out at once."""
SMALL = asking(small=StandingApproval(max_bytes_per_s=300.0))
"""Bundles of up to 300 bytes/s do."""


def test_while_approval_is_required_unloads_are_proposed_and_spend_nothing() -> None:
    found = admitted(plan((0, 1), (1, 1)), fields=ASKING)
    assert (found.proposed, found.moves) == ([A, B], [])
    assert found.admitted.holds == {0: PROPOSED, 1: PROPOSED}
    assert set(spent(found.rules).values()) == {0}
    assert told_to_leave(found.rules) == []
    assert left_at(found, "b2")["messages_per_s"] == 25.0
    (first, second) = found.admitted.proposals
    assert (first.dry_run, first.proposal, first.expires_at) == (True, True, rfc3339(PROPOSALS_EXPIRE_MS))
    assert second.expected["destination"]["messages_per_s"] == 115.0, "both are one plan"


def test_proposals_of_a_round_are_no_more_than_the_budget_lets_through() -> None:
    found = admitted(plan((0, 1), (1, 1), (2, 1)), fields=ASKING, max_unloads_per_round_count=2)
    assert found.proposed == [A, B]
    assert found.holds[2] == ("budget", "max_unloads_per_round_count 2 is spent")
    assert admitted(plan((0, 1)), fields=ASKING, hour_count=60).proposed == []


@pytest.mark.parametrize("fields", [LIGHT, SMALL], ids=["by messages", "by bytes"])
def test_what_a_standing_approval_covers_goes_out_beside_proposals_that_take_nothing_from_it(
    fields: dict[str, Any],
) -> None:
    """The budget lets one through: A is the only proposal, B the only action. It expects A to stay at b1."""
    found = admitted(plan((0, 1), (1, 1), (2, 1)), fields=fields, max_unloads_per_round_count=1)
    assert (found.proposed, found.moves) == ([A], [(B, "b2")])
    assert found.admitted.holds[0] == PROPOSED
    assert found.holds[2] == ("budget", "max_unloads_per_round_count 1 is spent")
    (action,) = found.admitted.unloads
    assert action.expected["source"] == {"messages_per_s": 70.0, "bytes_per_s": 700.0}
    assert (action.dry_run, action.proposal is True) == (False, False)


@pytest.mark.parametrize(
    ("wanted", "proposed", "moves"),
    [
        (SWAP, [A, D], []),
        (((3, 0, 3), (0, 1, 3)), [D, A], []),
        (((1, 1, 1), (3, 0, 1)), [], [(B, "b2"), (D, "b1")]),
    ],
    ids=["the first needs approval", "the second does", "neither does"],
)
def test_a_swap_waits_for_a_person_if_one_of_its_unloads_does(
    wanted: tuple[tuple[int, int, int], ...], proposed: list[str], moves: list[tuple[str, str | None]]
) -> None:
    found = admitted(plan(*wanted), fields=LIGHT)
    assert (found.proposed, found.moves) == (proposed, moves)


def test_a_proposal_does_not_count_in_its_anti_affinity_group_and_an_action_does() -> None:
    """A is proposed for b3; so D, which goes out at once, finds nothing of the group there."""
    found = admitted(plan((0, 2), (3, 2)), fields=LIGHT, together=("t/a", "t/d"))
    assert (found.proposed, found.moves) == ([A], [(D, "b3")])
    barred = found.rules.bars(1, 2)
    assert barred is None


def test_nothing_is_proposed_for_a_broker_that_waits_and_the_others_go_on() -> None:
    waiting = ProposalRecord("p", "unload", D, "b1", None, 6, PROPOSALS_EXPIRE_MS, b"{}")
    rows = plan((0, NOBODY), (1, NOBODY), (2, NOBODY))
    found = admitted(rows, fields=LIGHT, header={"proposals": [waiting]})
    assert found.holds == {0: ("proposed", "proposal p of b1 waits for approval")}
    assert (found.proposed, found.moves) == ([], [(B, None), (C, None)])


@pytest.mark.parametrize(
    ("policy", "trigger"),
    [(policy, trigger) for policy in POLICIES for trigger in policy.sentences],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_rule_that_can_fire_has_a_sentence_of_numbers_that_the_policy_gives(
    policy: AnyPolicy, trigger: str
) -> None:
    assert policy.sentences[trigger]("b1", "b2", dict.fromkeys(evidence_names(policy), 1.0)).startswith("b1 ")
