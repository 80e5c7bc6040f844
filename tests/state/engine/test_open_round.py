"""What an open round keeps of ticks, facts and results: of ticks and of facts the newest, whatever comes first."""

import pytest

from state.events import ActionResult, ClusterFacts, Tick
from state.facts import FactsRecord
from state.memory import OpenRound, ResultRecord, TickRecord
from state.rounds import result_of, take_facts, take_tick
from tests.state.traces import facts

KNOWN = (60_000, "m")
"""Time and id of what is known already."""
CASES = pytest.mark.parametrize(
    ("time_ms", "id_", "is_kept"),
    [
        (60_001, "a", True),
        (59_999, "z", False),
        (60_000, "n", True),
        (60_000, "l", False),
        (60_000, "m", False),
    ],
    ids=["newer", "older", "a greater id", "a lesser id", "a repeat"],
)


def tick(time_ms: int, id_: str) -> Tick:
    return Tick(
        id=id_,
        time_ms=time_ms,
        asked=("b1", id_),
        failed=(("b1", "no answer"),),
        unowned=(("t/n/0x0_0x1", 5),),
        unowned_count=7,
    )


def known_facts(time_ms: int, id_: str) -> ClusterFacts:
    return facts(time_ms / 1000, shedding=[id_], id_=id_)


@CASES
def test_the_newest_tick_is_kept(time_ms: int, id_: str, *, is_kept: bool) -> None:
    found = OpenRound()
    assert take_tick(tick(*KNOWN), found)
    assert take_tick(tick(time_ms, id_), found) is is_kept
    kept = (time_ms, id_) if is_kept else KNOWN
    assert found.tick == TickRecord(*kept, ("b1", kept[1]), (("b1", "no answer"),), (("t/n/0x0_0x1", 5),), 7)
    assert found.facts is None


@CASES
def test_the_newest_facts_are_kept(time_ms: int, id_: str, *, is_kept: bool) -> None:
    found = OpenRound()
    assert take_facts(known_facts(*KNOWN), found)
    assert take_facts(known_facts(time_ms, id_), found) is is_kept
    kept = (time_ms, id_) if is_kept else KNOWN
    assert found.facts == FactsRecord(*kept, known_facts(*kept).facts)
    assert found.tick is None


@pytest.mark.parametrize("is_held", [True, False])
def test_a_result_is_kept_with_what_became_of_its_action(*, is_held: bool) -> None:
    event = ActionResult(id="r", time_ms=5, action_id="a", outcome="skipped", is_held=is_held)
    assert result_of(event) == ResultRecord(5, "r", "a", "skipped", is_held)
