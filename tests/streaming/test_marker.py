"""What a starting controller writes, and how it treats a batch that may be published already."""

import pytest

from streaming.transport.errors import CheckpointMismatch, StartWith
from streaming.transport.publishing import (
    BatchState,
    Checkpoint,
    Marker,
    RanWith,
    compare_batch,
    decode_marker,
    encode_marker,
    next_start,
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
def test_the_epoch_is_above_every_one_there_was(
    marker_epoch: int | None, start_epoch: int, now_s: float, wanted: int
) -> None:
    marker = (
        None
        if marker_epoch is None
        else Marker(query_id=None, batch_id=None, digest=None, epoch=marker_epoch)
    )
    assert started(marker, at(None, None, start_epoch), now_s=now_s).epoch == wanted


def test_fresh_ends_the_query_that_was_published_and_the_one_that_is_moved_aside() -> None:
    fresh = started(OUT, at("restored", 3), start_with="fresh")
    assert (fresh.query_id, fresh.over) == (None, ("q", "restored"))
    for query_id in ("q", "restored"):
        with pytest.raises(CheckpointMismatch, match="a query that is over"):
            started(fresh, at(query_id, 9))
        with pytest.raises(CheckpointMismatch, match="another query"):
            compare_batch(fresh, batch_id=9, query_id=query_id, batch_digest="d", version="1")
    assert started(fresh, at("new", 0)).over == ("q", "restored")
    assert started(fresh, at("q", 9), start_with="adopt").over == ("restored",)


def test_queries_that_are_over_are_remembered_up_to_a_hundred() -> None:
    marker = OUT
    for number in range(120):
        marker = started(marker, at(f"query-{number}", 0), start_with="fresh")
    assert len(marker.over) == 100
    assert marker.over[-1] == "query-119"


def test_a_marker_without_optional_fields_reads_and_is_written_as_before() -> None:
    before = b'{"query_id":"q","batch_id":7,"digest":"d","epoch":3}'
    marker = decode_marker(before, topic="t", offset=0)
    assert (marker.over, marker.ran_with) == ((), None)
    assert encode_marker(marker) == before
    assert decode_marker(encode_marker(OUT), topic="t", offset=0) == OUT


def test_a_marker_with_what_only_a_newer_version_knows_is_read() -> None:
    newer = encode_marker(OUT)[:-1] + b',"what_comes_next":{"at":1}}'
    assert decode_marker(newer, topic="t", offset=0) == OUT


@pytest.mark.parametrize(
    ("digest", "version", "wanted"),
    [("d", "1", BatchState.OUT), ("d", "2", BatchState.OUT), ("other", "2", BatchState.OTHERWISE)],
    ids=["the same", "the same from another version", "another version's"],
)
def test_a_batch_that_is_out_is_not_published_again(digest: str, version: str, wanted: BatchState) -> None:
    found = compare_batch(OUT, batch_id=7, query_id="q", batch_digest=digest, version=version)
    assert found is wanted
    assert not found


def test_the_same_version_and_settings_have_to_make_the_same_of_a_batch_unless_it_is_adopted() -> None:
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


def test_adopting_an_older_checkpoint_publishes_what_it_does_not_know() -> None:
    adopted = started(OUT, at("q", 6), start_with="adopt")
    assert compare_batch(adopted, batch_id=7, query_id="q", batch_digest="d", version="1") is BatchState.NEW
