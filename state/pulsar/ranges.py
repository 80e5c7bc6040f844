"""The hash ranges of listed bundles: which cover another, and which overlap though a namespace's ranges never do.

A report can list a range that is no more: after a split the parent beside its children. While ranges overlap it is not known which
are real. The finer ones count, because Pulsar cuts bundles and never joins them, so that the wider one is the older. Nothing is done
to any of them. Ranges have to overlap in two rounds running: when a bundle is split, or changes hands, brokers report at
different times.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from policies.splitting.ranges import BadRange, BundleRange
from state.events import namespace_of


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


def find_overlaps(bundles: Iterable[str]) -> dict[str, list[str]]:
    """By bundle that overlaps finer ones of its namespace, these; of equally wide ones the first counts as the finer."""
    by_namespace = defaultdict(list)
    for bundle in bundles:
        if (found := range_of(bundle)) is not None:
            by_namespace[namespace_of(bundle)].append((found, bundle))
    overlaps: dict[str, list[str]] = {}
    for ranges in by_namespace.values():
        ranges.sort()
        if any(one.upper > other.lower for (one, _), (other, _) in pairwise(ranges)):
            overlaps |= _overlaps_in(ranges)
    return overlaps


def _overlaps_in(ranges: list[tuple[BundleRange, str]]) -> dict[str, list[str]]:
    """The same for one namespace."""
    counted: list[tuple[BundleRange, str]] = []  # ascending, none overlaps another
    wider = []
    for each in sorted(ranges, key=lambda each: (each[0].upper - each[0].lower, each)):
        place = _overlapped_by(each[0], counted)
        if len(place):
            wider.append(each)
        else:
            counted.insert(place.start, each)
    return {bundle: [counted[at][1] for at in _overlapped_by(found, counted)] for found, bundle in wider}


def _overlapped_by(found: BundleRange, counted: list[tuple[BundleRange, str]]) -> range:
    """Places in ``counted`` of those that a range overlaps; the place for it where there are none."""
    first = bisect_right(counted, found.lower, key=lambda each: each[0].upper)
    return range(first, bisect_left(counted, found.upper, key=lambda each: each[0].lower))


def members_of(overlaps: Mapping[str, Collection[str]]) -> frozenset[str]:
    """All bundles that overlap others."""
    return frozenset(overlaps).union(*overlaps.values())
