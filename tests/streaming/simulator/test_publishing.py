"""Simulated brokers smooth their load with each look, publish it when it changed by much, withdraw it when bundles come or go."""

import numpy as np
import pytest

from state.events import BrokerReport
from streaming.simulator.reporting import Publisher

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
    assert report is not None
    assert report.published is not None
    found = report.published
    return found.usage_ratio, found.bytes_per_s, found.updated_ms


def test_a_broker_smooths_its_load_with_each_look_and_publishes_it_where_it_changed_by_much() -> None:
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
def test_traffic_and_the_number_of_bundles_are_looked_at_too(
    volumes: tuple[float, ...], *, is_told: bool
) -> None:
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.take_figures(0, figures(40.0, volumes=volumes))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=6000)
    assert (published(publisher)[2] == 6000) is is_told


def test_what_is_steady_is_told_after_a_quarter_of_an_hour() -> None:
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    for time_ms in (0, 900_000):
        publisher.sample_load(0, looked_s=LOOK_S, time_ms=time_ms)
        assert published(publisher)[2] == 0
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=900_001)
    assert published(publisher)[2] == 900_001


def test_when_a_bundle_comes_or_goes_the_smoothing_begins_anew_and_the_heaviest_are_known_with_the_next_figures() -> (
    None
):
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.take_figures(0, figures(50.0))
    publisher.take_back(0)
    assert publisher.report_of(0, []) is None
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=2000)
    report = publisher.report_of(0, ["t/n/0x0_0x1"])
    assert report is not None
    assert report.published is not None
    assert (report.published.usage_ratio, report.published.top_bundles) == (0.5, [])
    publisher.take_figures(0, figures(50.0))
    report = publisher.report_of(0, ["t/n/0x0_0x1"])
    assert report is not None
    assert report.published is not None
    assert report.published.top_bundles == ["t/n/0x0_0x1", "t/n/0x1_0x2"], "as its figures have it"
    assert report.bundles == ["t/n/0x0_0x1"], "as the admin API has it"


def test_only_the_ten_heaviest_are_published_the_lightest_of_them_first() -> None:
    volumes = tuple(float(100 - place) for place in range(12))
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0, volumes=volumes))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    names = [f"t/n/0x{place}_0x{place + 1}" for place in range(12)]
    report = publisher.report_of(0, sorted(names))
    assert report is not None
    assert report.published is not None
    assert report.published.top_bundles == names[9::-1]
    assert report.published.top_bytes_per_s.tolist() == [*map(float, range(91, 101))]
    assert dict(zip(report.bundles, report.has_traffic.tolist(), strict=True)) == {
        name: place < 10 for place, name in enumerate(names)
    }


def test_a_broker_that_is_gone_has_published_nothing() -> None:
    publisher = Publisher(1)
    publisher.take_figures(0, figures(40.0))
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=1000)
    publisher.forget(0)
    publisher.sample_load(0, looked_s=LOOK_S, time_ms=2000)
    assert publisher.report_of(0, []) is None
