"""The hash ranges of listed bundles: which of them cover another."""

from collections.abc import Collection

from policies.splitting.ranges import BadRange, BundleRange


def range_of(bundle: str) -> BundleRange | None:
    """The range of a bundle's full name; None for bounds that are no range."""
    try:
        return BundleRange.parse(bundle.rpartition("/")[2])
    except BadRange:
        return None


def covers(bundles: Collection[str], bundle: str) -> bool:
    """Whether the ranges of ``bundles`` together have all positions of another bundle of their namespace."""
    wanted = range_of(bundle)
    if wanted is None:
        return False
    reached = wanted.lower
    for each in sorted(found for found in map(range_of, bundles) if found is not None):
        if each.lower > reached:
            break
        reached = max(reached, each.upper)
    return reached >= wanted.upper
