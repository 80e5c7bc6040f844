"""What is published has one form: equal data has equal bytes and an equal id, and a moment is written in one way."""

import msgspec
import pytest

from state.outputs import Output, canonical, content_id, moment_ms, output, rfc3339


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are not in the order of the alphabet."""

    b: float
    a: dict[str, int | None]
    c: bool | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (Sample(b=1.5, a={"y": 1, "x": None}), '{"a":{"x":null,"y":1},"b":1.5}'),
        (Sample(b=0.1, a={}, c=False), '{"a":{},"b":0.1,"c":false}'),
        ({"ü": [3, 1, 2], "a": "x y"}, '{"a":"x y","ü":[3,1,2]}'),
        ({"10": 1, "9": 2, "Z": 3, "a": 4}, '{"10":1,"9":2,"Z":3,"a":4}'),
        ([], "[]"),
    ],
    ids=["keys are sorted", "unset is left out, false is not", "UTF-8, lists keep their order", "by code", "empty"],
)  # fmt: skip
def test_data_has_sorted_keys_and_no_white_space_between_them(data: object, text: str) -> None:
    assert canonical(data) == text.encode()


def test_the_order_in_which_a_table_was_filled_changes_nothing() -> None:
    assert canonical({"a": 1, "b": {"c": 2, "d": 3}}) == canonical({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (b"", "e3b0c44298fc1c149afbf4c8996fb924"),
        (b"abc", "ba7816bf8f01cfea414140de5dae2223"),
    ],
)
def test_an_id_is_the_first_half_of_the_sha_256(data: bytes, id_: str) -> None:
    """The hashes are the test vectors of FIPS 180-4: of the empty text, and of abc."""
    assert content_id(data) == id_


def test_an_output_has_its_data_encoded_with_the_id_of_it() -> None:
    found = output(
        kind="action",
        type_="trimtab.action.unload.v1",
        subject="t/a/0x0_0x1",
        cluster="east-1",
        number=7,
        place=2,
        time_ms=480_000,
        data={"b": 1, "a": 2},
        dry_run=True,
    )
    assert found == Output(
        kind="action",
        type="trimtab.action.unload.v1",
        subject="t/a/0x0_0x1",
        cluster="east-1",
        round=7,
        place=2,
        time_ms=480_000,
        id=content_id(b'{"a":2,"b":1}'),
        data=b'{"a":2,"b":1}',
        dry_run=True,
    )


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_000, "1970-01-01T00:00:01.000Z"),
        (86_400_000, "1970-01-02T00:00:00.000Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_214_400_000, "9999-12-31T00:00:00.000Z"),
    ],
)
def test_a_moment_is_written_in_utc_with_milliseconds_and_read_again(time_ms: int, text: str) -> None:
    """11,016 days lie between the epoch and 29 February 2000: 30 years, 7 leap days and 59 days of 2000."""
    assert rfc3339(time_ms) == text
    assert moment_ms(text) == time_ms


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(-62_135_596_800_001, "0001-01-01T00:00:00.000Z"), (253_402_214_400_001, "9999-12-31T00:00:00.000Z")],
)
def test_a_moment_outside_the_calendar_becomes_its_first_or_last(time_ms: int, text: str) -> None:
    assert rfc3339(time_ms) == text


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "1970-13-01T00:00:00.000Z", "1970-01-01T00:00:00.000+00:00", "1970-01-01T00:00:00.000"],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match format"):
        moment_ms(text)
