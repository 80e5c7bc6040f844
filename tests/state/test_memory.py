"""The encoding of a cluster's memory: what goes in comes out."""

from collections.abc import Callable

import numpy as np
import pytest

from policies.costs import CostMemory
from state.closing import Identity
from state.controller import Controller, RoundLengthError
from state.memory import Header, decode_header, encode_header
from state.pulsar.codec import (
    decode_fleet,
    decode_report,
    decode_topics,
    encode_fleet,
    encode_report,
    encode_topics,
)
from state.pulsar.memory import Fleet, WaitingReport, WaitingTopics
from state.store import DictStore, StoredKey
from state.waiting import decode_batch
from tests.state.samples import BUNDLES, pulsar_header
from tests.state.samples import fleet as full_fleet
from tests.state.traces import CLUSTER, load, run, settings_of, statistics, sweep


def fleet_without_splits() -> Fleet:
    fleet = full_fleet()
    for name in ("split_averages", "split_samples", "split_hits"):
        setattr(fleet, name, np.zeros_like(getattr(fleet, name)))
    return fleet


def test_a_header_comes_back_as_it_was():
    assert decode_header(encode_header(pulsar_header())) == pulsar_header()
    assert decode_header(encode_header(Header(length_ms=1))) == Header(length_ms=1)


@pytest.mark.parametrize("build", [full_fleet, fleet_without_splits, Fleet])
def test_a_fleet_comes_back_as_it_was(build: Callable[[], Fleet]):
    before, after = build(), decode_fleet(encode_fleet(build()))
    for name in {*before.__slots__} - {"bundle_names"} | {"bundles"}:
        was, is_ = getattr(before, name), getattr(after, name)
        if isinstance(was, CostMemory):
            was, is_ = ((each.sums.tolist(), list(each.names), each.factors.tolist()) for each in (was, is_))
        if isinstance(was, np.ndarray):
            assert was.dtype == is_.dtype, name
            assert was.shape == is_.shape, name
            assert was.tolist() == is_.tolist(), name
        else:
            assert was == is_, name


@pytest.mark.parametrize("bundles", [BUNDLES, {}])
def test_a_waiting_report_comes_back_as_it_was(bundles: dict[str, float | None]):
    event = load("b1", 5, cpu=33.3, bundles=bundles)
    before = WaitingReport(event.time_ms, event.id, event.report)
    after = decode_report(encode_report(before))
    assert (after.time_ms, after.id) == (before.time_ms, before.id)
    assert after.report.bundles == before.report.bundles
    assert after.report.listed_count == before.report.listed_count
    assert (after.report.messages_per_s, after.report.bytes_per_s) == (
        before.report.messages_per_s,
        before.report.bytes_per_s,
    )
    for column in ("resources", "traffic", "has_traffic", "counts"):
        was, is_ = getattr(before.report, column), getattr(after.report, column)
        assert (was.dtype, was.shape, was.tolist()) == (is_.dtype, is_.shape, is_.tolist())


@pytest.mark.parametrize(
    "bundles", [{"t/n/0x0_0x1": {"persistent://t/n/a\n": 1.5, "ü": 0.0}, "t/n/0x1_0x2": {}}, {}]
)
def test_waiting_topic_statistics_come_back_as_they_were(bundles: dict[str, dict[str, float]]):
    event = statistics("b1", 5, bundles)
    before = WaitingTopics(event.time_ms, event.id, event.traffic)
    after = decode_topics(encode_topics(before))
    assert (after.time_ms, after.id) == (before.time_ms, before.id)
    assert (after.traffic.bundles, after.traffic.topics) == (before.traffic.bundles, before.traffic.topics)
    for column in ("counts", "messages_per_s", "bytes_per_s"):
        was, is_ = getattr(before.traffic, column), getattr(after.traffic, column)
        assert (was.dtype, was.shape, was.tolist()) == (is_.dtype, is_.shape, is_.tolist())


def test_equal_memory_has_equal_bytes():
    assert encode_header(pulsar_header()) == encode_header(decode_header(encode_header(pulsar_header())))
    assert encode_fleet(full_fleet()) == encode_fleet(decode_fleet(encode_fleet(full_fleet())))


def test_memory_with_rounds_of_another_length_is_refused_with_the_way_out():
    store = DictStore()
    run([[load("b1", 5)]], settings_of(), store=store)
    other = settings_of(rounds={"length_s": 20.0})
    with pytest.raises(RoundLengthError, match=r"rounds of 10 s, the settings say length_s = 20.*--fresh"):
        Controller(CLUSTER, store, identity=Identity(), settings=other)


def test_reports_of_a_round_that_closes_within_its_batch_never_touch_the_store():
    class CountingStore(DictStore):
        put_count = 0

        def put_waiting(self, key: StoredKey, value: bytes) -> None:
            self.put_count += 1
            super().put_waiting(key, value)

    store = CountingStore()
    controller = Controller(CLUSTER, store, identity=Identity(), settings=settings_of())
    for event in (
        load("b1", 5),
        load("b2", 5),
        statistics("b1", 5, {}),
        sweep(15),
        load("b1", 16),
        statistics("b1", 16, {}),
    ):
        controller.step(event)
    controller.commit()
    assert store.put_count == 1
    ((key, value),) = store.all_waiting()
    assert key.round == 1
    assert [(each.kind, each.broker) for each in decode_batch(value)] == [("report", "b1"), ("topics", "b1")]


def test_nothing_of_a_closed_round_stays_in_the_store():
    store = DictStore()
    run(
        [
            [load("b1", 5), load("b2", 6), statistics("b3", 6, {})],
            [load("b1", 5.5), sweep(15)],
            [sweep(16), statistics("b1", 21, {})],
            [sweep(35)],
        ],
        settings_of(),
        store=store,
    )
    assert list(store.all_waiting()) == []
    header = store.header()
    assert header is not None
    assert decode_header(header).rounds == {}
