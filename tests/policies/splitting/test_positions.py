"""Where topics are: CRC32 of the full name."""

import time

import pytest

from policies.splitting.ranges import partitions_of, position_of, positions_of


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
