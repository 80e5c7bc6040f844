"""A batch is sent in pieces: nothing is left out, nothing changes its place, no piece is too large to be waited for."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from streaming.transport.publishing import OutboundRecord, pieces

records = st.lists(st.builds(OutboundRecord, st.just("t"), st.just("k"), st.binary(max_size=30)), max_size=40)


@given(batch=records, most_bytes=st.integers(min_value=0, max_value=100))
def test_pieces_hold_every_record_in_its_place(batch: list[OutboundRecord], most_bytes: int) -> None:
    cut = list(pieces(batch, most_bytes=most_bytes))
    assert list(chain.from_iterable(cut)) == batch
    assert all(
        len(piece) == 1
        or 0 < sum(len(record.value) for record in piece) <= most_bytes
        or not any(r.value for r in piece)
        for piece in cut
    )
    assert all(cut)
