"""Pulsar's four split algorithms again, written as naively as possible, to compare the real ones with.

Straight from the pseudocode of the classes of 4.2.4: lists, dicts and loops over topics by name. ``None`` is "do not
split". It returns what Pulsar returns, repeated and useless boundaries included; ``taken`` is what is left of them.
"""

from itertools import pairwise

from policies.splitting.ranges import BundleRange
from tests.policies.splitting.bundles import Topics


def range_equally_divide(range_: BundleRange) -> list[int] | None:
    return [range_.lower + (range_.upper - range_.lower) // 2]


def topic_count_equally_divide(topics: Topics) -> list[int] | None:
    if len(topics) < 2:
        return None
    hashes = sorted(topic.position for topic in topics.values())
    start = hashes[max(len(hashes) // 2 - 1, 0)]
    end = hashes[len(hashes) // 2]
    return [start + (end - start) // 2]


def specified_positions_divide(range_: BundleRange, topics: Topics, positions: list[int]) -> list[int] | None:
    if len(topics) < 2:
        return None
    inside = [at for at in sorted(positions) if range_.lower < at < range_.upper]
    return inside or None


def flow_or_qps_equally_divide(
    topics: Topics, max_rate: float, max_throughput: float, percent: float, added: int
) -> list[int] | None:
    if len(topics) <= 1:
        return None
    hashes: list[int] = []
    found: dict[int, tuple[float, float]] = {}
    total_rate = total_throughput = 0.0
    for name in sorted(topics):
        topic = topics[name]
        if topic.messages_per_s <= 0 and topic.bytes_per_s <= 0:
            continue
        hashes.append(topic.position)
        found[topic.position] = (topic.messages_per_s, topic.bytes_per_s)
        total_rate += topic.messages_per_s
        total_throughput += topic.bytes_per_s
    threshold = percent / 100.0
    if len(found) < 2 or (
        total_rate < max_rate * (1 + threshold) and total_throughput < max_throughput * (1 + threshold)
    ):
        return None
    hashes.sort()
    rate, throughput = found[hashes[0]]
    boundaries = []
    for before, here in pairwise(hashes):
        here_rate, here_throughput = found[here]
        if rate + here_rate > max_rate or throughput + here_throughput > max_throughput:
            boundaries.append(before + (here - before) // 2 + added)
            rate, throughput = here_rate, here_throughput
        else:
            rate += here_rate
            throughput += here_throughput
    return boundaries


def taken(range_: BundleRange, boundaries: list[int] | None) -> tuple[int, ...]:
    """The boundaries strictly inside the range, each one once."""
    return tuple(sorted({at for at in boundaries or [] if range_.lower < at < range_.upper}))
