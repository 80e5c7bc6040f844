"""Ranges of bundles, and where topics are in them: CRC32 of the full name."""

import time

import numpy as np
import pytest

from policies.splitting.ranges import (
    FULL_UPPER,
    BadRange,
    Bundle,
    BundleRange,
    NamespaceBundles,
    partitions_of,
    position_of,
    positions_of,
)
from tests.policies.splitting.bundles import FULL_RANGE


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("0x00000000_0xffffffff", 0, FULL_UPPER),
        ("0x4ccccccb_0x66666664", 0x4CCCCCCB, 0x66666664),
        ("0x0_0x200", 0, 0x200),
        ("0xABCDEF00_0xFFFFFFFF", 0xABCDEF00, FULL_UPPER),
        ("0xffffffff_0xffffffff", FULL_UPPER, FULL_UPPER),
    ],
)
def test_a_range_is_read_and_written_as_pulsar_writes_it(text: str, lower: int, upper: int) -> None:
    found = BundleRange.parse(text)
    assert found == BundleRange(lower, upper)
    assert str(found) == f"0x{lower:08x}_0x{upper:08x}"
    assert BundleRange.parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid bundle range ''"),
        ("0x00000000", "invalid bundle range '0x00000000'"),
        ("0x00000000-0x40000000", "expected two bounds"),
        ("00000000_40000000", "expected two bounds"),
        ("0x00000000_0x4000000g", "expected two bounds"),
        ("0x00000000_0x100000000", "at most 8 hexadecimal"),
        ("0x00000000_0x40000000 ", "expected two bounds"),
        ("0x00000000_0x40000000\n", "expected two bounds"),
        ("0x40000000_0x00000000", "lower bound is above its upper one"),
        ("0x40000000_0x40000000", "empty range"),
    ],
)
def test_what_is_no_range_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(BadRange, match=message):
        BundleRange.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x00000000_0x40000000", "is no bundle: expected tenant/namespace"),
        ("tenant/0x00000000_0x40000000", "is no bundle: expected tenant/namespace"),
        ("a/b/c/d/0x00000000_0x40000000", "is no bundle: expected tenant/namespace"),
        ("/b/0x00000000_0x40000000", "is no bundle: expected tenant/namespace"),
        ("tenant/ns/whole", "invalid bundle range 'whole'"),
        ("tenant/ns/0x5_0x4", "lower bound is above"),
    ],
)
def test_what_is_no_bundle_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(BadRange, match=message):
        Bundle.parse(text)


def test_a_bundle_may_be_of_an_old_cluster_namespace() -> None:
    assert str(Bundle.parse("t/c/n/0x0_0x200")) == "t/c/n/0x00000000_0x00000200"


def test_bounds_beyond_32_bits_are_refused() -> None:
    for lower, upper in ((-1, 5), (0, FULL_UPPER + 1)):
        with pytest.raises(BadRange, match="bounds are"):
            BundleRange(lower, upper)


def test_the_lower_bound_belongs_to_a_bundle_and_the_upper_one_only_to_the_last() -> None:
    assert [BundleRange(10, 20).contains(at) for at in (9, 10, 19, 20)] == [False, True, True, False]
    last = BundleRange(0xC0000000, FULL_UPPER)
    assert [last.contains(at) for at in (0xBFFFFFFF, 0xC0000000, FULL_UPPER)] == [False, True, True]
    assert last.contains_each(np.array([5, FULL_UPPER])).tolist() == [False, True]


@pytest.mark.parametrize(
    ("range_", "possible"),
    [
        (BundleRange(10, 11), False),
        (BundleRange(10, 12), True),
        (BundleRange(FULL_UPPER - 1, FULL_UPPER), False),
        (BundleRange(FULL_UPPER, FULL_UPPER), False),
        (FULL_RANGE, True),
    ],
)
def test_a_range_can_be_split_if_it_is_larger_than_1(range_: BundleRange, *, possible: bool) -> None:
    assert range_.can_split is possible
    if not possible:
        with pytest.raises(BadRange, match="can't be split further"):
            range_.cut([range_.lower + 1])


def test_children_cover_the_parent() -> None:
    assert [str(child) for child in BundleRange(0, 0x200).cut([15, 50])] == [
        "0x00000000_0x0000000f",
        "0x0000000f_0x00000032",
        "0x00000032_0x00000200",
    ]


@pytest.mark.parametrize("boundaries", [[0], [0x200], [50, 15], [15, 15], [-1], [0x201]])
def test_boundaries_that_pulsar_would_refuse_are_refused(boundaries: list[int]) -> None:
    with pytest.raises(BadRange, match="boundaries must ascend, differ and lie strictly inside"):
        BundleRange(0, 0x200).cut(boundaries)


def test_new_namespaces_have_pulsars_boundaries() -> None:
    assert [hex(edge) for edge in NamespaceBundles.equal(4).boundaries.tolist()] == [
        "0x0",
        "0x40000000",
        "0x80000000",
        "0xc0000000",
        "0xffffffff",
    ]
    assert NamespaceBundles.equal(10).boundaries[3] == 0x4CCCCCCB


def test_every_position_is_in_the_bundle_that_holds_it() -> None:
    bundles = NamespaceBundles.equal(7)
    edges = bundles.boundaries.tolist()
    positions = sorted({0, FULL_UPPER, *(at + step for at in edges[1:-1] for step in (-1, 0, 1))})
    rows = bundles.rows_of(np.array(positions)).tolist()
    for position, row in zip(positions, rows, strict=True):
        assert bundles.range_of(row).contains(position)
    with pytest.raises(BadRange, match="expected 0 to"):
        bundles.rows_of(np.array([-1]))


@pytest.mark.parametrize("edges", [[0], [0, 5], [1, FULL_UPPER], [0, 7, 7, FULL_UPPER]])
def test_boundaries_that_do_not_cover_the_range_make_no_namespace(edges: list[int]) -> None:
    with pytest.raises(BadRange, match="no boundaries of a namespace"):
        NamespaceBundles(np.array(edges))


def test_the_hash_is_crc32_as_the_standard_checks_it() -> None:
    assert position_of("123456789") == 0xCBF43926
    assert position_of("") == 0


def test_names_are_hashed_as_written() -> None:
    full = "persistent://shop/orders/new"
    assert position_of(full) == 0x01AAAE5B
    assert len({position_of(full), position_of("new"), position_of(f"{full}-partition-0")}) == 3
    assert positions_of([full, "123456789"]).tolist() == [0x01AAAE5B, 0xCBF43926]
    assert position_of("persistent://t/n/ü") == positions_of(["persistent://t/n/ü"])[0]


def test_a_partitioned_topic_is_its_partitions() -> None:
    assert partitions_of("persistent://t/n/x", 2) == (
        "persistent://t/n/x-partition-0",
        "persistent://t/n/x-partition-1",
    )
    assert partitions_of("persistent://t/n/x", 0) == ("persistent://t/n/x",)
    with pytest.raises(ValueError, match="cannot have -1 partitions"):
        partitions_of("persistent://t/n/x", -1)


def test_a_million_positions_take_at_most_a_second() -> None:
    names = [f"persistent://tenant/namespace/topic-{number}-partition-0" for number in range(1_000_000)]
    begun = time.process_time()
    found = positions_of(names)
    assert time.process_time() - begun <= 1
    assert len(found) == 1_000_000
