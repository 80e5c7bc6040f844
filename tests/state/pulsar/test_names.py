"""Names of rows as a list and as the text that is stored."""

import pytest

from state.pulsar.memory import Fleet, Names


@pytest.mark.parametrize(("names", "text"), [([], ""), (["a"], "a"), (["a", "bc"], "a\nbc")])
def test_the_list_and_the_text_say_the_same_whichever_was_given(names: list[str], text: str) -> None:
    assert Names(names).text == text
    assert Names(text=text).each == names


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], True),
        (["a"], True),
        (["a", "bc"], True),
        (["a", "bc", "d"], True),
        (["a", "b"], False),  # the beginning of a name is another name
        (["a", "bc", "d", "e"], False),
        (["bc"], False),
    ],
)
def test_the_first_names_are_compared_whole(first: list[str], *, expected: bool) -> None:
    names = ["a", "bc", "d"]
    assert Names(names).begin_with(first) is expected
    assert Names(text="\n".join(names)).begin_with(first) is expected


@pytest.mark.parametrize(("first", "expected"), [([], True), (["a"], False)])
def test_without_names_only_none_are_the_first(first: list[str], *, expected: bool) -> None:
    assert Names([]).begin_with(first) is expected


def test_a_fleet_given_other_bundles_stores_those() -> None:
    fleet = Fleet()
    fleet.bundle_names = Names(text="a\nb")
    fleet.bundles = [*fleet.bundles, "c"]
    assert (fleet.bundles, fleet.bundle_names.text) == (["a", "b", "c"], "a\nb\nc")
