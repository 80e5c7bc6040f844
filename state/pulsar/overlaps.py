"""Ranges of bundles, and those that overlap although a namespace's ranges never do.

A report can list a range that is no more: after a split the parent beside its children, or after a namespace was made anew its old
bundles. It is not known which are real, and nothing is done to any of them. Those with traffic count, for an idle one that is no
more must not hide a load. Of these the finer ones count, because Pulsar cuts bundles and never joins them, so that the wider one
is the older. Ranges have to overlap twice within ``max_report_age_s``: when a bundle is split, or changes hands, brokers report at
different times. A range that is covered by those that count does not count from the first time on.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
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
    for range_ in sorted(range_ for range_ in map(range_of, bundles) if range_ is not None):
        if range_.lower > reached:
            break
        reached = max(reached, range_.upper)
    return reached >= wanted.upper


def find_overlaps(bundles: Iterable[str], idle: Container[str] = ()) -> dict[str, list[str]]:
    """By bundle that overlaps others of its namespace and does not count, those that count.

    What is not ``idle`` counts first, then what is finer; of equally wide ones the first.
    """
    by_namespace = defaultdict(list)
    for bundle in bundles:
        if (range_ := range_of(bundle)) is not None:
            by_namespace[namespace_of(bundle)].append((range_, bundle))
    overlaps: dict[str, list[str]] = {}
    for ranges in by_namespace.values():
        ranges.sort()
        if any(one.upper > other.lower for (one, _), (other, _) in pairwise(ranges)):
            overlaps |= _overlaps_in(ranges, idle)
    return overlaps


def _overlaps_in(ranges: list[tuple[BundleRange, str]], idle: Container[str]) -> dict[str, list[str]]:
    """The same for one namespace."""
    counted: list[tuple[BundleRange, str]] = []  # ascending, none overlaps another
    uncounted = []
    for pair in sorted(ranges, key=lambda pair: (pair[1] in idle, pair[0].upper - pair[0].lower, pair)):
        place = _overlapped_by(pair[0], counted)
        if len(place):
            uncounted.append(pair)
        else:
            counted.insert(place.start, pair)
    return {
        bundle: [counted[at][1] for at in _overlapped_by(range_, counted)] for range_, bundle in uncounted
    }


def _overlapped_by(range_: BundleRange, counted: list[tuple[BundleRange, str]]) -> range:
    """Places in ``counted`` of those that a range overlaps; the place for it where there are none."""
    first = bisect_right(counted, range_.lower, key=lambda pair: pair[0].upper)
    return range(first, bisect_left(counted, range_.upper, key=lambda pair: pair[0].lower))


def members_of(overlaps: Mapping[str, Collection[str]]) -> frozenset[str]:
    """All bundles that overlap others."""
    return frozenset(overlaps).union(*overlaps.values())
