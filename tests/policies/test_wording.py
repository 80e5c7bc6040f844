"""Counts and numbers in sentences that people read."""

import pytest

from policies.wording import bytes_text, counted, digits, duration, rate_text, time_text


@pytest.mark.parametrize(
    ("value", "significant", "text"),
    [
        (0.0, 6, "0"),
        (2.50, 6, "2.5"),
        (999_999.0, 6, "999999"),
        (1_500_000.4, 6, "1,500,000"),
        (34_560_000, 6, "34,560,000"),
        (-1e9, 6, "-1,000,000,000"),
        (0.0000123456, 3, "0.0000123"),
        (1234.5, 3, "1,234"),
    ],
)
def test_a_number_has_digits_and_no_exponent(value: float, significant: int, text: str):
    assert digits(value, significant) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds")])
def test_a_noun_agrees_with_its_count(count: int, text: str):
    assert counted(count, "round") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3_599.6, "1 h 00 min"),
        (86_399.6, "1 d 00 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("time", "text", "exact"),
    [
        ("2026-11-21T13:23:20.000Z", "2026-11-21T13:23:20Z", "2026-11-21T13:23:20Z"),
        ("2026-11-21T13:23:17.123Z", "2026-11-21T13:23:17Z", "2026-11-21T13:23:17.123Z"),
        ("at an unknown time", "at an unknown time", "at an unknown time"),
    ],
)
def test_a_time_is_said_to_the_second_unless_less_matters(time: str, text: str, exact: str):
    assert (time_text(time), time_text(time, is_exact=True)) == (text, exact)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (2_401_700, "2.4 MB"),
        (3 * 2.0**63, "27.7 EB"),
    ],
)
def test_bytes_and_rates_have_one_form(value: float | None, text: str):
    assert bytes_text(value) == text
    assert rate_text(value) == ("?" if value is None else f"{text}/s")
