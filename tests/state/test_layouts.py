"""The encoding of a cluster's memory: what goes in comes out, newer layouts are refused, older ones upgraded."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from policies.columns import Ints
from policies.costs import CostMemory
from state import layouts
from state.closing import Identity
from state.controller import Controller, RoundLengthError
from state.layouts import VERSION, NewerStateError, OlderStateError, body_decoder, seal, unseal
from state.memory import Header, decode_header, encode_header
from state.pulsar.memory import Fleet
from state.report_buffer import decode_batch
from state.store import DictStore, StoredKey
from state.systems import decode_memory
from tests.state.samples import BUNDLES, SAMPLES, pulsar_header
from tests.state.samples import fleet as full_fleet
from tests.state.traces import CLUSTER, load, run, settings_of, statistics, sweep


@pytest.mark.parametrize("name", ["header-pulsar", "kafka-memory"])
def test_the_samples_leave_no_field_at_its_default(name: str) -> None:
    """A field that nobody fills would not show that it is stored."""
    early = {"early"}  # only before the system is known: header-early
    left = [each for each in _defaulted(SAMPLES[name].build()) if each not in early]
    assert not left, f"fill these in tests/state/samples.py: {left}"


@pytest.mark.parametrize("name", SAMPLES)
def test_what_was_stored_is_stored_again_in_the_same_bytes(name: str) -> None:
    sample = SAMPLES[name]
    stored = sample.encode(sample.build())
    assert sample.encode(sample.decode(stored)) == stored


def test_memory_of_an_older_version_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(kind: layouts.Kind, body: Any) -> Any:
        return [*body[:3], 7, *body[4:]] if kind == "header" else body

    before = encode_header(pulsar_header())
    monkeypatch.setattr(layouts, "VERSION", VERSION + 2)
    monkeypatch.setitem(layouts.UPGRADES, VERSION, named)
    monkeypatch.setitem(layouts.UPGRADES, VERSION + 1, lambda _, body: body)
    after = decode_header(before)
    assert after == msgspec.structs.replace(pulsar_header(), partition=7)
    assert encode_header(after)[0] == VERSION + 2


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_of_a_newer_trimtab_is_refused_with_the_way_out(name: str) -> None:
    newer = bytes([VERSION + 1]) + b"whatever it may be"
    with pytest.raises(
        NewerStateError, match=rf"version {VERSION + 1}, this one knows {VERSION}.*newer one.*--fresh"
    ):
        SAMPLES[name].decode(newer)


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_that_nothing_upgrades_is_refused_with_the_way_out(name: str) -> None:
    sample = SAMPLES[name]
    older = bytes([1]) + sample.encode(sample.build())[1:]
    with pytest.raises(OlderStateError, match=rf"version 1, this one reads {VERSION}.*--fresh"):
        sample.decode(older)


def _defaulted(value: Any) -> list[str]:
    if is_dataclass(value):
        return [
            each.name
            for each in fields(value)
            if getattr(value, each.name)
            == (each.default if each.default_factory is MISSING else each.default_factory())
        ]
    assert isinstance(value, Header)
    empty = Header(length_ms=0)
    return [name for name in Header.__struct_fields__ if getattr(value, name) == getattr(empty, name)]


class Held(msgspec.Struct):
    column: Ints


@pytest.mark.parametrize(
    ("column", "most_bytes"),
    [
        (np.zeros(1000, dtype=np.int64), 0),
        (np.zeros((500, 2)), 0),
        (np.zeros(1001, dtype=np.bool_), 0),
        (np.zeros((0, 2), dtype=np.int64), 0),
        (np.zeros(3), 24),
        (np.array([True, False, True] * 3), 2),
        (np.array([[0, 255], [1, 2]]), 4),
        (np.array([0, 256]), 4),
        (np.array([0, 65_535]), 4),
        (np.array([0, 65_536]), 8),
        (np.array([0, 2**32 - 1]), 8),
        (np.array([0, 2**32]), 16),
        (np.array([-1, 5]), 8),
        (np.array([-(2**31) - 1]), 8),
        (np.array([2**63 - 1, -(2**63)]), 16),
        (np.array([0.1, -2.5e300]), 16),
    ],
    ids=[
        *("zeros", "a table of zeros", "falses", "no rows", "few zeros", "truths"),
        *("one byte", "just two bytes", "two bytes", "just four bytes", "four bytes", "just eight bytes"),
        *("negative", "far below zero", "the ends", "floats"),
    ],
)
def test_a_column_comes_back_with_its_type_and_shape_from_few_bytes(
    column: NDArray[Any], most_bytes: int
) -> None:
    stored = seal(Held(column))
    found = body_decoder(Held).decode(unseal("fleet", stored)).column
    assert (found.dtype, found.shape, found.tolist()) == (column.dtype, column.shape, column.tolist())
    about = 24  # version, shape and type
    assert len(stored) <= about + most_bytes


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
    before, after = build(), decode_memory("pulsar", seal(build()))
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
    before, after = event, SAMPLES["waiting-report"].decode(seal(event))
    assert (after.time_ms, after.id, after.broker) == (before.time_ms, before.id, before.broker)
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
    before, after = event, SAMPLES["waiting-topics"].decode(seal(event))
    assert (after.time_ms, after.id, after.broker) == (before.time_ms, before.id, before.broker)
    assert (after.traffic.bundles, after.traffic.topics) == (before.traffic.bundles, before.traffic.topics)
    for column in ("counts", "messages_per_s", "bytes_per_s"):
        was, is_ = getattr(before.traffic, column), getattr(after.traffic, column)
        assert (was.dtype, was.shape, was.tolist()) == (is_.dtype, is_.shape, is_.tolist())


def test_equal_memory_has_equal_bytes():
    assert encode_header(pulsar_header()) == encode_header(decode_header(encode_header(pulsar_header())))
    assert seal(full_fleet()) == seal(decode_memory("pulsar", seal(full_fleet())))


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
