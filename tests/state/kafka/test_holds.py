"""Why a wanted throttle decision does not become an action, and how large an action may be."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from policies.throttle.pacing_round import PacingMemory, ThrottleDecision
from policies.throttle.rates import ThrottleSettings
from state.closing import Hold
from state.kafka.decide import hold_decision, hold_too_large
from state.kafka.summary import RoundContext
from state.memory import Header
from state.outputs import canonical
from state.settings import ClusterSettings, KafkaSettings
from tests.state.building import END_MS, closing, control, published, unload
from tests.state.kafka.reporting import FINISHED, FIRST, IN_FORCE, OURS, memory_of, seen_of

SWITCHED_OFF = ClusterSettings(kafka=KafkaSettings(throttle=ThrottleSettings(enabled=False)))
CAUSES: dict[str, dict[str, Any]] = {
    "paused": {"record": control()},
    "failing": {"error_held_since_ms": 1},
    "off": {"settings": SWITCHED_OFF},
    "retrying": {"retry_ms": END_MS + 1},
}
"""Each hold's cause, in the order in which they are asked."""


def hold(*causes: str, decision: ThrottleDecision = FIRST, **more: Any) -> Hold | None:
    fields: dict[str, Any] = dict(more)
    for each in causes:
        fields |= CAUSES[each]
    header = Header(
        length_ms=60_000, system="kafka", error_held_since_ms=fields.pop("error_held_since_ms", None)
    )
    memory = memory_of(failures_count=2, retry_ms=fields.pop("retry_ms", 0))
    context = RoundContext(
        closing=closing(**fields), header=header, memory=memory, reports={}, observation=seen_of()
    )
    return hold_decision(decision, context)


@pytest.mark.parametrize("place", range(len(CAUSES)), ids=list(CAUSES))
def test_of_all_holds_that_apply_the_first_one_is_the_reason(place: int) -> None:
    names = list(CAUSES)
    found = hold(*names[place:])
    assert found is not None
    assert found.reason == names[place]


@pytest.mark.parametrize("decision", [FIRST, FINISHED], ids=["begins", "ends"])
def test_a_decision_that_nothing_holds_becomes_an_action(decision: ThrottleDecision) -> None:
    assert hold(decision=decision) is None


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("paused", "paused"), ("failing", "failing"), ("off", None), ("retrying", "retrying")],
)
def test_a_throttle_comes_off_even_where_throttling_is_switched_off_but_other_holds_keep_it(
    cause: str, reason: str | None
) -> None:
    found = hold(cause, decision=FINISHED)
    assert (found and found.reason) == reason


@pytest.mark.parametrize(
    ("retry_ms", "waits"), [(END_MS, None), (END_MS + 1, "0.001"), (END_MS + 90_000, "90")]
)
def test_after_failures_the_next_decision_is_made_at_its_time_and_not_before(
    retry_ms: int, waits: str | None
) -> None:
    found = hold(retry_ms=retry_ms)
    assert (found and found.detail) == (
        waits and f"2 decisions in a row were not carried out, the next is made in {waits} s"
    )


ACTION = published(unload())
LISTS_BYTES = len(canonical(OURS))
NOT_IN_FORCE = replace(IN_FORCE, begun_ms=None)


@pytest.mark.parametrize(
    ("data_bytes", "after", "needed"),
    [
        pytest.param(1000, NOT_IN_FORCE, 1000, id="nothing is throttled after it: its own size counts"),
        pytest.param(1000, IN_FORCE, LISTS_BYTES + 100_000, id="the action that ends the throttle is larger"),
        pytest.param(200_000, IN_FORCE, 200_000, id="it is larger than the one that ends the throttle"),
    ],
)
def test_an_action_is_held_if_it_or_the_one_that_ends_the_throttle_would_not_be_published(
    data_bytes: int, after: PacingMemory, needed: int
) -> None:
    action = msgspec.structs.replace(ACTION, data=b"x" * data_bytes)
    assert hold_too_large(action, after, needed) is None
    assert hold_too_large(action, after, needed - 1) == Hold(
        "too-large",
        f"the action takes {needed} bytes and at most {needed - 1} are published: move fewer partitions at a time "
        "(`trimtab throttle plan --batches`), or throttle whole topics with `*` by hand",
    )
