"""Simulated brokers: traffic is conserved, moves cost something, seeds repeat, and their load is smoothed and published as Pulsar does."""

from dataclasses import replace

import numpy as np
import pytest

from state.events import BrokerReport
from streaming.simulator.fleet import Fleet
from streaming.simulator.reporting import Publisher
from streaming.simulator.runs import generators, spread_points
from streaming.simulator.scenarios import SCENARIOS, Scenario, Shape, make_setup
from streaming.simulator.setup import KNEE_POINTS, Happening, Moving, Setup, saturate

SMALL = [each for each in SCENARIOS if each.name != "large-fleet"]


def setup_of(**shape: object) -> Setup:
    """Four brokers with ten bundles each."""
    rng = np.random.default_rng(7)
    return make_setup(rng, Shape(brokers_count=4, bundles_per_broker=10, **shape))


def fleet_of(setup: Setup, seed: int = 1) -> Fleet:
    """A fleet after its first tick."""
    traffic, moves = generators("test", seed, 2)
    fleet = Fleet(setup, traffic=traffic, moves=moves)
    fleet.tick()
    return fleet


def test_usage_is_proportional_below_the_knee_and_never_above_100():
    demand = np.array([[0.0, 40.0, KNEE_POINTS], [90.0, 150.0, 1000.0]])
    shown = saturate(demand)
    assert shown[0].tolist() == [0.0, 40.0, KNEE_POINTS]
    assert (np.diff(shown[1]) > 0).all()
    assert (shown <= 100.0).all()


def test_a_move_carries_all_of_a_bundles_traffic_and_what_was_not_sent_follows():
    setup = setup_of(noise_ratio=0.0, common_noise_ratio=0.0)
    fleet = fleet_of(replace(setup, moving=Moving(order_s=0.1, outage_s=8.0, failed_ratio=0.0)))
    row = int(np.flatnonzero(fleet.bundles.owner == 0)[0])
    before = fleet.rates.sum(axis=0)
    fleet.order(fleet.bundles.names[row], 3, "action")
    moved = fleet.tick()
    during = fleet.rates.sum(axis=0)
    assert [(each.succeeded, each.source, each.destination) for each in moved] == [(True, 0, 3)]
    assert fleet.bundles.owner[row] == 3
    fleet.tick()
    after = fleet.rates.sum(axis=0)
    assert (during < before)[:4].all()  # sessions: there are none
    np.testing.assert_allclose(during + after, 2 * before, rtol=1e-3)


def test_a_move_that_fails_changes_nothing():
    setup = setup_of()
    fleet = fleet_of(replace(setup, moving=Moving(order_s=0.1, failed_ratio=1.0)))
    owner = fleet.bundles.owner.copy()
    fleet.order(fleet.bundles.names[0], 3, "action")
    assert [each.succeeded for each in fleet.tick()] == [False]
    assert (fleet.bundles.owner == owner).all()


def test_the_bundles_of_a_broker_that_goes_are_placed_and_it_comes_back_empty():
    setup = setup_of()
    gone = Happening(at_s=15.0, broker=0), Happening(at_s=35.0, broker=0, joins=True)
    fleet = fleet_of(replace(setup, happenings=gone))
    fleet.tick()
    assert not fleet.alive[0]
    assert set(fleet.bundles.owner.tolist()) == {1, 2, 3}
    for _ in range(3):
        fleet.tick()
    assert fleet.alive[0]
    assert 0 not in fleet.bundles.owner


def test_a_split_changes_no_traffic_and_its_children_have_its_topics():
    fleet = fleet_of(setup_of())
    name, traffic = fleet.bundles.names[0], fleet.structural.sum(axis=0)
    topics = int((fleet.bundles.topic_bundle == 0).sum())
    low, high = (int(each, 16) for each in name.rpartition("/")[2].split("_"))
    assert fleet.split(name, [(low + high) // 2])
    assert not fleet.split(name, [(low + high) // 2])
    children = [0, len(fleet.bundles.names) - 1]
    assert sum(int((fleet.bundles.topic_bundle == row).sum()) for row in children) == topics
    np.testing.assert_allclose(fleet.structural.sum(axis=0), traffic)
    fleet.tick()


@pytest.mark.parametrize("scenario", SMALL, ids=lambda each: each.name)
def test_a_scenario_begins_unbalanced_where_it_says_that_something_is_wrong_at_once(scenario: Scenario):
    setup = scenario.build(np.random.default_rng(3))
    assert set(setup.bundles.owner.tolist()) <= set(np.flatnonzero(setup.alive).tolist())
    assert len(set(setup.bundles.names)) == len(setup.bundles.names)
    fleet = fleet_of(setup)
    if setup.disturbed_s[:1] == (0.0,):
        assert spread_points(fleet) > 15.0
    else:
        assert spread_points(fleet) < 20.0


def test_the_same_seed_makes_the_same_fleet_and_another_seed_another():
    rates = [fleet_of(setup_of(), seed).rates for seed in (1, 1, 2)]
    assert np.array_equal(rates[0], rates[1])
    assert not np.array_equal(rates[0], rates[2])


LOOK_S = 5.0


def figures(usage_points: float, *, volumes: tuple[float, ...] = (10.0, 20.0)) -> BrokerReport:
    """Report of a broker whose CPU is its largest usage, with one bundle for each of ``volumes``, in bytes/s."""
    traffic = np.zeros((len(volumes), 4))
    traffic[:, 2] = volumes
    return BrokerReport(
        resources=np.array([[8 * usage_points, 800.0], [1.0, 1000.0], [2.0, 1000.0], [-1.0, -1.0]]),
        messages_per_s=100.0,
        bytes_per_s=sum(volumes),
        listed_count=len(volumes),
        bundles=[f"t/n/0x{place}_0x{place + 1}" for place in range(len(volumes))],
        traffic=traffic,
        has_traffic=np.ones(len(volumes), dtype=np.bool_),
        counts=np.zeros((len(volumes), 2), dtype=np.int64),
    )


def published(publisher: Publisher, owned: list[str] | None = None) -> tuple[float, float, int]:
    """Smoothed usage and throughput, and when they were published."""
    report = publisher.report_of(0, owned or ["t/n/0x0_0x1", "t/n/0x1_0x2"])
    assert report.published is not None
    found = report.published
    return found.usage_ratio, found.bytes_per_s, found.updated_ms


def test_a_broker_smooths_its_load_with_each_look_and_publishes_it_where_it_changed_by_much():
    publisher = Publisher(1)
    assert publisher.report_of(0, []) is None
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    assert published(publisher) == (0.4, 30.0, 1000)
    publisher.take_figures(0, figures(45.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=6000)
    assert published(publisher) == (0.4, 30.0, 1000), "5 points are not much"
    publisher.take_figures(0, figures(60.0))
    publisher.sample_load(0, looked_s=2 * LOOK_S, time_ms=16_000)
    once = 0.9 * 0.4 + 0.1 * 0.45
    assert published(publisher)[0] == pytest.approx(0.9 * (0.9 * once + 0.1 * 0.6) + 0.1 * 0.6)
    assert published(publisher)[2] == 16_000
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=21_000)
    assert published(publisher)[2] == 16_000, "further smoothing alone is too small a change to publish"


@pytest.mark.parametrize(
    ("volumes", "is_told"), [((10.0, 22.0), False), ((10.0, 24.0), True), ((30.0,), True)]
)
def test_traffic_and_the_number_of_bundles_are_looked_at_too(volumes: tuple[float, ...], *, is_told: bool):
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.take_figures(0, figures(40.0, volumes=volumes))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=6000)
    assert (published(publisher)[2] == 6000) is is_told


def test_what_is_steady_is_told_after_a_quarter_of_an_hour():
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    for time_ms in (0, 900_000):
        publisher.sample_load(0, looked_s=LOOK_S, time_ms=time_ms)
        assert published(publisher)[2] == 0
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=900_001)
    assert published(publisher)[2] == 900_001


def test_when_a_bundle_comes_or_goes_smoothing_begins_anew_and_next_figures_name_the_heaviest():
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.take_figures(0, figures(50.0))
    publisher.take_back(0)
    assert publisher.report_of(0, []) is None
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=2000)
    report = publisher.report_of(0, ["t/n/0x0_0x1"])
    assert (report.published.usage_ratio, report.published.top_bundles) == (0.5, [])
    publisher.take_figures(0, figures(50.0))
    report = publisher.report_of(0, ["t/n/0x0_0x1"])
    assert report.published.top_bundles == ["t/n/0x0_0x1", "t/n/0x1_0x2"], "as its figures have it"
    assert report.bundles == ["t/n/0x0_0x1"], "as the admin API has it"


def test_only_the_ten_heaviest_are_published_the_lightest_of_them_first():
    volumes = tuple(float(100 - place) for place in range(12))
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0, volumes=volumes))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    names = [f"t/n/0x{place}_0x{place + 1}" for place in range(12)]
    report = publisher.report_of(0, sorted(names))
    assert report.published.top_bundles == names[9::-1]
    assert report.published.top_bytes_per_s.tolist() == [*map(float, range(91, 101))]
    assert dict(zip(report.bundles, report.has_traffic.tolist(), strict=True)) == {
        name: place < 10 for place, name in enumerate(names)
    }


def test_a_broker_that_is_gone_has_published_nothing():
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.forget(0)
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=2000)
    assert publisher.report_of(0, []) is None
