"""Lists are merged with what others set, and exactly what was added comes off later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.throttle.lists import (
    BadList,
    ThrottledLists,
    common,
    contains,
    difference,
    entries_of,
    foreign_entries_of,
    merge,
    text_of,
    without,
)

TEXTS = st.one_of(
    st.just("*"), st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8).map(text_of)
)
LISTS = st.dictionaries(st.sampled_from("abc"), TEXTS.filter(bool), max_size=3)
OURS = st.dictionaries(st.sampled_from("abc"), TEXTS.filter(lambda text: text not in {"", "*"}), max_size=3)
BOTH = st.builds(ThrottledLists, leader=LISTS, follower=LISTS)


def lists(leader: str) -> ThrottledLists:
    return ThrottledLists(leader={"t": leader})


def test_entries_of_others_stay_and_only_ours_are_remembered() -> None:
    after, added = merge(lists("7:1,0:2"), lists("0:2,0:10,0:9"))
    assert after == lists("0:2,0:9,0:10,7:1")
    assert added == lists("0:9,0:10")
    assert foreign_entries_of(after, added) == lists("0:2,7:1")
    assert without(after, added) == lists("0:2,7:1")


def test_a_star_covers_ours_and_is_left_alone() -> None:
    after, added = merge(lists("*"), lists("0:1"))
    assert (after, added) == (lists("*"), ThrottledLists())
    assert without(lists("*"), lists("0:1")) == lists("*")
    assert foreign_entries_of(lists("*"), lists("0:1")) == lists("*")


def test_an_empty_list_that_is_left_means_delete_the_setting() -> None:
    assert without(lists("0:1,0:2"), lists("0:2,0:1")) == lists("")


def test_entries_added_by_others_meanwhile_survive_the_removal() -> None:
    assert without(lists("0:1,0:2,5:5"), lists("0:1,0:2")) == lists("5:5")


@pytest.mark.parametrize("text", ["0", "a:b", "0:1:2", "-1:2", "0:*"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(BadList, match="expected partition:broker"):
        entries_of(text)


def test_empty_entries_which_kafka_allows_are_none() -> None:
    assert entries_of("0:1, ,1:1,") == {(0, 1), (1, 1)}
    assert entries_of(",") == set()


@given(there=BOTH, ours=st.builds(ThrottledLists, leader=OURS, follower=OURS))
def test_removing_what_was_added_restores_exactly_what_was_there(
    there: ThrottledLists, ours: ThrottledLists
) -> None:
    after, added = merge(there, ours)
    now = ThrottledLists(
        leader={**there.leader, **after.leader}, follower={**there.follower, **after.follower}
    )
    back = without(now, added)
    for kind in ("leader", "follower"):
        restored = {**getattr(now, kind), **getattr(back, kind)}
        assert {topic: text for topic, text in restored.items() if text} == getattr(there, kind)


@given(there=BOTH, ours=st.builds(ThrottledLists, leader=OURS, follower=OURS))
def test_merging_twice_changes_nothing(there: ThrottledLists, ours: ThrottledLists) -> None:
    once, _ = merge(there, ours)
    assert merge(once, ours) == (once, ThrottledLists())


@pytest.mark.parametrize(
    ("there", "text", "is_there", "shared"),
    [
        ("0:1,0:2", "0:1,0:2", True, "0:1,0:2"),
        ("0:2,7:9,0:1", "0:1,0:2", True, "0:1,0:2"),
        (" * ", "0:1", True, "0:1"),
        ("0:1", "0:1,0:2", False, "0:1"),
        ("7:9", "0:1", False, ""),
        ("", "0:1", False, ""),
    ],
)
def test_what_is_there_of_some_entries(*, there: str, text: str, is_there: bool, shared: str) -> None:
    found, some = ThrottledLists(leader={"t": there}), ThrottledLists(leader={"t": text})
    assert contains(found, some) == is_there
    assert common(some, found) == ThrottledLists(leader={"t": shared} if shared else {})
    found, some = ThrottledLists(follower={"t": there}), ThrottledLists(follower={"t": text})
    assert contains(found, some) == is_there
    assert common(some, found) == ThrottledLists(follower={"t": shared} if shared else {})


def test_a_difference_is_what_the_other_has_not() -> None:
    one, other = ThrottledLists(leader={"t": "0:1,0:2", "u": "1:1"}), ThrottledLists(leader={"t": "0:2,0:3"})
    assert difference(one, other) == ThrottledLists(leader={"t": "0:1", "u": "1:1"})
    assert difference(one, one) == ThrottledLists()
