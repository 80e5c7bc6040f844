"""What was published is read once, in step with the rounds that close."""

import pytest

from state.engine.published import Published
from state.outputs import Output
from tests.state.building import published, unload


def action(name: str, time_ms: int, place: int = 0) -> Output:
    return published(unload(bundle=name), time_ms=time_ms, place=place)


FIRST, SECOND, THIRD = action("a", 60_000), action("b", 120_000), action("c", 180_000)


def names(outputs: list[Output]) -> list[str]:
    return [each.subject for each in outputs]


@pytest.mark.parametrize(
    ("ends_ms", "taken"),
    [
        ([60_000, 120_000, 180_000], [["a"], ["b"], ["c"]]),
        ([59_999, 60_000, 119_999], [[], ["a"], []]),
        ([150_000, 240_000], [["a", "b"], ["c"]]),
        ([180_000, 180_000], [["a", "b", "c"], []]),
        ([0], [[]]),
    ],
    ids=["each round", "to the millisecond", "rounds that nobody closed", "once", "before all"],
)
def test_a_round_takes_what_was_published_up_to_its_end(ends_ms: list[int], taken: list[list[str]]) -> None:
    found = Published([FIRST, SECOND, THIRD])
    assert [names(found.take(end_ms)) for end_ms in ends_ms] == taken


def test_outputs_come_by_time_and_place_in_whatever_order_they_were_read() -> None:
    """Those of equal time and place keep the order of the topic."""
    read = [action("d", 120_000, 1), THIRD, SECOND, FIRST, action("e", 120_000, 1)]
    assert names(Published(read).take(180_000)) == ["a", "b", "d", "e", "c"]


def test_what_no_round_took_is_left_and_is_taken_once() -> None:
    found = Published([THIRD, FIRST, SECOND])
    assert names(found.take(60_000)) == ["a"]
    assert names(found.take_left()) == ["b", "c"]
    assert found.take_left() == []
    assert found.take(180_000) == []


def test_where_nothing_was_published_nothing_is_taken() -> None:
    assert Published().take(10**15) == []
    assert Published().take_left() == []
