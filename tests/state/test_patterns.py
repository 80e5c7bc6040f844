"""Patterns of isolation policies: matched in linear time, or refused with the reason."""

import pytest

from state.pulsar.groups import MAX_PATTERN_CHARACTERS, BadPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("b[12]", "b1", True),
        ("b[12]", "b12", False),
        ("b.*", "xb1", False),
        (r"blue-\d+", "blue-17", True),
        ("(a+)+b", "a" * 5000, False),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, text: str, *, matches: bool) -> None:
    assert (compile_pattern(pattern).fullmatch(text) is not None) == matches


def test_a_pattern_that_is_too_long_is_refused_with_its_length() -> None:
    assert compile_pattern("a" * MAX_PATTERN_CHARACTERS)
    with pytest.raises(BadPattern, match=rf"it has {MAX_PATTERN_CHARACTERS + 1} characters, at most"):
        compile_pattern("a" * (MAX_PATTERN_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("pattern", "why"), [("b(1", "missing"), (r"(a)\1", "escape"), ("a**", "repetition")]
)
def test_a_pattern_outside_the_language_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(BadPattern, match=why):
        compile_pattern(pattern)
