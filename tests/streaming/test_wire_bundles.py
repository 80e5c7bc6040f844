"""The names kept from a broker's last report make the next one quick to read and never change what is read."""

import pytest

from streaming.contract.bundles import BadBundleName, KnownBundles

A, B, C = (f"t/n/0x{start:08x}_0x{start + 1:08x}" for start in (1, 2, 3))
HEARTBEAT = "pulsar/lab/b1:8080/0x00000000_0xffffffff"
BROKER = ("lab", "b1")


def test_the_same_names_again_are_the_same_listing():
    known = KnownBundles()
    assert known.listing(BROKER, [B, A], [A, B]) is known.listing(BROKER, [B, A], [A, B])


@pytest.mark.parametrize(
    ("stats", "listed"), [([A, B], [A, B]), ([B, A], [B, A]), ([B], [A, B]), ([B, A], [A]), ([B, A], None)]
)
def test_other_names_or_another_order_are_read_anew(stats: list[str], listed: list[str] | None):
    known = KnownBundles()
    known.listing(BROKER, [B, A], [A, B])
    after, fresh = known.listing(BROKER, stats, listed), KnownBundles().listing(BROKER, stats, listed)
    assert (after.bundles, after.stats_rows.tolist(), after.listed_count) == (
        fresh.bundles,
        fresh.stats_rows.tolist(),
        fresh.listed_count,
    )
    assert [stats[row] if row >= 0 else None for row in after.stats_rows.tolist()] == [
        name if name in stats else None for name in after.bundles
    ]


def test_a_wrong_name_is_refused_however_often_it_comes():
    known = KnownBundles()
    for _ in range(2):
        with pytest.raises(BadBundleName, match="'no-bundle' is no bundle"):
            known.listing(BROKER, [A, "no-bundle"], None)


def test_however_many_names_and_brokers_come_little_is_kept_and_every_listing_is_right():
    known = KnownBundles(max_names=4)
    for turn in range(20):
        names = [A, HEARTBEAT, B, C][turn % 3 :]
        found = known.listing(("lab", f"b{turn % 7}"), names, None)
        assert found.bundles == sorted(set(names) - {HEARTBEAT})
        assert found.listed_count == len(names)
        assert len(known._names) <= 4
        assert sum(kept.size for kept in known._listings.values()) <= 4
