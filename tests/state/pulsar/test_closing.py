"""What a round of a Pulsar cluster decided, in order."""

from state.pulsar.approvals import Answers
from state.pulsar.drains import Drained
from state.pulsar.shedding import Admitted
from state.pulsar.summary import Decided
from tests.state.building import unload

APPROVED, DRAINED, SHED = (unload(bundle=f"t/{name}/0x0_0x1") for name in ("z", "y", "x"))


def test_unloads_that_people_approved_go_before_drains_and_those_of_the_policy_come_last() -> None:
    found = Decided(
        "decided",
        "why",
        admitted=Admitted(unloads=[SHED], proposals=[unload()]),
        drained=Drained(unloads=[DRAINED]),
        answers=Answers(unloads=[APPROVED]),
    )
    assert found.unloads == [APPROVED, DRAINED, SHED]


def test_a_round_whose_policies_did_not_run_decided_nothing() -> None:
    assert Decided("no-quorum", "1 of 3 live brokers reported").unloads == []
