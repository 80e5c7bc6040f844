"""A cluster's records of a micro-batch come in source order and take bounded memory, however large they are."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.encode import Origin
from streaming.spark.deciding import in_source_order
from streaming.transport.intake import Record

MIB = 1024 * 1024


def record(offset: int, value: bytes | None, key: str = "east-1") -> Record:
    return Record(
        value=value, origin=Origin("input", 0, offset), key=key, appended_ms=offset, is_control=False
    )


def chunks(whole: Record, size: int) -> list[tuple[Record, int]]:
    value = whole.value or b""
    if len(value) <= size:
        return [(whole, 0)]
    starts = range(0, len(value), size)
    return [
        (replace(whole, value=value[start : start + size]), number) for number, start in enumerate(starts)
    ]


@given(
    values=st.lists(st.none() | st.binary(max_size=40), max_size=30),
    in_memory_bytes=st.integers(min_value=0, max_value=200),
    chunk_bytes=st.integers(min_value=1, max_value=50),
    shuffled=st.randoms(use_true_random=False),
)
def test_the_order_and_every_field_are_the_same_whatever_waits_in_the_file(
    values: list[bytes | None], in_memory_bytes: int, chunk_bytes: int, shuffled: object
) -> None:
    wanted = [record(offset, value) for offset, value in enumerate(values)]
    parts = [part for each in wanted for part in chunks(each, chunk_bytes)]
    shuffled.shuffle(parts)  # type: ignore[attr-defined]
    assert list(in_source_order(parts, in_memory_bytes=in_memory_bytes)) == wanted


def test_control_comes_first_whatever_its_topic_is_called() -> None:
    load = record(0, b"load")
    control = replace(load, origin=Origin("z-control", 3, 9), is_control=True)
    assert list(in_source_order([(load, 0), (control, 0)])) == [control, load]


def test_two_hundred_records_of_a_mebibyte_take_the_memory_of_a_few() -> None:
    def many() -> Iterator[tuple[Record, int]]:
        for offset in reversed(range(200)):
            yield record(offset, offset.to_bytes(4, "big") * (MIB // 4)), 0

    tracemalloc.start()
    try:
        found = [
            int.from_bytes(each.value[:4], "big")
            for each in in_source_order(many(), in_memory_bytes=4 * MIB)
            if each.value is not None and len(each.value) == MIB
        ]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == list(range(200))
    assert peak_bytes < 12 * MIB


def test_a_chunk_in_the_file_leaves_tens_of_bytes_in_memory() -> None:
    def many() -> Iterator[tuple[Record, int]]:
        for offset in range(100):
            yield from chunks(record(offset, b"x" * 2_000, key="".join(["east", str(offset)])), 10)

    tracemalloc.start()
    try:
        found = in_source_order(many(), in_memory_bytes=0)
        assert next(found).value == b"x" * 2_000
        left_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left_bytes < 60 * 100 * 200


def test_an_ordinary_batch_never_touches_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    few = [(record(offset, b"x" * 4_000), 0) for offset in range(2_000)]
    assert len(list(in_source_order(few))) == 2_000


def test_the_file_lies_where_spark_keeps_its_own_and_is_gone_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    assert [each.value for each in in_source_order([(record(0, b"abc"), 0)], in_memory_bytes=1)] == [b"abc"]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere")
    with pytest.raises(FileNotFoundError):
        list(in_source_order([(record(0, b"abc"), 0)], in_memory_bytes=1))
