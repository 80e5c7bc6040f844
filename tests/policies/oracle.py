"""The shedding policies again, written as naively as possible, to compare the real ones with.

Straight from the pseudocode of Pulsar's classes of the same names (4.2.4): dicts, lists and loops, single
precision through ``numpy.float32`` scalars. It takes the fleet as described in ``tests.policies.fleets``, not the
policies' columns, and imports nothing of the policies but their settings. Where Pulsar leaves an order open (equal
scores, equal traffic) it takes the policies' documented one: by name. Placement has a file of its own,
``placement_oracle``.
"""

import math

import numpy as np

from policies.shedding.avg_shedder import AvgShedderSettings
from policies.shedding.overload_shedder import OverloadShedderSettings
from policies.shedding.threshold_shedder import ThresholdShedderSettings
from policies.shedding.uniform_load_shedder import UniformLoadShedderSettings
from policies.usage import CapacitySettings, UsageSettings
from tests.policies.fleets import Broker, Fleet, Unload


def percent_of(usage: float, limit: float) -> float:
    """``ResourceUsage.percentUsage``."""
    if limit > 0:
        return float(np.float32(usage) / np.float32(limit) * np.float32(100))
    return 0.0


def usage_ratio_of(name: str, broker: Broker, weights: UsageSettings, capacity: CapacitySettings) -> float:
    """``getMaxResourceUsageWithWeight``, with declared capacity as one more resource."""
    weighted = [0.0]
    for resource, weight in (
        ("cpu", weights.cpu_weight),
        ("bandwidth-in", weights.bandwidth_in_weight),
        ("bandwidth-out", weights.bandwidth_out_weight),
        ("direct-memory", weights.direct_memory_weight),
    ):
        usage, limit = broker.usage.get(resource, (-1.0, -1.0))
        weighted.append(percent_of(usage, limit) * weight)
    own = capacity.brokers.get(name)
    for carried, default, declared in (
        (broker.messages_per_s, capacity.messages_per_s, own.messages_per_s if own else None),
        (broker.bytes_per_s, capacity.bytes_per_s, own.bytes_per_s if own else None),
    ):
        limit = declared if declared is not None else default
        if limit is not None:
            weighted.append(percent_of(carried, limit) * weights.capacity_weight)
    return max(weighted) / 100.0


def avg_shedder(
    fleet: Fleet,
    ratios: dict[str, float],
    low_hits: dict[str, int],
    high_hits: dict[str, int],
    settings: AvgShedderSettings,
) -> list[Unload]:
    """One round; ``low_hits`` and ``high_hits`` are changed in place. ``ratios``: the usage of each broker."""
    score = {name: 100.0 * ratios[name] for name in fleet}
    ascending = sorted(fleet, key=lambda name: (score[name], name))
    pairs = []
    i, j = 0, len(ascending) - 1
    while i <= j:
        lo, hi = ascending[i], ascending[j]
        difference = score[hi] - score[lo]
        if difference < settings.low_threshold_points:
            for name in (lo, hi):
                low_hits.pop(name, None)
                high_hits.pop(name, None)
        else:
            pairs.append((lo, hi))
            low_hits[lo] = low_hits.get(lo, 0) + 1
            low_hits[hi] = low_hits.get(hi, 0) + 1
            if difference < settings.high_threshold_points:
                high_hits.pop(lo, None)
                high_hits.pop(hi, None)
            else:
                high_hits[lo] = high_hits.get(lo, 0) + 1
                high_hits[hi] = high_hits.get(hi, 0) + 1
        i += 1
        j -= 1
    if not pairs:
        low_hits.clear()
        high_hits.clear()
        return []
    unloads: list[Unload] = []
    for lo, hi in pairs:
        if (
            high_hits.get(lo, 0) < settings.high_hit_count
            and high_hits.get(hi, 0) < settings.high_hit_count
            and low_hits.get(lo, 0) < settings.low_hit_count
            and low_hits.get(hi, 0) < settings.low_hit_count
        ):
            continue
        for name in (lo, hi):
            low_hits.pop(name, None)
            high_hits.pop(name, None)
        unloads.extend(_half_the_difference(fleet, lo, hi, settings))
    return unloads


def _half_the_difference(fleet: Fleet, lo: str, hi: str, settings: AvgShedderSettings) -> list[Unload]:
    rate = (fleet[hi].messages_per_s - fleet[lo].messages_per_s) * settings.max_unload_ratio
    volume = (fleet[hi].bytes_per_s - fleet[lo].bytes_per_s) * settings.max_unload_ratio
    bundles = fleet[hi].bundles
    if rate > settings.min_unload_messages_per_s:
        remaining = rate
        traffic = {name: bundle.messages_per_s for name, bundle in bundles.items()}
    elif volume > settings.min_unload_bytes_per_s:
        remaining = volume
        traffic = {name: bundle.bytes_per_s for name, bundle in bundles.items()}
    else:
        return []
    unloads: list[Unload] = []
    for name in sorted(bundles, key=lambda name: (-traffic[name], name)):
        if bundles[name].movable and 0 < traffic[name] <= remaining:
            remaining -= traffic[name]
            if fleet[lo].may_receive:
                unloads.append((name, hi, lo))
    return unloads


def threshold_shedder(
    fleet: Fleet, ratios: dict[str, float], history: dict[str, float], settings: ThresholdShedderSettings
) -> list[Unload]:
    """One round; ``history`` is changed in place. ``ratios``: the usage of each broker."""
    if not fleet:
        return []
    average = _advance(ratios, history, settings)
    if average == 0:
        return []
    threshold = settings.threshold_points / 100.0
    unloads: list[Unload] = []
    for name in sorted(fleet, key=lambda name: (-history[name], name)):
        usage = history[name]
        if len(fleet) < 2:
            break  # nowhere to go
        if usage < average + threshold or not _still_hot(name, ratios, settings):
            continue
        need = fleet[name].bytes_per_s * (usage - average - threshold + 0.05)
        if need < settings.min_unload_bytes_per_s:
            continue
        if _listed_count(fleet[name]) > 1:
            unloads.extend(_biggest_first(name, fleet[name], need))
    if not unloads and settings.lower_boundary_shedding:
        unloads = _lower_boundary(fleet, ratios, history, settings)
    return unloads


def _lower_boundary(
    fleet: Fleet, ratios: dict[str, float], history: dict[str, float], settings: ThresholdShedderSettings
) -> list[Unload]:
    average = _advance(ratios, history, settings)
    threshold = settings.threshold_points / 100.0
    busiest, most, somebody_is_cold = "", average - threshold, False
    for name in sorted(fleet):
        if history[name] > most and _listed_count(fleet[name]) > 1:
            busiest, most = name, history[name]
        if history[name] < average - threshold:
            somebody_is_cold = True
    if not busiest or not somebody_is_cold or not _still_hot(busiest, ratios, settings):
        return []
    need = fleet[busiest].bytes_per_s * threshold * 0.5
    if settings.min_unload_bytes_per_s > need:
        return []
    return _biggest_first(busiest, fleet[busiest], need)


def _advance(
    ratios: dict[str, float], history: dict[str, float], settings: ThresholdShedderSettings
) -> float:
    h = settings.history_ratio
    for name, raw in ratios.items():
        history[name] = history[name] * h + (1 - h) * raw if name in history else raw
    return math.fsum(history[name] for name in ratios) / len(ratios)


def _still_hot(name: str, ratios: dict[str, float], settings: ThresholdShedderSettings) -> bool:
    return not settings.require_current_above_mean or ratios[name] > math.fsum(ratios.values()) / len(ratios)


def _listed_count(broker: Broker) -> int:
    return len(broker.bundles) if broker.listed_count is None else broker.listed_count


def _biggest_first(source: str, broker: Broker, need: float) -> list[Unload]:
    marked = 0.0
    unloads: list[Unload] = []
    for name in sorted(broker.bundles, key=lambda name: (-broker.bundles[name].bytes_per_s, name)):
        if broker.bundles[name].movable and (marked < need or not unloads):
            marked += broker.bundles[name].bytes_per_s
            unloads.append((name, source, None))
    return unloads


def overload_shedder(
    fleet: Fleet, ratios: dict[str, float], settings: OverloadShedderSettings
) -> list[Unload]:
    """One round. ``ratios``: the usage of each broker."""
    unloads: list[Unload] = []
    if len(fleet) < 2:
        return unloads
    threshold = settings.threshold_points / 100.0
    for name in sorted(fleet, key=lambda name: (-ratios[name], name)):
        usage = ratios[name]
        if usage < threshold:
            continue
        need = fleet[name].bytes_per_s * (usage - threshold + 0.05)
        if _listed_count(fleet[name]) > 1:
            unloads.extend(_biggest_first(name, fleet[name], need))
    return unloads


def uniform_load_shedder(fleet: Fleet, settings: UniformLoadShedderSettings) -> list[Unload]:
    """One round, in one pass over the brokers."""
    if len(fleet) < 2:
        return []
    most_rate, most_volume, least_rate, least_volume = -1.0, -1.0, 2147483647.0, 2147483647.0
    busiest_by_rate = busiest_by_volume = ""
    for name in sorted(fleet):
        rate, volume = fleet[name].messages_per_s, fleet[name].bytes_per_s
        if rate > most_rate:
            most_rate, busiest_by_rate = rate, name
        if volume > most_volume:
            most_volume, busiest_by_volume = volume, name
        least_rate = min(least_rate, rate)
        least_volume = min(least_volume, volume)
    least_rate = 1.0 if -1e-6 <= least_rate <= 1e-6 else least_rate
    least_volume = 1.0 if -1e-6 <= least_volume <= 1e-6 else least_volume
    percent = (most_rate - least_rate) * 100 / least_rate
    if settings.rate_difference_percent > 0 and percent > settings.rate_difference_percent:
        broker, need = busiest_by_rate, (most_rate - least_rate) * settings.max_unload_ratio
        traffic = {name: bundle.messages_per_s for name, bundle in fleet[broker].bundles.items()}
        minimum = settings.min_unload_messages_per_s
    elif settings.throughput_multiple > 0 and most_volume / least_volume > settings.throughput_multiple:
        broker, need = busiest_by_volume, (most_volume - least_volume) * settings.max_unload_ratio
        traffic = {name: bundle.bytes_per_s for name, bundle in fleet[broker].bundles.items()}
        minimum = settings.min_unload_bytes_per_s
    else:
        return []
    left = min(int(need), 2147483647)
    if _listed_count(fleet[broker]) <= 1 or left < minimum:
        return []
    return _whatever_fits(broker, fleet[broker], traffic, left, settings)


def _whatever_fits(
    source: str, broker: Broker, traffic: dict[str, float], left: int, settings: UniformLoadShedderSettings
) -> list[Unload]:
    unloads: list[Unload] = []
    for name in sorted(traffic, key=lambda name: (-traffic[name], name)):
        if not broker.bundles[name].movable:
            continue
        if settings.max_unload_bundles_count != -1 and len(unloads) >= settings.max_unload_bundles_count:
            break
        if traffic[name] <= left:
            unloads.append((name, source, None))
            left -= int(traffic[name])
    return unloads
