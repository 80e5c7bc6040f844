"""What a starting controller writes on Kafka and Pulsar, how it treats a batch that may be published already, and who was fenced."""

from collections.abc import Callable
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.controller.leadership import take_over
from streaming.pulsar.commits import decode_commit, encode_commit, producer_name, sequence_id
from streaming.settings import Settings
from streaming.transport.errors import CheckpointError, CheckpointMismatch, Fenced, PublishError, StartWith
from streaming.transport.publishing import (
    UNNAMED,
    BatchState,
    Checkpoint,
    Commit,
    Marker,
    OutboundRecord,
    RanWith,
    begin_batch,
    compare_batch,
    decode_marker,
    encode_marker,
    finish_batch,
    next_commit,
    next_start,
    pieces,
)

NOW_S = 1_700_000_000.9
OUT = Marker(
    query_id="q", batch_id=7, digest="d", epoch=1_700_000_000, ran_with=RanWith(version="1", settings="s")
)


def started(
    marker: Marker | None,
    checkpoint: Checkpoint,
    *,
    start_with: StartWith = "checkpoint",
    now_s: float = NOW_S,
) -> Marker:
    return next_start(marker, checkpoint, name="trimtab", start_with=start_with, now_s=now_s)


def at(query_id: str | None, last_batch_id: int | None, epoch: int = 0) -> Checkpoint:
    return Checkpoint(query_id=query_id, last_batch_id=last_batch_id, epoch=epoch)


@pytest.mark.parametrize(
    ("marker_epoch", "start_epoch", "now_s", "wanted"),
    [
        pytest.param(None, 0, 1_000.9, 1_000, id="a first start"),
        pytest.param(7, 0, 1_000.9, 1_000, id="a marker from before epochs were seconds"),
        pytest.param(1_000, 1_000, 1_000.9, 1_001, id="twice within a second"),
        pytest.param(2_000, 2_000, 1_000.9, 2_001, id="a clock that went back"),
        pytest.param(None, 2_000, 1_000.9, 2_001, id="a clock that went back, and the commits topic lost"),
    ],
)
def test_the_epoch_is_above_all_before(marker_epoch: int | None, start_epoch: int, now_s: float, wanted: int):
    marker = (
        None
        if marker_epoch is None
        else Marker(query_id=None, batch_id=None, digest=None, epoch=marker_epoch)
    )
    assert started(marker, at(None, None, start_epoch), now_s=now_s).epoch == wanted


def test_fresh_ends_the_query_that_was_published_and_the_one_that_is_moved_aside():
    fresh = started(OUT, at("restored", 3), start_with="fresh")
    assert (fresh.query_id, fresh.over) == (None, ("q", "restored"))
    for query_id in ("q", "restored"):
        with pytest.raises(CheckpointMismatch, match="a query that is over"):
            started(fresh, at(query_id, 9))
        with pytest.raises(CheckpointMismatch, match="another query"):
            compare_batch(fresh, batch_id=9, query_id=query_id, batch_digest="d", version="1")
    assert started(fresh, at("new", 0)).over == ("q", "restored")
    assert started(fresh, at("q", 9), start_with="adopt").over == ("restored",)


def test_queries_that_are_over_are_remembered_up_to_a_hundred():
    marker = OUT
    for number in range(120):
        marker = started(marker, at(f"query-{number}", 0), start_with="fresh")
    assert len(marker.over) == 100
    assert marker.over[-1] == "query-119"


def test_a_marker_without_optional_fields_reads_and_is_written_as_before():
    before = b'{"query_id":"q","batch_id":7,"digest":"d","epoch":3}'
    marker = decode_marker(before, topic="t", offset=0)
    assert (marker.over, marker.ran_with) == ((), None)
    assert encode_marker(marker) == before
    assert decode_marker(encode_marker(OUT), topic="t", offset=0) == OUT


def test_a_marker_with_what_only_a_newer_version_knows_is_read():
    newer = encode_marker(OUT)[:-1] + b',"what_comes_next":{"at":1}}'
    assert decode_marker(newer, topic="t", offset=0) == OUT


@pytest.mark.parametrize(
    ("digest", "version", "wanted"),
    [("d", "1", BatchState.OUT), ("d", "2", BatchState.OUT), ("other", "2", BatchState.OTHERWISE)],
    ids=["the same", "the same from another version", "another version's"],
)
def test_a_batch_that_is_out_is_not_published_again(digest: str, version: str, wanted: BatchState):
    found = compare_batch(OUT, batch_id=7, query_id="q", batch_digest=digest, version=version)
    assert found is wanted
    assert not found


def test_the_same_version_and_settings_have_to_make_the_same_of_a_batch_unless_it_is_adopted():
    with pytest.raises(CheckpointMismatch, match="published with other contents"):
        compare_batch(OUT, batch_id=7, query_id="q", batch_digest="other", version="1")
    adopted = started(OUT, at("q", 7), start_with="adopt")
    assert (
        compare_batch(adopted, batch_id=7, query_id="q", batch_digest="other", version="1")
        is BatchState.OTHERWISE
    )
    assert (
        compare_batch(adopted, batch_id=8, query_id="q", batch_digest="other", version="1") is BatchState.NEW
    )


def test_adopting_an_older_checkpoint_publishes_what_it_does_not_know():
    adopted = started(OUT, at("q", 6), start_with="adopt")
    assert compare_batch(adopted, batch_id=7, query_id="q", batch_digest="d", version="1") is BatchState.NEW


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def taken_over(ensure_owner: Callable[[], None], *, close: Callable[[], None] = lambda: None) -> int:
    """Take over with a checkpoint whose directory cannot be made."""
    publisher: Any = SimpleNamespace(
        check=lambda *_, **__: None,
        open=lambda *_, **__: 7,
        marker=None,
        ensure_owner=ensure_owner,
        close=close,
    )
    checkpoint: Any = SimpleNamespace(begin=raising(CheckpointError("it is changed by somebody else")))
    return take_over(checkpoint, publisher, Settings(), start_with="checkpoint")


def test_who_is_overtaken_while_the_checkpoint_is_copied_was_fenced():
    with pytest.raises(Fenced):
        taken_over(raising(Fenced("another controller has taken over")))


def test_a_checkpoint_that_cannot_be_copied_is_refused():
    with pytest.raises(CheckpointError, match="somebody else"):
        taken_over(lambda: None)


@pytest.mark.parametrize("asked", [lambda: None, raising(PublishError("no answer"))])
def test_a_take_over_that_is_tried_again_leaves_no_connection_open(asked: Callable[[], None]):
    closed: list[bool] = []
    with pytest.raises((CheckpointError, PublishError)):
        taken_over(asked, close=lambda: closed.append(True))
    assert closed == [True]


NEW = Checkpoint(query_id=None, last_batch_id=None)
KNOWN = Checkpoint(query_id="q", last_batch_id=7)
OLDER = Checkpoint(query_id="q", last_batch_id=6)
NAME = "trimtab"

batch_ids = st.integers(0, 2**31 - 1)
places = st.integers(0, 2**31 - 1)


def claim(commit: Commit | None, checkpoint: Checkpoint, start_with: StartWith = "checkpoint") -> Commit:
    return next_commit(commit, checkpoint, name=NAME, start_with=start_with, now_s=0.0)


@given(st.tuples(batch_ids, places), st.tuples(batch_ids, places))
def test_sequence_ids_rise_with_batch_and_place_from_above_zero(one: tuple[int, int], other: tuple[int, int]):
    assert (sequence_id(*one) < sequence_id(*other)) == (one < other)
    assert 0 < sequence_id(*one) < 2**63


def test_a_restart_keeps_the_producers_name_and_what_was_begun_and_only_the_epoch_rises():
    first = claim(None, NEW)
    batch = begin_batch(first, batch_id=7, query_id="q", batch_digest="d")
    again = claim(batch, KNOWN)
    assert again == Commit(
        marker=Marker(query_id="q", batch_id=7, digest="d", epoch=2), lineage=1, is_whole=False
    )
    assert producer_name(NAME, first) == producer_name(NAME, again) == "trimtab/1"
    assert claim(finish_batch(batch), KNOWN).is_whole


@pytest.mark.parametrize(("checkpoint", "start_with"), [(NEW, "fresh"), (OLDER, "adopt")])
def test_a_start_that_forgets_gets_another_producer_name(checkpoint: Checkpoint, start_with: StartWith):
    before = begin_batch(claim(None, NEW), batch_id=7, query_id="q", batch_digest="d")
    anew = claim(before, checkpoint, start_with)
    assert producer_name(NAME, anew) == "trimtab/2"
    assert anew.marker.batch_id is None
    assert anew.is_whole


def test_adopt_keeps_a_batch_that_was_begun_and_forgets_what_it_ran_with():
    before = begin_batch(claim(None, NEW), batch_id=7, query_id="q", batch_digest="d", ran_with=UNNAMED)
    adopted = claim(before, KNOWN, "adopt")
    assert (adopted.marker.batch_id, adopted.marker.digest, adopted.marker.ran_with) == (7, "d", None)
    assert not adopted.is_whole
    assert producer_name(NAME, adopted) == producer_name(NAME, before)


def test_a_batch_that_was_only_begun_counts_when_the_checkpoint_is_compared():
    before = begin_batch(claim(None, NEW), batch_id=8, query_id="q", batch_digest="d")
    with pytest.raises(CheckpointMismatch, match="older than what was published"):
        claim(before, KNOWN)


def test_what_is_written_down_reads_back_and_anything_else_is_refused_by_name():
    commit = begin_batch(claim(None, NEW), batch_id=3, query_id="q", batch_digest="d")
    assert decode_commit(encode_commit(commit), topic="t") == commit
    with pytest.raises(CheckpointMismatch, match="last message of t is not a marker"):
        decode_commit(b'{"epoch": 1}', topic="t")


records = st.lists(st.builds(OutboundRecord, st.just("t"), st.just("k"), st.binary(max_size=30)), max_size=40)


@given(batch=records, most_bytes=st.integers(min_value=0, max_value=100))
def test_pieces_hold_every_record_in_its_place(batch: list[OutboundRecord], most_bytes: int):
    cut = list(pieces(batch, most_bytes=most_bytes))
    assert list(chain.from_iterable(cut)) == batch
    assert all(
        len(piece) == 1
        or 0 < sum(len(record.value) for record in piece) <= most_bytes
        or not any(r.value for r in piece)
        for piece in cut
    )
    assert all(cut)


@pytest.mark.parametrize(("checkpoint", "offers_adopt"), [(at("q", 3), True), (at(None, None), False)])
def test_a_start_that_is_refused_offers_to_adopt_a_checkpoint_only_where_there_is_one(
    checkpoint: Checkpoint, *, offers_adopt: bool
):
    with pytest.raises(CheckpointMismatch, match="start with --fresh") as refused:
        started(OUT, checkpoint)
    assert ("--adopt" in str(refused.value)) is offers_adopt
