"""Placement: where a bundle goes if its policy names no destination, and when it should stay."""

from collections.abc import Iterable

import pytest

from policies.placement import (
    LEAST_MESSAGE_RATE,
    LEAST_RESOURCE_USAGE,
    LEFT_TO_PULSAR,
    PLACEMENTS,
    Placement,
    find_placement,
)
from policies.shedding import avg_shedder, overload_shedder
from policies.shedding.contract import NoMemory, SheddingPlan
from policies.shedding.view import RoundView
from tests.policies.fleets import (
    Broker,
    Bundle,
    Fleet,
    at,
    by_rate,
    by_volume,
    decide,
    partly_known,
    snapshot_of,
    tried_of,
    unloads_of,
)

BY_RATE = LEAST_MESSAGE_RATE
BY_USAGE = LEAST_RESOURCE_USAGE
HOT = overload_shedder.OverloadShedderSettings(threshold_points=70.0)


def sheds(
    fleet: Fleet,
    placement: Placement,
    *,
    unsampled: Iterable[str] = (),
    unmeasured: Iterable[str] = (),
    overloaded_ratio: float = 0.85,
) -> tuple[RoundView, SheddingPlan]:
    """What brokers at 70 % or more shed, with destinations."""
    snapshot = partly_known(snapshot_of(fleet), unsampled=unsampled, unmeasured=unmeasured)
    plan = decide(overload_shedder.POLICY, snapshot, NoMemory(), HOT)[0]
    return snapshot, placement.place(snapshot, plan, overloaded_ratio)


def placed(fleet: Fleet, placement: Placement, **known: Iterable[str]) -> list[tuple[str, str | None]]:
    """Bundle and destination of each unload that is left."""
    return [(bundle, to) for bundle, _, to in unloads_of(*sheds(fleet, placement, **known))]  # type: ignore[arg-type]


def busy(*bundles: float, cpu_points: float = 80, may_receive: bool = True) -> Broker:
    """A broker that sheds all of its bundles, named h1, h2, …, by the message rates given."""
    return at(
        cpu_points,
        bytes_per_s=1e9,
        bundles={
            f"h{number}": Bundle(messages_per_s=rate, bytes_per_s=1e6)
            for number, rate in enumerate(bundles, start=1)
        },
        may_receive=may_receive,
    )


def calm(messages_per_s: float, *, cpu_points: float = 20, may_receive: bool = True) -> Broker:
    """A broker that sheds nothing; its bundle is named after its rate."""
    return at(
        cpu_points,
        bundles={f"c{messages_per_s:g}/{cpu_points:g}": Bundle(messages_per_s=messages_per_s)},
        may_receive=may_receive,
    )


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        pytest.param(
            {"a": busy(500, 400), "b": calm(300), "c": calm(100)},
            [("h1", "c"), ("h2", "b")],
            id="the least rate, and what was moved to it counts for the next",
        ),
        pytest.param(
            {
                "a": busy(500, 400),
                "b": calm(300),
                "c": calm(100, may_receive=False),
                "d": calm(0, cpu_points=86),
            },
            [("h1", "b")],
            id="none that is overloaded while another is not",
        ),
        pytest.param(
            {"a": busy(500, 400, cpu_points=99), "b": calm(300, cpu_points=98), "c": busy(cpu_points=97)},
            [("h1", "c"), ("h2", "b")],
            id="the least rate of all if all are overloaded",
        ),
        pytest.param(
            {"a": busy(100, 90), "b": calm(190), "c": calm(200)},
            [("h1", "b")],
            id="an equal rate elsewhere is good enough; then a is at 90, below all others",
        ),
    ],
)
def test_by_message_rate_the_least_busy_broker_receives(
    fleet: Fleet, expected: list[tuple[str, str | None]]
) -> None:
    assert placed(fleet, BY_RATE) == expected


def test_a_bundle_without_samples_weighs_what_pulsar_takes_for_one_never_seen() -> None:
    fleet = {"a": busy(500, 400), "b": calm(99), "c": at(20, bundles=by_rate(new=0.0))}
    assert placed(fleet, BY_RATE)[0] == ("h1", "c")
    assert placed(fleet, BY_RATE, unsampled=["new"])[0] == ("h1", "b")


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        pytest.param(
            {"a": at(80, bytes_per_s=100.0, bundles=by_volume(x=50.0, y=30.0)), "b": at(30), "c": at(20)},
            [("x", "c")],
            id="half of a's throughput takes half of its 80 % along, and meets the need",
        ),
        pytest.param(
            {
                "a": at(80, bytes_per_s=100.0, bundles=by_volume(w=6.0, x=5.0, y=5.0, z=1.0)),
                "b": at(24),
                "c": at(20),
            },
            [("w", "c"), ("x", "b"), ("y", "c")],
            id="after 6 % of a's 80 % c is at 24.8 %, after 5 % more b is at 28 %",
        ),
        pytest.param(
            {
                "a": at(120, bytes_per_s=10.0, bundles=by_volume(x=50.0, y=1.0), may_receive=False),
                "b": at(20),
                "c": at(145),
                "d": at(115, bytes_per_s=10.0, bundles=by_volume(v=50.0, w=1.0), may_receive=False),
            },
            [("x", "b"), ("v", "b")],
            id="a share is at most the whole, however an average and a report differ: b is at 140, below c",
        ),
    ],
)
def test_by_usage_the_least_used_broker_receives(
    fleet: Fleet, expected: list[tuple[str, str | None]]
) -> None:
    assert placed(fleet, BY_USAGE) == expected


def test_a_bundle_that_stays_is_a_candidate_without_destination_and_the_sums_still_add_up() -> None:
    snapshot, plan = sheds({"a": busy(100, 90), "b": calm(190), "c": calm(200)}, BY_RATE)
    assert tried_of(snapshot, plan) == {"h1": "acted", "h2": "no-destination"}
    assert unloads_of(snapshot, plan) == [("h1", "a", "b")]
    assert plan.unload_examined.tolist() == [0]


def test_the_evidence_is_the_load_the_destination_has_before_it_arrives() -> None:
    by_rates = sheds({"a": busy(500, 400, 300), "b": calm(100)}, BY_RATE)[1]
    assert by_rates.unload_evidence["destination_messages_per_s"].tolist() == [100.0, 600.0]
    by_usages = sheds({"a": busy(500, 400), "b": calm(100, cpu_points=25)}, BY_USAGE)[1]
    assert by_usages.unload_evidence["destination_usage_points"] == pytest.approx([25.0, 25.08])


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda each: each.name)
def test_a_policy_that_names_its_destinations_keeps_them(placement: Placement) -> None:
    settings = avg_shedder.AvgShedderSettings(high_hit_count=1, min_unload_messages_per_s=1.0)
    fleet = {
        "a": at(90, messages_per_s=900.0, bundles=by_rate(x=100.0, y=800.0)),
        "b": at(10, messages_per_s=500.0, bundles=by_rate(z=500.0)),
        "c": at(50),
    }
    snapshot = snapshot_of(fleet)
    plan, _ = decide(avg_shedder.POLICY, snapshot, avg_shedder.AvgShedderMemory(), settings)
    assert unloads_of(snapshot, plan) == [("x", "a", "b")]
    assert placement.place(snapshot, plan, 0.85) is plan


def test_left_to_pulsar_no_placement_chooses() -> None:
    assert find_placement(LEFT_TO_PULSAR) is None
    assert {find_placement(each.name) for each in PLACEMENTS} == set(PLACEMENTS)
