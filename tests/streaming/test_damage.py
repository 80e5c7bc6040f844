"""Torn files of Spark's logs are recognized."""

import pytest

from streaming.spark.probes import is_whole

OFFSETS = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"topic":{"0":7}}\n-'


def test_whole_files_are_left_alone() -> None:
    assert is_whole(OFFSETS)
    assert is_whole(b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}')


@pytest.mark.parametrize("content", [b"", b"v1", b"\x00\x00\x00", OFFSETS[:20], OFFSETS[:-4], b"\xff\xfe"])
def test_empty_and_torn_ones_are_found(content: bytes) -> None:
    assert not is_whole(content)
