"""Samples out of all proportion: what the fleet planner leaves out of averages and costs, and what it takes in at once because it lasts."""

from collections.abc import Sequence

import numpy as np
import pytest

from policies.costs import CPU, RULE_FADES
from state.pulsar.loads import learn_costs
from state.pulsar.memory import Fleet
from tests.state.building import Seen, seen
from tests.state.traces import load, run, settings_of

A, B = "t/a/0x00000000_0x80000000", "t/b/0x00000000_0x80000000"


def rounds(of_a: Sequence[float], of_b: float = 10.0, *, is_planner: bool = True) -> Seen:
    """The last of rounds in which b1 reports so many messages/s of A, and b2 of B."""
    found, fleet = None, Fleet()
    for number, rate in enumerate(of_a):
        reports = [
            load(broker, 60 * number, cpu=20.0, bundles={bundle: each})
            for broker, bundle, each in (("b1", A, rate), ("b2", B, of_b))
        ]
        found = seen(*reports, before=fleet, left=() if is_planner else None, end_ms=60_000 * number)
        fleet = found.advanced.fleet
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("of_a", "average"),
    [
        pytest.param([10.0, 10.0, 10.0, 1e5], 10.0, id="one false sample does not count"),
        pytest.param([10.0, 1e5], 10.0, id="nor does the second of all"),
        pytest.param([10.0, 10.0, 10.0, 1e5, 12.0], 12.0, id="the average begins anew after it"),
        pytest.param([10.0, 10.0, 10.0, 1e5, 12.0, 14.0], 13.0, id="and goes on"),
        pytest.param([10.0, 10.0, 10.0, 1e5, 1e5], 1e5, id="what lasts counts from its second round on"),
        pytest.param([10.0, 10.0, 10.0, 100.0], 32.5, id="ten times as much counts"),
        pytest.param([0.0, 0.0, 0.0, 40.0], 10.0, id="an idle bundle may have what is usual elsewhere"),
        pytest.param([0.0, 0.0, 0.0, 51.0], 0.0, id="more than ten times that does not count"),
        pytest.param([0.0, 0.0, 0.0, 51.0, 51.0], 51.0, id="unless it lasts"),
        pytest.param([1e5], 1e5, id="of a new bundle nothing else is known"),
    ],
)
def test_a_sample_out_of_all_proportion_counts_for_the_planner_only_if_it_lasts(
    of_a: list[float], average: float
) -> None:
    """B has 10 messages/s, so that the mean of all bundles is 5 while A has none."""
    found = rounds(of_a)
    assert found.advanced.fleet.averages[0].tolist() == pytest.approx([average, 0.0, 10 * average, 0.0])


def test_traffic_that_begins_in_an_idle_fleet_counts_from_its_second_round_on() -> None:
    found = rounds([0.0, 0.0, 0.0, 5.0, 5.0], 0.0)
    assert found.advanced.fleet.averages[0, 0] == 5.0


def test_what_does_not_count_is_no_present_traffic_either_and_its_bundle_stays_for_a_round() -> None:
    view = rounds([10.0, 10.0, 10.0, 1e5]).table.view
    assert view.present_rates is not None
    assert view.present_rates(np.array([0, 1]))[:, 0].tolist() == [10.0, 10.0]
    assert view.bundles.sampled.tolist() == [False, True]


def test_for_pulsars_policies_every_sample_counts_as_it_does_in_pulsar() -> None:
    found = rounds([10.0, 10.0, 10.0, 1e5], is_planner=False)
    assert found.advanced.fleet.averages[0, 0] == (3 * 10.0 + 1e5) / 4


@pytest.mark.parametrize(
    ("rate", "is_learned"), [(10.0, True), (1e5, False)], ids=["usual", "out of all proportion"]
)
def test_a_broker_much_of_whose_traffic_does_not_count_teaches_nothing(
    rate: float, *, is_learned: bool
) -> None:
    found = rounds([10.0, 10.0, 10.0, rate])
    learn_costs(found.advanced, found.loads, found.context.rates, ())
    squares = (1.0 - RULE_FADES) * 10.0**2
    assert found.advanced.fleet.costs.sums[CPU, 0] == pytest.approx((1 + is_learned) * squares)


@pytest.mark.parametrize("false_round", [1, 5, 8])
@pytest.mark.parametrize("times", [100.0, 1e4])
def test_one_false_sample_moves_no_bundle_of_a_balanced_fleet(times: float, false_round: int) -> None:
    events = []
    for number in range(30):
        for broker in ("b1", "b2", "b3"):
            bundles = {f"t/{broker}/0x{at}0000000_0x{at + 1}0000000": 100.0 for at in range(8)}
            if broker == "b1" and number == false_round:
                bundles[min(bundles)] *= times
            events.append(load(broker, 10 * number + 5, cpu=40.0, bundles=bundles))
    found = run([events], settings_of(shedding_policy="fleet-planner"))
    assert len(found.summaries) == 30
    assert [each for each in found.outputs if each.kind == "action"] == []
