"""A split of several cuts is carried out as its load manager needs it."""

import json
from collections.abc import Callable, Iterator

import pytest

from streaming.executor.orders import Done
from tests.streaming.http_broker import http_brokers
from tests.streaming.test_carry_out import MIDDLE, OK, Cluster


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    """A function that makes clusters."""
    with http_brokers() as make:
        yield lambda answers, takes, **more: Cluster(make, answers, takes, **more)


def test_an_extensible_load_manager_is_asked_for_one_cut_after_the_other(
    cluster: Callable[..., Cluster],
) -> None:
    there = cluster(answers=[OK, OK, OK], takes=0, is_one_by_one=True)
    done = there.split(0x10000000, 0x20000000, MIDDLE)
    assert isinstance(done, Done)
    assert done.outcome == "succeeded"
    cuts = [
        (asked.path.partition("/split")[0].rpartition("/")[2], json.loads(asked.body))
        for asked in there.changes
    ]
    assert cuts == [
        ("0x00000000_0x80000000", [0x10000000]),
        ("0x10000000_0x80000000", [0x20000000]),
        ("0x20000000_0x80000000", [MIDDLE]),
    ]


def test_cuts_that_were_made_before_one_failed_are_counted_in_the_reason(
    cluster: Callable[..., Cluster],
) -> None:
    there = cluster(answers=[OK], takes=0, is_one_by_one=True)
    done = there.split(0x10000000, MIDDLE)
    assert isinstance(done, Done)
    assert done.outcome == "failed"
    assert str(done.reason).startswith("only 1 of 2 cuts were made: ")
    assert "412" in str(done.reason)


def test_the_modular_load_manager_is_asked_for_all_cuts_at_once(cluster: Callable[..., Cluster]) -> None:
    there = cluster(answers=[OK], takes=1)
    done = there.split(0x10000000, MIDDLE)
    assert isinstance(done, Done)
    assert done.outcome == "succeeded"
    assert [json.loads(asked.body) for asked in there.changes] == [[0x10000000, MIDDLE]]
