"""The encoding of a cluster's memory: what goes in comes out, and what a newer trimtab wrote is refused."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from policies.shedding.avg_shedder import AvgShedderMemory
from policies.shedding.threshold_shedder import ThresholdShedderMemory
from state.controller import Controller, RoundLengthError
from state.encoding import (
    VERSION,
    NewerStateError,
    decode_fleet,
    decode_header,
    decode_report,
    decode_topics,
    encode_fleet,
    encode_header,
    encode_report,
    encode_topics,
)
from state.facts import Facts, FactsRecord, Isolation
from state.memory import (
    ControlRecord,
    Fleet,
    Header,
    OpenRound,
    ResultRecord,
    TickRecord,
    WaitingReport,
    WaitingTopics,
)
from state.past import Ineffective, PastAction, PastSplit, PastUnloads, Trial, Verdict
from state.rounds import Identity
from state.store import DictStore, WaitingKey
from tests.state.traces import CLUSTER, load, run, settings_of, statistics, sweep

BUNDLES = {"t/ü/0x0_0x1": 1.5, "t/n/0x1_0x2": None, "t/n/0x2_0x3": 0.0}


def full_header() -> Header:
    known = Facts(["b1"], [], ["b2"], [Isolation("p", ["t/.*"], ["b1"])], {"g": ["t/n", "t/ü"]})
    control = ControlRecord(5, "c", True, "act", b'{"pulsar":{}}', "ann", "why", 3, True, 4)
    tick = TickRecord(7, "t", ("b1", "b2"), (("b2", "timeout"),))
    results = [ResultRecord(8, "r", "a1", "failed"), ResultRecord(9, "r", "a2", "succeeded")]
    return Header(
        length_ms=60_000,
        newest_ms=-5,
        next_round=-1,
        partition=3,
        is_known=True,
        rounds={
            -1: OpenRound(),
            4: OpenRound([(1, 2), (9, 9)], tick, results, True, FactsRecord(3, "f", known)),
        },
        last_summary=2,
        last_report_ms=11,
        rounds_since_start=8,
        last_mode="dry-run",
        control=[control],
        actions={"t/n/0x0_0x1": PastAction("a1", 1, 2, True, False, True)},
        unloads=[PastUnloads(1, 20, False)],
        splits={"t/n/0x1_0x2": PastAction("a2", 1, 2, False)},
        inheritances={"t/n/0x1_0x2": PastSplit(9, [("t/n/0x00000001_0x00000002", 0.5, 0.25)])},
        trials={"a1": Trial("split", "t/n/0x0_0x1", "b1", None, ["t/n/0x0_0x0"], 1, 2, 3, 2)},
        verdicts=[Verdict("a0", "ineffective", 1)],
        ineffective={"t/n/0x1_0x2": Ineffective("unload", "b1", 1, 3)},
        failing_since_ms=1,
        facts=known,
    )


def full_fleet() -> Fleet:
    fleet = Fleet()
    fleet.brokers = ["b1\n", "ü"]
    fleet.broker_last_ms = np.array([5, -6])
    fleet.starts = np.array([0, 2, 3])
    fleet.listed_rows = np.array([0, 1, 1])
    fleet.run_start_ms = np.array([1, 2, 2**50])
    fleet.bundles = list(BUNDLES)
    fleet.owner = np.array([1, -1, 0])
    fleet.averages = np.arange(12.0).reshape(3, 4) / 3
    fleet.samples = np.array([0, 3, 1000])
    fleet.last_ms = np.array([4, 5, 6])
    fleet.owed_skip = np.array([True, False, True])
    fleet.avg_shedder = AvgShedderMemory(low_hits={"b1\n": 3}, high_hits={"ü": 1})
    fleet.threshold_shedder = ThresholdShedderMemory(history_ratio={"ü": 0.1 + 0.2})
    fleet.namespaces = ["t/ü", "t/n"]
    fleet.namespace = np.array([0, 1, 1])
    fleet.split_averages = np.arange(6.0).reshape(3, 2) / 3
    fleet.split_samples = np.array([1, 0, 1000])
    fleet.split_hits = np.array([0, 7, 1])
    return fleet


def fleet_without_splits() -> Fleet:
    fleet = full_fleet()
    for name in ("split_averages", "split_samples", "split_hits"):
        setattr(fleet, name, np.zeros_like(getattr(fleet, name)))
    return fleet


def test_a_header_comes_back_as_it_was():
    assert decode_header(encode_header(full_header())) == full_header()
    assert decode_header(encode_header(Header(length_ms=1))) == Header(length_ms=1)


def test_a_header_that_knew_of_no_effects_is_read_with_none():
    """Written before actions were judged: shorter arrays, the same version."""
    header = full_header()
    fields = [getattr(header, name) for name in Header.__struct_fields__]
    older = fields[: Header.__struct_fields__.index("trials")]
    read = decode_header(bytes([VERSION]) + msgspec.msgpack.encode(older))
    assert (read.trials, read.verdicts, read.ineffective, read.failing_since_ms) == ({}, [], {}, None)
    assert read.actions == header.actions


@pytest.mark.parametrize("build", [full_fleet, fleet_without_splits, Fleet])
def test_a_fleet_comes_back_as_it_was(build: Callable[[], Fleet]):
    before, after = build(), decode_fleet(encode_fleet(build()))
    for name in Fleet.__slots__:
        was, is_ = getattr(before, name), getattr(after, name)
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
    assert encode_header(full_header()) == encode_header(decode_header(encode_header(full_header())))
    assert encode_fleet(full_fleet()) == encode_fleet(decode_fleet(encode_fleet(full_fleet())))


@pytest.mark.parametrize("decode", [decode_header, decode_fleet, decode_report, decode_topics])
def test_memory_of_a_newer_trimtab_is_refused_with_the_way_out(decode: Callable[[bytes], object]):
    newer = bytes([VERSION + 1]) + b"whatever it may be"
    with pytest.raises(
        NewerStateError, match=rf"version {VERSION + 1}, this trimtab knows {VERSION}.*--fresh"
    ):
        decode(newer)


def test_memory_with_rounds_of_another_length_is_refused_with_the_way_out():
    store = DictStore()
    run([[load("b1", 5)]], settings_of(), store=store)
    other = settings_of(rounds={"length_s": 20.0})
    with pytest.raises(RoundLengthError, match=r"rounds of 10 s, the settings say length_s = 20.*--fresh"):
        Controller(CLUSTER, store, identity=Identity(), settings=other)


def test_reports_of_a_round_that_closes_within_its_batch_never_touch_the_store():
    class CountingStore(DictStore):
        put_count = 0

        def put_waiting(self, key: WaitingKey, value: bytes) -> None:
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
    assert store.put_count == 2
    assert [key for key, _ in store.all_waiting()] == [(1, "report", "b1"), (1, "topics", "b1")]


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
