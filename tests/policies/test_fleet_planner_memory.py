"""What the fleet planner has learned is stored, and its settings are checked."""

import msgspec
import pytest

from policies.shedding.fleet_planner import POLICY, FleetPlannerSettings
from policies.shedding.fleet_planner.levels import FleetPlannerMemory
from tests.policies.fleets import (
    decide,
)
from tests.policies.planned_clusters import BUNDLES, one_hot


def test_what_it_learned_survives_being_stored() -> None:
    cluster = one_hot(45.0)
    for _ in range(5):
        cluster.round()
    memory = cluster.memory
    assert set(memory.learned) == set(BUNDLES)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode([memory.learned, memory.fleet]))
    again = FleetPlannerMemory(learned=stored[0], fleet=stored[1])
    view = cluster.view()
    assert (
        decide(POLICY, view, again, cluster.settings)[1] == decide(POLICY, view, memory, cluster.settings)[1]
    )


def test_a_memory_of_another_layout_begins_anew_instead_of_misleading() -> None:
    cluster = one_hot()
    cluster.memory = FleetPlannerMemory(learned={"b1": b"\x01\x02"}, fleet=[3.0])
    assert cluster.round() or cluster.round()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acceptable_spread_points", -1.0),
        ("noise_multiple", -0.1),
        ("min_gain_points", -1.0),
        ("max_moved_ratio", 1.5),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        FleetPlannerSettings(**{name: value})
