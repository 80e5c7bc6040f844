"""Unloads that happen together or not at all, and unloads that wait for a person: what is held or proposed spends nothing."""

from typing import Any

import pytest

from policies.shedding.view import NOBODY
from state.guard_settings import StandingApproval
from state.outputs import rfc3339
from state.pulsar.holds import PROPOSED
from tests.state.building import PROPOSALS_EXPIRE_MS, circumstances, required, spent, told_to_leave
from tests.state.pulsar.test_actions import A, B, C, D, admitted, plan

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
            "it is too big for any other broker and is split in this round",
        ),
        (
            {"split_rows": (0,)},
            A,
            "split-instead",
            "it is too big for any other broker and is split in this round",
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


ASKING = circumstances(asking=required())
LIGHT = circumstances(
    asking=required(rules={"light": StandingApproval(kinds=("unloads",), max_messages_per_s=30.0)})
)
"""Unloads of bundles of up to 30 messages/s go out at once."""
SMALL = circumstances(asking=required(rules={"small": StandingApproval(max_bytes_per_s=300.0)}))
"""Bundles of up to 300 bytes/s do."""


def test_while_approval_is_required_unloads_are_proposed_and_spend_nothing() -> None:
    found = admitted(plan((0, 1), (1, 1)), shared=ASKING)
    assert (found.proposed, found.moves) == ([A, B], [])
    assert found.admitted.holds == {0: PROPOSED, 1: PROPOSED}
    assert set(spent(found.rules).values()) == {0}
    assert told_to_leave(found.rules) == []
    assert found.after.receive(1, 0.0, 0.0)["messages_per_s"] == 25.0
    (first, second) = found.admitted.proposals
    assert (first.dry_run, first.proposal, first.expires_at) == (True, True, rfc3339(PROPOSALS_EXPIRE_MS))
    assert second.expected["destination"]["messages_per_s"] == 115.0, "both are one plan"


def test_proposals_of_a_round_are_no_more_than_the_budget_lets_through() -> None:
    found = admitted(plan((0, 1), (1, 1), (2, 1)), shared=ASKING, max_unloads_per_round_count=2)
    assert found.proposed == [A, B]
    assert found.holds[2] == ("budget", "max_unloads_per_round_count 2 is spent")
    assert admitted(plan((0, 1)), shared=ASKING, hour_count=60).proposed == []


@pytest.mark.parametrize("shared", [LIGHT, SMALL], ids=["by messages", "by bytes"])
def test_what_a_standing_approval_covers_goes_out_beside_proposals_that_take_nothing_from_it(
    shared: Any,
) -> None:
    """The budget lets one through: A is the only proposal, B the only action. It expects A to stay at b1."""
    found = admitted(plan((0, 1), (1, 1), (2, 1)), shared=shared, max_unloads_per_round_count=1)
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
    found = admitted(plan(*wanted), shared=LIGHT)
    assert (found.proposed, found.moves) == (proposed, moves)


def test_a_proposal_does_not_count_in_its_anti_affinity_group_and_an_action_does() -> None:
    """A is proposed for b3; so D, which goes out at once, finds nothing of the group there."""
    found = admitted(plan((0, 2), (3, 2)), shared=LIGHT, together=("t/a", "t/d"))
    assert (found.proposed, found.moves) == ([A], [(D, "b3")])
    barred = found.rules.bars(1, 2)
    assert barred is None


def test_nothing_is_proposed_for_a_broker_that_waits_and_the_others_go_on() -> None:
    waiting = circumstances(
        asking=required(rules={"light": StandingApproval(max_messages_per_s=30.0)}, waiting={"b1": "p"})
    )
    found = admitted(plan((0, NOBODY), (1, NOBODY), (2, NOBODY)), shared=waiting)
    assert found.holds == {0: ("proposed", "proposal p of b1 waits for approval")}
    assert (found.proposed, found.moves) == ([], [(B, None), (C, None)])
