"""A cluster's memory is stored packed and read as it was, also what an earlier trimtab stored plain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.layouts import VERSION, NewerStateError, unseal
from state.memory import Header, encode_header
from streaming.spark.operator import pack, unpack

LONG = bytes([VERSION]) + b"tenant/namespace/0x00000000_0x10000000\n" * 100


@given(value=st.binary(max_size=2000).map(lambda rest: bytes([VERSION]) + rest))
def test_what_is_packed_is_read_as_it_was(value: bytes) -> None:
    assert unpack(pack(value)) == value
    assert unpack(bytearray(pack(value))) == value


@pytest.mark.parametrize("value", [LONG, encode_header(Header(length_ms=60_000))])
def test_what_was_stored_plain_is_read(value: bytes) -> None:
    assert unpack(value) == value


def test_names_take_a_fraction_of_their_bytes() -> None:
    assert len(pack(LONG)) < len(LONG) / 10


def test_a_trimtab_that_knows_no_packed_values_says_that_a_newer_one_wrote_them() -> None:
    with pytest.raises(NewerStateError, match="written by a newer trimtab"):
        unseal("header", pack(LONG))
