"""A recorded cluster with moves: what brokers would have reported, computed by hand."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from policies.costs import CPU, KBIT_PER_BYTE, Costs
from policies.splitting.ranges import positions_of
from policies.usage import NOT_MEASURED, RESOURCES
from state.events import ActionResult, BrokerReport, LoadReport, Published, TopicStats, TopicTraffic
from state.settings import PulsarSettings
from streaming.simulator.recorded_world import World

A, B = "shop/a/0x00000000_0x80000000", "shop/a/0x80000000_0xffffffff"
C = "shop/c/0x00000000_0xffffffff"
BROKERS = ("b1:8080", "b2:8080")
COSTS = Costs(
    limits=np.full((2, len(RESOURCES)), NOT_MEASURED),
    rule=np.array([[0.1, 0.0]] + [[KBIT_PER_BYTE, 0.0]] * 2 + [[0.0, 0.0]] * (len(RESOURCES) - 3)),
    factor=np.array([[1.0], [2.0]]) * np.ones(len(RESOURCES)),
    factor_error=np.zeros((2, len(RESOURCES))),
)
"""A message/s costs 1 ms of a core at b1 and 2 ms at b2."""


def report(broker: str, time_ms: int, cpu_points: float, traffic: dict[str, float]) -> LoadReport:
    """A broker of 2 or 4 cores; ``traffic`` is messages/s in, half of it out, of 100 bytes each."""
    cores = 2.0 if broker == "b1:8080" else 4.0
    rows = np.array([[each, each / 2, 100 * each, 50 * each] for each in traffic.values()]).reshape(-1, 4)
    resources = np.full((4, 2), NOT_MEASURED)
    resources[CPU] = [cpu_points * cores, 100 * cores]
    return LoadReport(
        id=f"{broker}/{time_ms}",
        time_ms=time_ms,
        broker=broker,
        report=BrokerReport(
            resources=resources,
            messages_per_s=float(rows[:, :2].sum()),
            bytes_per_s=float(rows[:, 2:].sum()),
            listed_count=len(traffic) + 1,
            bundles=list(traffic),
            traffic=rows,
            has_traffic=np.ones(len(traffic), dtype=np.bool_),
            counts=np.full((len(traffic), 2), 3, dtype=np.int64),
        ),
    )


def world(*, keeps_recorded_moves: bool = True) -> World:
    """A cluster of which nothing is known yet."""
    return World(BROKERS, COSTS, PulsarSettings(), begins_ms=0, keeps_recorded_moves=keeps_recorded_moves)


def begun(**how: bool) -> World:
    """At 0 s b1 has A and B with 200 and 100 messages/s in, b2 has C with 40."""
    found = world(**how)
    found.take(report("b1:8080", 0, 30.0, {A: 200.0, B: 100.0}))
    found.take(report("b2:8080", 0, 5.0, {C: 40.0}))
    return found


def shown(found: World, event: LoadReport) -> BrokerReport:
    """What a candidate sees of a report."""
    seen = found.take(event)
    return seen.report


def test_who_moves_nothing_sees_the_very_reports_that_were_recorded():
    found = begun()
    later = report("b1:8080", 30_000, 33.0, {A: 210.0})
    assert found.take(later) is later


def test_a_moved_bundle_and_its_cost_leave_one_broker_and_arrive_at_the_other():
    found = begun()
    landed = found.unload(A, "b2:8080")
    assert (landed.source, landed.destination, landed.messages_per_s) == (0, 1, 300.0)
    source = shown(found, report("b1:8080", 30_000, 31.0, {A: 240.0, B: 100.0}))
    assert source.bundles == [B]
    assert source.listed_count == 2
    assert source.messages_per_s == pytest.approx(150.0)
    # 360 messages/s less, of 1 ms each, on 2 cores: 18 points
    assert source.resources[CPU, 0] / source.resources[CPU, 1] == pytest.approx(0.13)
    destination = shown(found, report("b2:8080", 30_000, 5.0, {C: 40.0}))
    assert destination.bundles == [A, C]
    assert destination.traffic[0].tolist() == [240.0, 120.0, 24_000.0, 12_000.0]
    # 360 messages/s more, of 2 ms each, on 4 cores: 18 points
    assert destination.resources[CPU, 0] / destination.resources[CPU, 1] == pytest.approx(0.23)
    assert found.structural_points().tolist() == pytest.approx([13.0, 23.0])


def test_what_the_extensible_load_manager_publishes_follows_a_moved_bundle():
    def publish(event: LoadReport, usage_ratio: float, top: dict[str, float]) -> LoadReport:
        published = Published(
            usage_ratio=usage_ratio,
            bytes_per_s=event.report.bytes_per_s,
            updated_ms=event.time_ms,
            top_bundles=list(top),
            top_bytes_per_s=np.array([*top.values()]),
        )
        system = ["pulsar/system/0x00000000_0xffffffff"]
        return msgspec.structs.replace(
            event, report=replace(event.report, published=published, system_bundles=system)
        )

    found = begun()
    found.unload(A, "b2:8080")
    source = shown(
        found,
        publish(report("b1:8080", 30_000, 31.0, {A: 240.0, B: 100.0}), 0.30, {B: 15_000.0, A: 36_000.0}),
    )
    assert source.system_bundles == ["pulsar/system/0x00000000_0xffffffff"]
    # 18 points less, as the broker's own usage
    assert source.published is not None
    assert source.published.usage_ratio == pytest.approx(0.12)
    assert source.published.bytes_per_s == pytest.approx(15_000.0)
    assert (source.published.top_bundles, source.published.top_bytes_per_s.tolist()) == ([B], [15_000.0])
    destination = shown(found, publish(report("b2:8080", 30_000, 5.0, {C: 40.0}), 0.05, {C: 6_000.0}))
    assert destination.published is not None
    assert destination.published.usage_ratio == pytest.approx(0.23)
    assert destination.published.top_bundles == [C, A]
    assert destination.published.top_bytes_per_s.tolist() == [6_000.0, 36_000.0]


def test_what_was_not_measured_stays_so():
    found = begun()
    found.unload(A, "b2:8080")
    seen = shown(found, report("b1:8080", 30_000, 31.0, {A: 240.0, B: 100.0}))
    assert seen.resources[1:].tolist() == [[NOT_MEASURED, NOT_MEASURED]] * 3


def test_a_recorded_move_moves_a_bundle_that_is_where_it_was_recorded():
    found = begun()
    found.take(report("b1:8080", 30_000, 20.0, {A: 200.0}))
    seen = shown(found, report("b2:8080", 30_000, 10.0, {B: 100.0, C: 40.0}))
    assert seen.bundles == [B, C]


def test_a_recorded_move_does_not_move_a_bundle_that_was_moved_before():
    found = begun()
    found.unload(C, "b1:8080")
    found.take(report("b1:8080", 30_000, 30.0, {A: 200.0, B: 100.0}))
    found.take(report("b2:8080", 30_000, 5.0, {C: 40.0}))
    assert shown(found, report("b1:8080", 60_000, 32.0, {A: 200.0, B: 100.0, C: 40.0})).bundles == [A, B, C]
    assert shown(found, report("b2:8080", 60_000, 1.0, {})).bundles == []


def test_a_bundle_that_comes_back_to_its_recorded_broker_follows_the_recording_again():
    found = begun()
    found.unload(A, "b2:8080")
    found.unload(A, "b1:8080")
    later = report("b1:8080", 30_000, 30.0, {A: 200.0, B: 100.0})
    assert found.take(later) is later


def test_without_recorded_moves_a_bundle_stays_where_it_was_first_seen():
    found = begun(keeps_recorded_moves=False)
    assert shown(found, report("b1:8080", 30_000, 20.0, {A: 200.0})).bundles == [A, B]
    assert shown(found, report("b2:8080", 30_000, 10.0, {B: 120.0, C: 40.0})).bundles == [C]
    seen = shown(found, report("b1:8080", 60_000, 20.0, {A: 200.0}))
    assert seen.bundles == [A, B]
    assert seen.traffic[1, 0] == 120.0


def test_bundles_of_a_broker_that_died_are_where_the_recording_has_them():
    found = begun()
    found.unload(A, "b2:8080")
    later_ms = 180_001  # max_report_age_s is 180
    found.take(report("b1:8080", later_ms, 30.0, {A: 200.0, B: 100.0}))
    found.end_round()
    assert shown(found, report("b1:8080", later_ms + 1, 30.0, {A: 200.0, B: 100.0})).bundles == [A, B]
    assert found.alive.tolist() == [True, False]
    assert np.isnan(found.structural_points()[1])


def test_an_unload_of_what_is_not_there_fails():
    found = begun()
    assert not found.unload("shop/x/0x00000000_0xffffffff", "b2:8080").succeeded
    assert not found.unload(A, "b3:8080").succeeded


def test_where_pulsar_chooses_the_broker_with_the_lowest_message_rate_gets_the_bundle():
    found = begun()
    landed = found.unload(A, None)
    assert landed.destination == 1
    again = found.unload(B, None)
    assert again.destination == 1, "60 + 300 messages/s are still less than 450"


def topics(time_ms: int, names: list[str], rates: list[float]) -> TopicStats:
    """Topics of bundle A at b1."""
    return TopicStats(
        id=f"topics/{time_ms}",
        time_ms=time_ms,
        broker="b1:8080",
        traffic=TopicTraffic(
            bundles=[A],
            counts=np.array([len(names)]),
            topics=names,
            messages_per_s=np.array(rates),
            bytes_per_s=np.array(rates) * 100,
            sessions=np.zeros(len(names), dtype=np.int64),
        ),
    )


def names_in_halves() -> tuple[str, str]:
    """A topic of the lower quarter, and one of the second."""
    names = [f"persistent://shop/a/t{number}" for number in range(200)]
    positions = positions_of(names)
    lower = next(name for name, at in zip(names, positions, strict=True) if at < 0x40000000)
    upper = next(name for name, at in zip(names, positions, strict=True) if 0x40000000 <= at < 0x80000000)
    return lower, upper


def test_the_children_of_a_cut_share_the_traffic_as_their_topics_do_and_move_alone():
    found = begun()
    lower, upper = names_in_halves()
    found.take(topics(0, [lower, upper], [225.0, 75.0]))
    assert found.split(A, [0x40000000])
    assert found.unload("shop/a/0x40000000_0x80000000", "b2:8080").succeeded
    seen = shown(found, report("b1:8080", 30_000, 30.0, {A: 200.0, B: 100.0}))
    assert seen.bundles == ["shop/a/0x00000000_0x40000000", B]
    assert seen.traffic[0, 0] == 150.0
    arrived = shown(found, report("b2:8080", 30_000, 5.0, {C: 40.0}))
    assert arrived.traffic[0, 0] == 50.0
    stats = found.take(msgspec.structs.replace(topics(30_000, [lower, upper], [225.0, 75.0]), id="later"))
    assert (stats.traffic.bundles, stats.traffic.topics) == (["shop/a/0x00000000_0x40000000"], [lower])


@pytest.mark.parametrize(
    ("sessions", "counts"),
    [
        pytest.param((36, 4), [5, 36], id="like those that are known of"),
        pytest.param((0, 0), [5, 20], id="like the topics, where none is known of"),
    ],
)
def test_the_children_of_a_cut_share_the_clients_of_a_bundle(sessions: tuple[int, int], counts: list[int]):
    """Not each of them has them all: a backtest would cut them again and again."""
    found = begun()
    told = topics(0, list(names_in_halves()), [1.0, 1.0])
    found.take(msgspec.structs.replace(told, traffic=replace(told.traffic, sessions=np.array(sessions))))
    assert found.split(A, [0x40000000])
    later = report("b1:8080", 30_000, 30.0, {A: 200.0, B: 100.0})
    clients = later.report.counts.copy()
    clients[0] = [10, 40]
    seen = shown(found, msgspec.structs.replace(later, report=replace(later.report, counts=clients)))
    assert seen.bundles[0] == "shop/a/0x00000000_0x40000000"
    assert seen.counts[0].tolist() == counts


def test_a_cut_outside_of_the_bundle_changes_nothing():
    found = begun()
    assert not found.split(A, [0x90000000])
    assert found.unload(A, "b2:8080").succeeded


def test_what_executors_said_of_other_decisions_is_left_out():
    assert begun().take(ActionResult(id="r", time_ms=1, action_id="x", outcome="succeeded")) is None
