"""What a controller on Pulsar commits: producer names and sequence ids by which a re-run is dropped, but not a new start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.pulsar.commits import decode_commit, encode_commit, producer_name, sequence_id
from streaming.transport.errors import CheckpointMismatch, StartWith
from streaming.transport.publishing import (
    UNNAMED,
    Checkpoint,
    Commit,
    Marker,
    begin_batch,
    finish_batch,
    next_commit,
)

NEW = Checkpoint(query_id=None, last_batch_id=None)
KNOWN = Checkpoint(query_id="q", last_batch_id=7)
OLDER = Checkpoint(query_id="q", last_batch_id=6)
NAME = "trimtab"

batch_ids = st.integers(0, 2**31 - 1)
places = st.integers(0, 2**31 - 1)


def claim(
    commit: Commit | None,
    checkpoint: Checkpoint,
    start_with: StartWith = "checkpoint",
) -> Commit:
    return next_commit(commit, checkpoint, name=NAME, start_with=start_with, now_s=0.0)


@given(st.tuples(batch_ids, places), st.tuples(batch_ids, places))
def test_sequence_ids_rise_with_batch_and_place_and_are_never_zero(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (sequence_id(*one) < sequence_id(*other)) == (one < other)
    assert 0 < sequence_id(*one) < 2**63


def test_a_restart_keeps_the_producers_name_and_what_was_begun_and_only_the_epoch_rises() -> None:
    first = claim(None, NEW)
    batch = begin_batch(first, batch_id=7, query_id="q", batch_digest="d")
    again = claim(batch, KNOWN)
    assert again == Commit(
        marker=Marker(query_id="q", batch_id=7, digest="d", epoch=2), lineage=1, is_whole=False
    )
    assert producer_name(NAME, first) == producer_name(NAME, again) == "trimtab/1"
    assert claim(finish_batch(batch), KNOWN).is_whole


@pytest.mark.parametrize(("checkpoint", "start_with"), [(NEW, "fresh"), (OLDER, "adopt")])
def test_a_start_that_forgets_what_was_published_gets_another_producer_name(
    checkpoint: Checkpoint, start_with: StartWith
) -> None:
    before = begin_batch(claim(None, NEW), batch_id=7, query_id="q", batch_digest="d")
    anew = claim(before, checkpoint, start_with)
    assert producer_name(NAME, anew) == "trimtab/2"
    assert anew.marker.batch_id is None
    assert anew.is_whole


def test_adopt_keeps_a_batch_that_was_begun_and_forgets_what_it_ran_with() -> None:
    before = begin_batch(claim(None, NEW), batch_id=7, query_id="q", batch_digest="d", ran_with=UNNAMED)
    adopted = claim(before, KNOWN, "adopt")
    assert (adopted.marker.batch_id, adopted.marker.digest, adopted.marker.ran_with) == (7, "d", None)
    assert not adopted.is_whole
    assert producer_name(NAME, adopted) == producer_name(NAME, before)


def test_a_batch_that_was_only_begun_counts_when_the_checkpoint_is_compared() -> None:
    before = begin_batch(claim(None, NEW), batch_id=8, query_id="q", batch_digest="d")
    with pytest.raises(CheckpointMismatch, match="older than what was published"):
        claim(before, KNOWN)


def test_what_is_written_down_reads_back_and_anything_else_is_refused_by_name() -> None:
    commit = begin_batch(claim(None, NEW), batch_id=3, query_id="q", batch_digest="d")
    assert decode_commit(encode_commit(commit), topic="t") == commit
    with pytest.raises(CheckpointMismatch, match="last message of t is not a marker"):
        decode_commit(b'{"epoch": 1}', topic="t")
