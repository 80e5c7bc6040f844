"""What traffic costs brokers, computed by hand, and what a report may teach."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from policies.costs import (
    BANDWIDTH_IN,
    BANDWIDTH_OUT,
    CPU,
    IDLE_CPU_POINTS,
    KBIT_PER_BYTE,
    LEAST_FACTOR,
    CostMemory,
    Costs,
    figures_of,
    learn,
    percent_of,
)
from policies.usage import NOT_MEASURED, RESOURCES

Report = tuple[float, float, float]
"""Messages/s in, bytes/s in, and CPU above that of an idle broker, in percent; negative: CPU is not measured."""


def taught(
    *rounds: Mapping[str, Report], memory: CostMemory | None = None, counts: Sequence[bool] | None = None
) -> tuple[CostMemory, Costs]:
    """What the rounds teach: reports by broker, whose CPU has a limit of 100 and which measure nothing else."""
    memory = memory or CostMemory()
    for reports in rounds:
        found = np.array(list(reports.values()))
        percents, limits = np.zeros((len(found), len(RESOURCES))), np.full((len(found), len(RESOURCES)), -1.0)
        measured = found[:, 2] >= 0
        percents[:, CPU] = np.where(measured, IDLE_CPU_POINTS + found[:, 2], 0.0)
        limits[:, CPU] = np.where(measured, 100.0, NOT_MEASURED)
        rates = np.zeros((len(found), 4))
        rates[:, 0], rates[:, 2] = found[:, 0], found[:, 1]
        memory, costs = learn(
            memory,
            tuple(reports),
            percents=percents,
            limits=limits,
            rates=rates,
            counts=None if counts is None else np.array(counts),
        )
    return memory, costs


def cpu_points(costs: Costs, messages_per_s: float, bytes_per_s: float = 0.0) -> list[float]:
    """What so much traffic costs each broker, in percent of its CPU."""
    figures = figures_of(np.array([[messages_per_s, 0.0, bytes_per_s, 0.0]]))
    found: list[float] = costs.points_at(slice(None), figures)[:, CPU].tolist()
    return found


def test_each_resource_is_explained_by_two_figures_of_traffic() -> None:
    found = figures_of(np.array([[1.0, 2.0, 30.0, 40.0]]), np.array([[5, 6]]))[0]
    assert dict(zip(RESOURCES, found.tolist(), strict=True)) == {
        "cpu": [3.0, 70.0],
        "bandwidth-in": [30.0, 40.0],
        "bandwidth-out": [40.0, 30.0],
        "direct-memory": [0.0, 0.0],
        "messages": [3.0, 0.0],
        "bytes": [70.0, 0.0],
        "topics": [5.0, 0.0],
        "sessions": [6.0, 0.0],
    }


def test_amounts_are_percent_of_limits_and_nothing_where_there_is_no_limit() -> None:
    amounts, limits = np.array([[50.0, 50.0, 50.0]]), np.array([[200.0, 0.0, -1.0]])
    assert percent_of(amounts, limits).tolist() == [[25.0, 0.0, 0.0]]


TOLD = (14.5 * 10 + 24.5 * 20) / (14.5**2 + 24.5**2)
"""What brings shares of 14.5 and 24.5 as near as can be to 10 and 20, which were measured."""


@pytest.mark.parametrize(
    ("reports", "per_message", "per_byte"),
    [
        pytest.param({"a": (100, 1000, 10)}, 0.05, 0.005, id="messages and bytes take half each"),
        pytest.param({"a": (100, 0, 10)}, 0.1, 0.0, id="no bytes"),
        pytest.param({"a": (0, 1000, 10)}, 0.0, 0.01, id="no messages"),
        pytest.param(
            {"a": (100, 0, 10), "b": (0, 1000, 20)}, TOLD * 14.5 / 100, TOLD * 24.5 / 1000, id="told apart"
        ),
        pytest.param({"a": (100, 0, 10), "b": (900, 0, -1)}, 0.1, 0.0, id="not measured teaches nothing"),
        pytest.param({"a": (0, 0, 0), "b": (0, 0, 40)}, 0.0, 0.0, id="no traffic explains nothing"),
    ],
)
def test_the_rule_of_cpu_is_fitted_to_all_brokers(
    reports: Mapping[str, Report], per_message: float, per_byte: float
) -> None:
    _, costs = taught(reports)
    assert costs.rule[CPU].tolist() == pytest.approx([per_message, per_byte])


def test_bandwidth_begins_at_a_byte_for_a_byte_and_follows_what_is_measured() -> None:
    percents, limits = np.zeros((1, len(RESOURCES))), np.full((1, len(RESOURCES)), NOT_MEASURED)
    _, costs = learn(CostMemory(), ("a",), percents=percents, limits=limits, rates=np.full((1, 4), 1000.0))
    assert costs.rule[BANDWIDTH_IN].tolist() == [KBIT_PER_BYTE, 0.0]
    percents[:, BANDWIDTH_IN], limits[:, BANDWIDTH_IN] = 16.0, 100.0  # twice what the bytes are
    rates = np.array([[0.0, 0.0, 1000.0, 0.0]])
    _, costs = learn(CostMemory(), ("a",), percents=percents, limits=limits, rates=rates)
    assert costs.rule[BANDWIDTH_IN].tolist() == pytest.approx([0.016, 0.0])


@pytest.mark.parametrize("copies", [1.0, 2.0, 3.0])
def test_what_is_assumed_of_bandwidth_does_not_hide_the_copies_that_brokers_write(copies: float) -> None:
    """What comes in goes out to its consumer once, and so many times to bookies."""
    percents, limits = np.zeros((1, len(RESOURCES))), np.full((1, len(RESOURCES)), NOT_MEASURED)
    limits[:, BANDWIDTH_OUT] = 1000.0
    percents[:, BANDWIDTH_OUT] = 0.1 * (1.0 + copies) * KBIT_PER_BYTE * 1000.0
    rates = np.array([[0.0, 0.0, 1000.0, 1000.0]])
    memory, costs = learn(CostMemory(), ("a",), percents=percents, limits=limits, rates=rates)
    new = np.array([[0.0, 0.0, 500.0, 500.0]])
    percents[:, BANDWIDTH_OUT] = 0.0
    _, costs = learn(memory, ("new",), percents=percents, limits=limits, rates=np.zeros((1, 4)))
    there = costs.points_at(np.array([0]), figures_of(new))[0, BANDWIDTH_OUT]
    assert there == pytest.approx(0.05 * (1.0 + copies) * KBIT_PER_BYTE * 1000.0)


def test_a_broker_of_which_the_same_takes_more_has_a_factor_of_its_own() -> None:
    _, costs = taught({"a": (100, 0, 10), "b": (100, 0, 20)})  # 15 points by the rule
    assert costs.factor[:, CPU].tolist() == pytest.approx([250 / 325, 400 / 325])
    assert cpu_points(costs, 10) == pytest.approx([1.5 * 250 / 325, 1.5 * 400 / 325])


def test_a_factor_stays_within_its_bounds_and_is_certain_only_once_there_was_traffic() -> None:
    _, costs = taught(*[{"a": (100, 0, 0), "b": (100, 0, 50), "c": (0, 0, 0)}] * 40)
    assert costs.factor[0, CPU] == LEAST_FACTOR
    assert costs.factor[2, CPU] == 1.0
    assert costs.factor_error[1, CPU] < 0.1 < costs.factor_error[2, CPU]


def test_brokers_whose_reports_show_the_past_teach_nothing() -> None:
    _, costs = taught({"a": (100, 0, 10), "b": (900, 0, 10)}, counts=(True, False))
    assert costs.rule[CPU].tolist() == [pytest.approx(0.1), 0.0]
    assert costs.factor[:, CPU].tolist() == [1.0, 1.0]


def test_a_broker_that_misses_rounds_keeps_what_was_learned_about_it() -> None:
    calm = {"a": (100.0, 0.0, 10.0), "b": (100.0, 0.0, 20.0)}
    memory, before = taught(*[calm] * 10)
    percents, limits = np.zeros((1, len(RESOURCES))), np.full((1, len(RESOURCES)), NOT_MEASURED)
    memory, _ = learn(
        memory, ("a",), percents=percents, limits=limits, rates=np.zeros((1, 4)), kept=("a", "b")
    )
    _, after = taught(calm, memory=memory)
    assert after.factor[1, CPU] == pytest.approx(before.factor[1, CPU], rel=0.1)


@pytest.mark.parametrize("times", [20.0, 1e3, 1e6, 1e12])
def test_one_report_out_of_all_proportion_does_not_change_what_traffic_costs_for_long(times: float) -> None:
    calm = {"a": (6000.0, 6e6, 60.0), "b": (2000.0, 2e6, 20.0), "c": (2000.0, 2e6, 20.0)}
    false = {**calm, "b": (2000.0 * times, 2e6 * times, 20.0)}
    memory, _ = taught(*[calm] * 20, false)
    _, costs = taught(*[calm] * 15, memory=memory)
    assert cpu_points(costs, 600.0, 6e5) == pytest.approx([6.0, 6.0, 6.0], rel=0.2)


@pytest.mark.parametrize("times", [20.0, 1e3, 1e6, 1e12])
def test_one_usage_out_of_all_proportion_does_not_change_what_traffic_costs(times: float) -> None:
    calm = {"a": (6000.0, 6e6, 60.0), "b": (2000.0, 2e6, 20.0), "c": (2000.0, 2e6, 20.0)}
    memory, _ = taught(*[calm] * 20, {**calm, "b": (2000.0, 2e6, 20.0 * times)})
    _, costs = taught(calm, memory=memory)
    assert cpu_points(costs, 600.0, 6e5) == pytest.approx([6.0, 6.0, 6.0], rel=0.1)


def test_one_network_usage_out_of_all_proportion_does_not_change_what_bytes_cost() -> None:
    percents, limits = np.zeros((2, len(RESOURCES))), np.full((2, len(RESOURCES)), NOT_MEASURED)
    limits[:, BANDWIDTH_IN] = 100.0
    rates = np.tile([0.0, 0.0, 1000.0, 0.0], (2, 1))
    memory = CostMemory()
    for usage in [(40.0, 40.0)] * 20 + [(40.0, 4e6)] + [(40.0, 40.0)]:
        percents[:, BANDWIDTH_IN] = usage
        memory, costs = learn(memory, ("a", "b"), percents=percents, limits=limits, rates=rates)
    assert costs.points_at(slice(None), figures_of(rates))[:, BANDWIDTH_IN].tolist() == pytest.approx(
        [40.0, 40.0], rel=0.1
    )


@pytest.mark.parametrize("usual", [0.01, 1.0, 5.0])
def test_traffic_that_takes_more_from_now_on_is_learned_in_half_an_hour(usual: float) -> None:
    """All brokers use 50 points for what took ``usual`` ones before."""
    names = ("a", "b", "c")
    memory, _ = taught(*[dict.fromkeys(names, (2000.0, 2e6, usual))] * 60)
    _, costs = taught(*[dict.fromkeys(names, (2000.0, 2e6, 50.0))] * 30, memory=memory)
    assert cpu_points(costs, 2000.0, 2e6) == pytest.approx([50.0] * 3, rel=0.4)


def test_a_load_that_grows_a_hundredfold_and_stays_is_learned_in_ten_rounds() -> None:
    idle = {"a": (60.0, 6e4, 1.2), "b": (20.0, 2e4, 0.4)}  # twice as much a message as under load
    busy = {"a": (6000.0, 6e6, 60.0), "b": (2000.0, 2e6, 20.0)}
    memory, _ = taught(*[idle] * 100)
    _, costs = taught(*[busy] * 10, memory=memory)
    assert cpu_points(costs, 600.0, 6e5) == pytest.approx([6.0, 6.0], rel=0.2)
