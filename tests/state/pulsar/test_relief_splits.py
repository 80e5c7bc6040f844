"""Splits for a broker's sake, from reports to actions: only where parts could leave, and once it is no burst."""

from collections.abc import Sequence
from typing import Any

import pytest

from state.facts import Isolation
from tests.state.traces import BUNDLES, facts, load, run, settings_of

HOT, SMALL, OTHER = BUNDLES[0], BUNDLES[4], BUNDLES[5]
"""HOT is of t/a, the others of t/b."""
SPLIT = {
    "enabled": True,
    "hit_count": 0,
    "max_messages_per_s": 1e9,
    "max_bytes_per_s": 1e9,
    "max_topics_count": 0,
    "without_topic_stats": "range",
}
FLEET = {"rounds": {"warmup_rounds": 0}, "guards": {"keep_sole_bundle": False}}
OVERLOAD = {"shedding_policy": "overload-shedder", "overload_shedder": {"threshold_points": 70}}
PLANNER = {"shedding_policy": "fleet-planner"}


def acted(
    rounds: Sequence[float], *, isolation: Sequence[Isolation] = (), **pulsar: Any
) -> list[list[tuple[str, str]]]:
    """What happens in each round to which bundle; HOT has so many messages/s, and a message takes a point of b1."""
    events = [facts(1, isolation=list(isolation))] if isolation else []
    for number, rate in enumerate(rounds):
        at = 10 * number + 5
        bundles = {HOT: rate, SMALL: 5.0}
        events += [
            load("b1", at, cpu=5.0 + rate, bundles=bundles, topics_count=4),
            load("b2", at, cpu=10.0, bundles={OTHER: 10.0}, topics_count=4),
            load("b3", at, cpu=10.0),
        ]
    events.append(load("b3", 10 * len(rounds) + 6, cpu=10.0))
    found = run([events], settings_of(**FLEET | pulsar))
    return [
        [
            ("split" if "boundaries" in each else "unload", each["bundle"])
            for each in found.actions
            if each["round"] == number
        ]
        for number in range(len(rounds))
    ]


@pytest.mark.parametrize("policy", [OVERLOAD, PLANNER], ids=["overload-shedder", "fleet-planner"])
@pytest.mark.parametrize(
    ("isolation", "found"),
    [
        ([], [("split", HOT)]),
        ([Isolation("p", ["t/a"], ["b3"])], []),
    ],
    ids=["it may leave", "its group is another than its broker's"],
)
def test_a_bundle_of_another_group_is_not_cut_for_the_sake_of_a_broker_that_it_may_not_leave(
    policy: dict[str, Any], isolation: list[Isolation], found: list[tuple[str, str]]
) -> None:
    rounds = acted([80.0] * 3, isolation=isolation, split=SPLIT, **policy)
    assert [each for actions in rounds for each in actions if each[1] == HOT] == found


@pytest.mark.parametrize("policy", [OVERLOAD, PLANNER], ids=["overload-shedder", "fleet-planner"])
@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        ([80.0] * 4, [[], [], [("split", HOT)], []]),
        ([80.0, 80.0, 5.0, 80.0], [[]] * 4),
    ],
    ids=["it goes on", "a burst, and another"],
)
def test_a_bundle_that_overloads_its_broker_is_neither_cut_nor_moved_before_it_has_done_so_for_long(
    policy: dict[str, Any], rounds: list[float], found: list[list[tuple[str, str]]]
) -> None:
    actions = acted(rounds, split=SPLIT | {"hit_count": 2}, bundle_average_samples=1, **policy)
    assert [[each for each in done if each[1] == HOT] for done in actions] == found
